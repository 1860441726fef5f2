"""Buffers and the devices they lie on."""

from __future__ import annotations

from tidemill.driver.buffer import Buffer
from tidemill.driver.device import CPU, Accelerator, Device, accelerator_count
from tidemill.driver.dlpack import DLPackArray

__all__ = ["CPU", "Accelerator", "Buffer", "DLPackArray", "Device", "accelerator_count"]

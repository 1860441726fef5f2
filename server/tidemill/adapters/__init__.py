"""Declared conversions of what a person sends into what a model takes."""

from __future__ import annotations

from tidemill.adapters.adapter import Adapter, open_adapter

__all__ = ["Adapter", "open_adapter"]

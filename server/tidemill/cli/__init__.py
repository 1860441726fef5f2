"""The command line."""

from __future__ import annotations

from tidemill.cli.main import main

__all__ = ["main"]

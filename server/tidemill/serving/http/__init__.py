"""The REST face."""

from __future__ import annotations

from tidemill.serving.http.app import create_app

__all__ = ["create_app"]

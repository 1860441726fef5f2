"""Repositories: folders of models, and the served models that come of them."""

from __future__ import annotations

from tidemill.repository.layout import ModelFolder, scan
from tidemill.repository.repository import Events, Repository
from tidemill.repository.served import ModelState, ServedModel

__all__ = ["Events", "ModelFolder", "ModelState", "Repository", "ServedModel", "scan"]

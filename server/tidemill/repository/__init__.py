"""Repositories: folders of models, and the served models that come of them."""

from __future__ import annotations

from tidemill.repository.bringup import Events
from tidemill.repository.control import RepositoryControl
from tidemill.repository.layout import ModelFolder, OneModel, scan
from tidemill.repository.repository import Repository
from tidemill.repository.served import ModelState, ServedModel

__all__ = ["Events", "ModelFolder", "ModelState", "OneModel", "Repository", "RepositoryControl", "ServedModel", "scan"]

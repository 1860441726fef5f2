"""Which configuration a model's folder holds, or a caller gives: ours, or Triton's; knows no model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tidemill.bundle.config import ModelConfig, load_config, read_config
from tidemill.bundle.stored import check_inside
from tidemill.errors import ConfigError, InvalidBundle
from tidemill.repository.layout import CONFIG_FILE, TRITON_CONFIG_FILE, ModelFolder

__all__ = ["folder_config", "given_config"]


def folder_config(folder: ModelFolder) -> ModelConfig:
    """The content of model.yaml or of Triton's config.pbtxt; all defaults without either.

    Raises:
        ConfigError: It is wrong, is no regular file of the folder's, or there are both.
    """
    present = [name for name in (CONFIG_FILE, TRITON_CONFIG_FILE) if _is_there(folder, name)]
    if len(present) > 1:
        raise ConfigError(f"{folder.path} has both a model.yaml and a {TRITON_CONFIG_FILE}; remove one")
    if present != [TRITON_CONFIG_FILE]:
        return load_config(folder.config_path)
    # Only Triton's own format takes protobuf.
    from tidemill.repository.triton_config import load_triton_config

    return load_triton_config(folder.path / TRITON_CONFIG_FILE)


def _is_there(folder: ModelFolder, name: str) -> bool:
    if not os.path.lexists(folder.path / name):
        return False
    try:
        check_inside(folder.path, name)
    except InvalidBundle as error:
        raise ConfigError(str(error)) from None
    return True


def given_config(fields: Mapping[str, Any]) -> ModelConfig:
    """A configuration that a caller gives: the fields of model.yaml, or those of Triton's ModelConfig.

    Raises:
        ConfigError: Fields are unknown or wrong.
    """
    if fields.keys() <= ModelConfig.model_fields.keys() - _BOTH:
        return read_config(dict(fields), "the config of the load request")
    from tidemill.repository.triton_config import read_triton_config

    return read_triton_config(fields)


_BOTH = {"version_policy"}
"""Fields of both, in different forms; Triton's has more than these in any case."""

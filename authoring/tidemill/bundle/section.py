"""A part of model.yaml: frozen, and every name in it known; knows no part in particular."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Count", "CountOrZero", "Section"]

Count: TypeAlias = Annotated[int, Field(strict=True, gt=0)]
CountOrZero: TypeAlias = Annotated[int, Field(strict=True, ge=0)]


class Section(BaseModel):
    """Fields by name; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

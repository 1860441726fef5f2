"""Talks written as the text that a model was trained on, by its Jinja template; the template is not trusted.

It is rendered as transformers does (`trim_blocks`, `lstrip_blocks`, `raise_exception`, `strftime_now`, `tojson`), in
Jinja's sandbox, within limits of size and time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigError, InvalidArgument

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["ChatTemplate"]

_MOST_TEMPLATE = 256 << 10
_MOST_TEXT = 4 << 20
_MOST_SECONDS = 2.0


class ChatTemplate:
    """A template of talks."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Compile a template.

        Args:
            source: What it is.
            clock: Seconds.

        Raises:
            ConfigError: It is no template, is too long, or the jinja2 package is missing.
        """
        if len(source) > _MOST_TEMPLATE:
            raise ConfigError(f"the chat template has {len(source)} characters, at most {_MOST_TEMPLATE} are taken")
        self._template = _compiled(source)
        self._clock = clock

    @classmethod
    def open(cls, path: Path) -> ChatTemplate | None:
        """Read a template; None if there is no such file.

        Raises:
            ConfigError: It is no template.
        """
        return cls(path.read_text(encoding="utf-8")) if path.is_file() else None

    def render(self, messages: Sequence[Mapping[str, Any]], names: Mapping[str, str] | None = None) -> str:
        """The text of a talk, up to where the model is to go on.

        Args:
            messages: Each with `role` and `content`.
            names: More names that the template may use, such as `bos_token`.

        Raises:
            InvalidArgument: The template refuses these messages, or takes too long for them.
        """
        from jinja2 import TemplateError

        began, parts, size = self._clock(), [], 0
        try:
            for part in self._template.generate(messages=messages, add_generation_prompt=True, **(names or {})):
                parts.append(part)
                size += len(part)
                if size > _MOST_TEXT or self._clock() - began > _MOST_SECONDS:
                    raise InvalidArgument("messages: written by the chat template they are too long")
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise InvalidArgument(f"messages: the model's chat template refuses them: {error}") from None
        return "".join(parts)


def _compiled(source: str) -> Template:
    try:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ConfigError("chat templates need the jinja2 package: pip install 'tidemill[generation]'") from None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise ConfigError(f"the chat template is no Jinja template: {error}") from None


def _refuse(message: str) -> str:
    raise ValueError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Without the escapes for HTML that Jinja's own makes."""
    return json.dumps(value, ensure_ascii=False, indent=indent)

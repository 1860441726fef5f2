"""How a request's parameters say what is to be generated; knows no wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.errors import InvalidArgument
from tidemill.generation.request import GenerationRequest, SamplingOptions
from tidemill.protocol.types import Parameter
from tidemill.repository.text_model import TextModel

__all__ = ["read_parameters"]

_NUMBERS = {
    "temperature": float,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "top_k": int,
    "seed": int,
    "max_tokens": int,
    "min_tokens": int,
    "ignore_eos": bool,
    "stop": str,
}
_SAMPLING = set(SamplingOptions.__dataclass_fields__)


def read_parameters(parameters: Mapping[str, Parameter], prompt: Sequence[int], model: TextModel) -> GenerationRequest:
    """What is wanted, by the names of the fields of `GenerationRequest` and `SamplingOptions`; others are ignored.

    Args:
        parameters: The request's parameters; `stop` is one text.
        prompt: The tokens to begin with.
        model: Says what holds for what is not said.

    Raises:
        InvalidArgument: A value is of the wrong type or out of range; the message names it.
        PromptTooLong: There is no room for so much.
    """
    given: dict[str, Any] = {
        name: _value(name, parameters[name], kind) for name, kind in _NUMBERS.items() if name in parameters
    }
    defaults = {"temperature": model.config.temperature, "top_p": model.config.top_p}
    sampling = SamplingOptions(**(defaults | {name: value for name, value in given.items() if name in _SAMPLING}))
    return GenerationRequest(
        tuple(prompt),
        model.room(prompt, given.get("max_tokens")),
        min_tokens=given.get("min_tokens", 0),
        stop=(given["stop"],) if "stop" in given else (),
        ignore_eos=given.get("ignore_eos", False),
        sampling=sampling,
    )


def _value(name: str, value: Parameter, kind: type) -> Parameter:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise InvalidArgument(f"parameter {name!r} is {value!r}, expected {_NAMES[kind]}")
    return value


_NAMES = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}

"""What callers pass to `infer`, as a request; knows no transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from tidemill.client.attempts import Policy
from tidemill.client.settings import Settings
from tidemill.dtype import DType
from tidemill.errors import ConfigError, InvalidArgument
from tidemill.protocol.types import Array, InferRequest, Parameter, RequestedOutput

__all__ = ["InferOptions", "as_tensor", "build_policy", "build_request"]

_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end", "priority")


class InferOptions(TypedDict, total=False):
    """What `infer` takes besides the inputs, all by name.

    Attributes:
        version: The version to ask; the newest by default.
        outputs: The outputs to return; all by default.
        id: An id that shows in the server's logs, and in errors.
        parameters: The request's parameters.
        sequence_id: The sequence that the request belongs to, for models that keep state.
        sequence_start: Whether it is the sequence's first request.
        sequence_end: Whether it is its last.
        priority: The request's priority, 1 for the highest.
        timeout: Seconds for the whole call, repetitions included; the server drops the request then. None for no limit.
        retries: How often to repeat the call if it did not run: no connection, or refused with 503 or UNAVAILABLE.
        repeatable: Whether it may also be repeated where it may have run: the connection broke, a proxy gave up.
    """

    version: str | int
    outputs: Sequence[str]
    id: str
    parameters: Mapping[str, Parameter]
    sequence_id: int | str
    sequence_start: bool
    sequence_end: bool
    priority: int
    timeout: float | None
    retries: int
    repeatable: bool


_OPTIONS = frozenset(InferOptions.__annotations__)


def build_policy(options: InferOptions, settings: Settings) -> Policy:
    """What a call allows; the settings say what the options do not.

    Raises:
        ConfigError: The timeout is not above 0.
        TypeError: There is an option of another name.
    """
    if unknown := options.keys() - _OPTIONS:
        raise TypeError(f"infer has no option {sorted(unknown)[0]!r}; it has {', '.join(sorted(_OPTIONS))}")
    timeout = options.get("timeout", settings.timeout)
    if timeout is not None and not timeout > 0:
        raise ConfigError(f"timeout is {timeout}, expected seconds above 0, or None for no limit")
    return Policy(timeout, options.get("retries", settings.retries), options.get("repeatable", False))


def build_request(
    model: str, inputs: Mapping[str, Any], options: InferOptions | None = None, timeout: float | None = None
) -> InferRequest:
    """Turn the arguments of `infer` into a request; the server is told the timeout, so that it gives up too.

    Raises:
        InvalidArgument: An input is no tensor (ragged lists, complex numbers, dates); the message names it.
    """
    given = options or {}
    parameters: dict[str, Parameter] = dict(given.get("parameters") or {})
    for name in _SEQUENCE:
        if name in given:
            parameters[name] = given[name]  # type: ignore[literal-required]
    if timeout is not None:
        parameters.setdefault("timeout", max(1, int(timeout * 1_000_000)))
    return InferRequest(
        model_name=model,
        model_version=str(given.get("version", "")),
        id=given.get("id", ""),
        inputs={name: as_tensor(name, value) for name, value in inputs.items()},
        outputs=tuple([RequestedOutput(name, binary=True) for name in given.get("outputs", ())]),
        parameters=parameters,
    )


def as_tensor(name: str, value: Any) -> Array:
    """One input as an array: numpy's own as it is, DLPack's without a copy, lists and numbers by numpy's rules.

    Raises:
        InvalidArgument: It is no tensor, or lies on a device that numpy cannot read.
    """
    try:
        array = value if type(value) is np.ndarray else _converted(value)
        DType.from_numpy(array.dtype)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InvalidArgument(f"input {name!r} cannot be sent as a tensor: {error}") from error
    return array


def _converted(value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array has elements without a value; fill them first")
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return np.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype.kind in "SU" and not isinstance(value, np.ndarray):
        # numpy would drop zero bytes at the end of an element, and write numbers beside texts as texts.
        return np.array(value, dtype=object)
    return array

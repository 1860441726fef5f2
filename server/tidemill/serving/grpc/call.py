"""One RPC from bytes to bytes: messages read and written, errors turned into statuses; knows no RPC in particular."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from tidemill.errors import InvalidArgument, TidemillError
from tidemill.protocol import rpc
from tidemill.protocol.status import status_of
from tidemill.serving.request_id import CURRENT, HEADER, read_request_id, tell_unexpected

__all__ = ["Answer", "Context", "answered", "carrier_of", "read_message", "told", "write_message"]

_LOG = logging.getLogger("tidemill.grpc")
_METHODS = {method.name: method for method in rpc.METHODS}

Context: TypeAlias = Any
Answer: TypeAlias = Callable[[bytes, Context], Awaitable[Any]]


def carrier_of(context: Context) -> dict[str, str]:
    """The metadata of a call that is text."""
    pairs = context.invocation_metadata() or ()
    return {name: value for name, value in pairs if isinstance(value, str)}


def read_message(method: str, data: bytes) -> Any:
    """The request message of a method; InvalidArgument if the bytes are none."""
    try:
        return _METHODS[method].request.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(f"the request is no {method}Request: {error}") from None


def write_message(method: str, **fields: Any) -> Any:
    """The response message of a method."""
    return _METHODS[method].response(**fields)


def told(error: Exception) -> tuple[Any, str]:
    """The status code and text that answer an error; what is no TidemillError is logged and told to nobody."""
    if isinstance(error, TidemillError):
        return grpc.StatusCode[status_of(error).grpc], str(error)
    return grpc.StatusCode.INTERNAL, tell_unexpected(_LOG, error)


def answered(answer: Answer) -> Callable[[bytes, Context], Awaitable[bytes]]:
    """A handler that answers with a message, which may be written already, or with a status."""

    async def handle(data: bytes, context: Context) -> bytes:
        try:
            message = await answer(data, context)
            return message if isinstance(message, bytes) else bytes(message.SerializeToString())
        except Exception as error:
            CURRENT.set(read_request_id(carrier_of(context).get(HEADER)))
            code, text = told(error)
        await context.abort(code, text)
        raise AssertionError("abort always raises")

    return handle

"""What each error code is called on each wire, and back; the one table between errors and transports."""

from __future__ import annotations

from typing import NamedTuple

from tidemill import errors
from tidemill.errors import TidemillError

__all__ = ["GRPC_CODES", "STATUSES", "Status", "error_from_grpc", "error_from_http", "status_of"]

# gRPC's own names for the numbers of grpc-status.
GRPC_CODES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


class Status(NamedTuple):
    """An error's face: the HTTP status and the name of the gRPC status code."""

    http: int
    grpc: str


STATUSES: dict[str, Status] = {
    "invalid_argument": Status(400, "INVALID_ARGUMENT"),
    "unprocessable": Status(422, "INVALID_ARGUMENT"),
    "unauthenticated": Status(401, "UNAUTHENTICATED"),
    "not_found": Status(404, "NOT_FOUND"),
    "already_exists": Status(409, "ALREADY_EXISTS"),
    "too_large": Status(413, "RESOURCE_EXHAUSTED"),
    "unsupported_encoding": Status(415, "UNIMPLEMENTED"),
    "cancelled": Status(499, "CANCELLED"),
    "internal": Status(500, "INTERNAL"),
    "inference_failed": Status(500, "INTERNAL"),
    "load_failed": Status(400, "INVALID_ARGUMENT"),
    "invalid_config": Status(400, "INVALID_ARGUMENT"),
    "unsupported": Status(501, "UNIMPLEMENTED"),
    "unavailable": Status(503, "UNAVAILABLE"),
    "deadline_exceeded": Status(504, "DEADLINE_EXCEEDED"),
}

# Besides tidemill's own statuses, those that proxies and other servers of the protocol are known to answer.
_FROM_HTTP: dict[int, type[TidemillError]] = {
    400: errors.InvalidArgument,
    401: errors.Unauthenticated,
    403: errors.Unauthenticated,
    404: errors.NotFound,
    405: errors.Unsupported,
    408: errors.DeadlineExceeded,
    409: errors.AlreadyExists,
    413: errors.TooLarge,
    415: errors.UnsupportedEncoding,
    422: errors.UnprocessableInput,
    429: errors.Unavailable,
    499: errors.Cancelled,
    500: errors.InferenceFailed,
    501: errors.Unsupported,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.DeadlineExceeded,
}

_FROM_GRPC: dict[str, type[TidemillError]] = {
    "ALREADY_EXISTS": errors.AlreadyExists,
    "CANCELLED": errors.Cancelled,
    "DEADLINE_EXCEEDED": errors.DeadlineExceeded,
    "FAILED_PRECONDITION": errors.InvalidArgument,
    "INTERNAL": errors.InferenceFailed,
    "INVALID_ARGUMENT": errors.InvalidArgument,
    "NOT_FOUND": errors.NotFound,
    "OUT_OF_RANGE": errors.InvalidArgument,
    "PERMISSION_DENIED": errors.Unauthenticated,
    "RESOURCE_EXHAUSTED": errors.TooLarge,
    "UNAUTHENTICATED": errors.Unauthenticated,
    "UNAVAILABLE": errors.Unavailable,
    "UNIMPLEMENTED": errors.Unsupported,
}


def status_of(error: TidemillError) -> Status:
    """The status that answers `error`; a code without a row is an internal error."""
    return STATUSES.get(error.code, STATUSES["internal"])


def error_from_http(status: int, text: str) -> TidemillError:
    """The exception behind an HTTP status, carrying the server's text."""
    fallback = errors.InvalidArgument if 400 <= status < 500 else TidemillError
    return _FROM_HTTP.get(status, fallback)(text)


def error_from_grpc(name: str, text: str) -> TidemillError:
    """The exception behind a gRPC status code such as "NOT_FOUND", carrying the server's text."""
    return _FROM_GRPC.get(name, TidemillError)(text)

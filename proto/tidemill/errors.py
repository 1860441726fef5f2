"""Everything that tidemill raises at run time, as one tree; knows no transport.

    TidemillError
    ├── InvalidArgument          the request is wrong
    │   ├── PromptTooLong        more tokens than the model has room for
    │   └── UnprocessableInput   well-formed, but the model refuses these values
    ├── NotFound
    │   ├── ModelNotFound
    │   └── VersionNotFound
    ├── AlreadyExists
    ├── TooLarge                 over a configured limit
    ├── UnsupportedEncoding      a content encoding that is not spoken
    ├── Unauthenticated
    ├── Unsupported              not offered by this server or build
    ├── Unavailable              try again later
    │   ├── ModelNotReady
    │   ├── QueueFull
    │   └── ShuttingDown
    ├── DeadlineExceeded
    ├── Cancelled
    ├── InferenceFailed          the run itself broke
    ├── LoadFailed
    │   ├── InvalidBundle
    │   └── MissingArtifact      what was to be compiled ahead of time was not
    └── ConfigError
        └── PrecisionLost        fewer bits cost more exactness than is allowed

Authoring code raises TypeError and ValueError at the wrong line instead.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "Cancelled",
    "ConfigError",
    "DeadlineExceeded",
    "InferenceFailed",
    "InvalidArgument",
    "InvalidBundle",
    "LoadFailed",
    "MissingArtifact",
    "ModelNotFound",
    "ModelNotReady",
    "NotFound",
    "PrecisionLost",
    "PromptTooLong",
    "QueueFull",
    "ShuttingDown",
    "TidemillError",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "UnprocessableInput",
    "Unsupported",
    "UnsupportedEncoding",
    "VersionNotFound",
]


class TidemillError(Exception):
    """The root; `code` is stable and is what faces, metrics and clients go by."""

    code: ClassVar[str] = "internal"


class InvalidArgument(TidemillError, ValueError):
    """The request contradicts the protocol or the model's signature."""

    code = "invalid_argument"


class PromptTooLong(InvalidArgument):
    """The prompt and what is to be generated have no room in the model's cache."""


class UnprocessableInput(InvalidArgument):
    """The request is well formed, but the model cannot compute with these values."""

    code = "unprocessable"


class NotFound(TidemillError):
    """What was named does not exist."""

    code = "not_found"


class ModelNotFound(NotFound):
    """No served model has this name."""


class VersionNotFound(NotFound):
    """The model exists, this version does not."""


class AlreadyExists(TidemillError):
    """What was to be created is there already."""

    code = "already_exists"


class TooLarge(TidemillError):
    """A size is over the configured limit; the message names both."""

    code = "too_large"


class UnsupportedEncoding(TidemillError):
    """The body's content encoding is not spoken."""

    code = "unsupported_encoding"


class Unauthenticated(TidemillError):
    """The key is missing or wrong."""

    code = "unauthenticated"


class Unsupported(TidemillError):
    """The feature is not offered by this server, model or build."""

    code = "unsupported"


class Unavailable(TidemillError):
    """The server cannot take the request now; the same request may succeed later."""

    code = "unavailable"


class ModelNotReady(Unavailable):
    """The model exists and is loading, failed or draining."""


class QueueFull(Unavailable):
    """The model's queue is at its limit."""


class ShuttingDown(Unavailable):
    """The server is stopping."""


class DeadlineExceeded(TidemillError):
    """The request's deadline passed before it was answered."""

    code = "deadline_exceeded"


class Cancelled(TidemillError):
    """The caller went away."""

    code = "cancelled"


class InferenceFailed(TidemillError):
    """The run failed for a reason that does not lie in the request."""

    code = "inference_failed"


class LoadFailed(TidemillError):
    """A model could not be brought up; the message names the cause."""

    code = "load_failed"


class InvalidBundle(LoadFailed):
    """The bundle's files contradict each other or its manifest."""


class MissingArtifact(LoadFailed):
    """Only models compiled ahead of time may be loaded, and this one was not."""


class ConfigError(TidemillError):
    """A configuration file or flag is wrong; the message names the field."""

    code = "invalid_config"


class PrecisionLost(ConfigError):
    """A model in fewer bits is further from the original than the stated bound."""

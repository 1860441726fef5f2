"""What the operator decides about a server: file < environment < flags; knows nothing of models."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tidemill.errors import ConfigError

__all__ = ["ENV_PREFIX", "ServerConfig", "load_server_config", "read_yaml"]

ENV_PREFIX = "TIDEMILL_"


class ServerConfig(BaseModel):
    """The settings of one server; every one has a default and can be set in a file, by TIDEMILL_<NAME> or by a flag."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="The address that both faces listen on.")
    http_port: int = Field(8000, ge=0, le=65535, description="The port of REST; 0 takes a free one.")
    grpc_port: int = Field(8001, ge=0, le=65535, description="The port of gRPC; 0 takes a free one.")
    max_request_bytes: int = Field(
        512 << 20, gt=0, lt=1 << 31, description="The largest request, after decompression; larger ones get 413."
    )
    max_inflight: int = Field(
        4096, gt=0, description="Requests in the server at one time; further ones get 503 at once."
    )
    read_timeout_seconds: float = Field(
        60.0, gt=0, description="How long a request's head may take over REST, and its body may stand still; then 408."
    )
    stuck_after_seconds: float = Field(
        300.0,
        ge=0,
        description="How long a run may take before its model counts as stuck and the server as not "
        "ready, until it ends; 0 for any time.",
    )
    drain_window_seconds: float = Field(
        0.0, ge=0, description="How long to go on serving after SIGTERM, while readiness is already false."
    )
    drain_limit_seconds: float = Field(
        30.0, ge=0, description="How long requests in flight may take to finish after the window."
    )
    strict_readiness: bool = Field(
        True, description="Ready only if there are models and all of them are; else as soon as loading is over."
    )
    model_control: Literal["none", "explicit", "poll"] | None = Field(
        None,
        description="Whether callers may load and unload models (explicit), or the repositories are watched (poll); "
        "if not set, callers may on a loopback host and not beyond.",
    )
    load_models: tuple[str, ...] | None = Field(
        None, description="The models to load at the start; all of them if not set. Callers can load the others."
    )
    poll_seconds: float = Field(
        15.0, gt=0, description="How often watched repositories are looked at (model_control: poll)."
    )
    settings_control: bool | None = Field(
        None,
        description="Whether callers may change log and trace settings; if not set, on a loopback host and not beyond.",
    )
    system_shared_memory: bool = Field(
        False,
        description="Whether callers may register shared memory; a caller can read what this process could.",
    )
    http_fast_lane: bool = Field(
        True, description="Whether plain infer requests over REST bypass the web framework; the answers are the same."
    )
    artifact_dir: Path | None = Field(
        None,
        description="Where optimised graphs are kept, so that the next start need not optimise; nowhere if not set.",
    )
    precompiled: bool = Field(
        False, description="Load only models whose optimised graph is in artifact_dir already; compile nothing."
    )
    cache_bytes: int = Field(
        0, ge=0, description="Memory for answers of models with response_cache; 0 keeps none in this process."
    )
    cache_redis: str | None = Field(
        None, description="The URL of a Redis server that keeps those answers instead, for several servers."
    )
    grpc_fast_lane: bool = Field(
        False,
        description="Whether gRPC's port is served by tidemill's own HTTP/2, which answers ModelInfer itself and hands "
        "every other call to grpcio; not with TLS.",
    )
    allow_code: bool = Field(
        False, description="Whether pipeline.py files of the repositories are run: they may do what this process may."
    )
    keys_file: Path | None = Field(
        None, description="A YAML file with the API keys of each group; it is read again when it changes."
    )
    tls_certificate: Path | None = Field(
        None, description="The server's certificate chain as PEM, for both faces; it is read again when it changes."
    )
    tls_key: Path | None = Field(None, description="The private key of the certificate as PEM.")
    tls_client_ca: Path | None = Field(
        None, description="Authorities as PEM; clients must then show a certificate of one of them."
    )
    otlp_endpoint: str | None = Field(
        None,
        description="The OpenTelemetry collector that spans of requests and batches are sent to over OTLP/HTTP, such "
        "as http://collector:4318; OTEL_EXPORTER_OTLP_ENDPOINT does the same. Requests take the normal lanes then.",
    )
    trace_sampling: float = Field(
        1.0, ge=0, le=1, description="The share of requests that leave a trace, where the caller has not decided it."
    )
    recorded_requests: int = Field(
        1000,
        ge=0,
        description="How many of the last requests /v2/requests tells of: their shapes and times, no values.",
    )
    request_log: Literal["none", "failed", "all"] = Field(
        "none", description="Which requests leave a line in the log. With all, requests take the normal lanes."
    )
    console: bool = Field(True, description="Whether the page at / shows the models and how they fare.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least level logged.")
    log_format: Literal["text", "json"] = Field("text", description="One line of text or one JSON object an event.")

    @field_validator("load_models", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        """Names from the environment or a flag, separated by commas."""
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key are given together or not at all")
        if self.precompiled and not self.artifact_dir:
            raise ValueError("precompiled needs artifact_dir: where the compiled models are")
        if self.tls_client_ca and not self.tls_certificate:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key")
        return self

    @property
    def effective_model_control(self) -> Literal["none", "explicit", "poll"]:
        """`model_control`, decided by the host if it is not set."""
        return self.model_control or ("explicit" if self.is_loopback else "none")

    @property
    def may_change_settings(self) -> bool:
        """`settings_control`, decided by the host if it is not set."""
        return self.is_loopback if self.settings_control is None else self.settings_control

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def load_server_config(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """Read the settings from all three sources.

    Args:
        path: A YAML file.
        environ: Environment variables; those that start with TIDEMILL_ and name a setting count.
        flags: Settings by name; None values were not given.

    Raises:
        ConfigError: The file cannot be read, or a setting is unknown or out of range; the message names the field and
            where it came from.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    sources = (
        (str(path), read_yaml(path) if path else {}),
        ("environment", _from_environment(environ or {})),
        ("flag", {name: value for name, value in (flags or {}).items() if value is not None}),
    )
    for source, settings in sources:
        values |= settings
        origin |= dict.fromkeys(settings, source)
    try:
        return ServerConfig(**values)
    except ValidationError as error:
        raise ConfigError("; ".join(_told(fault, origin) for fault in error.errors())) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A file of `name: value`.

    Raises:
        ConfigError: It cannot be read or holds something else.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # Not the error's own text, which quotes the file: it may hold keys.
        where = f" (line {mark.line + 1})" if (mark := getattr(error, "problem_mark", None)) else ""
        raise ConfigError(f"{path} is not YAML{where}") from None
    if content is not None and not isinstance(content, dict):
        raise ConfigError(f"{path} must hold settings as `name: value`, not a {type(content).__name__}")
    return {str(name): value for name, value in (content or {}).items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    # Kubernetes sets <SERVICE>_PORT and the like for every Service, so an unknown TIDEMILL_* is not an error.
    named = {name: environ.get(ENV_PREFIX + name.upper()) for name in ServerConfig.model_fields}
    return {name: value for name, value in named.items() if value is not None}


def _told(fault: Any, origin: Mapping[str, str]) -> str:
    if not fault["loc"]:  # about several settings together
        return str(fault["ctx"]["error"])
    name = str(fault["loc"][0])
    where = f" (from {origin[name]})" if name in origin else ""
    if fault["type"] == "extra_forbidden":
        return f"unknown setting {name!r}{where}; known are {', '.join(ServerConfig.model_fields)}"
    return f"setting {name!r}{where} is {fault['input']!r}: {fault['msg']}"

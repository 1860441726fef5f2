"""How a client connects, as data, and the environment variables that say it; opens nothing."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.errors import ConfigError

__all__ = ["Settings"]

_DEFAULT_URL = "http://localhost:8000"
_FORBIDDEN = frozenset("\r\n\0")


@dataclass(frozen=True)
class Settings:
    """How to reach a server; docs/client.md lists the environment variables behind `from_environment`.

    Attributes:
        url: `http://`, `https://`, `grpc://` or `grpcs://`.
        api_key: Sent with every request as `X-API-Key`; "" for none.
        headers: Sent with every request, as HTTP headers or gRPC metadata.
        timeout: Seconds for a whole call with its repetitions, where a call gives none; None for no limit.
        retries: How often a call that did not run is repeated, where a call gives no number.
        binary: Whether tensors travel over HTTP as binary data; MLServer, for one, reads JSON only.
        ca: A PEM file of the authorities to trust instead of the system's; "" for those.
        certificate: A PEM file with the certificate to show, where the server asks for one.
        certificate_key: Its key, if that is a file of its own.
    """

    url: str = _DEFAULT_URL
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float | None = None
    retries: int = 2
    binary: bool = True
    ca: str = ""
    certificate: str = ""
    certificate_key: str = ""

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError(f"timeout is {self.timeout}, expected seconds above 0, or None for no limit")
        if self.retries < 0:
            raise ConfigError(f"retries is {self.retries}, expected 0 or more")
        for name, value in self.sent().items():
            if not name or _FORBIDDEN & set(name + value):
                raise ConfigError(f"header {name!r} holds a line break or a zero byte, or has no name")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """What TIDEMILL_URL, TIDEMILL_API_KEY, TIDEMILL_TIMEOUT and their like say; defaults for the rest.

        Raises:
            ConfigError: A variable is no number where one is expected.
        """
        read = environment.get
        urls = read("TIDEMILL_URL", "").split()
        timeout = _number(environment, "TIDEMILL_TIMEOUT")
        retries = _number(environment, "TIDEMILL_RETRIES")
        return cls(
            url=urls[0] if urls else _DEFAULT_URL,
            api_key=read("TIDEMILL_API_KEY", ""),
            timeout=timeout,
            retries=cls.retries if retries is None else int(retries),
            binary=read("TIDEMILL_BINARY", "true").lower() not in ("false", "0", "no"),
            ca=read("TIDEMILL_CA", ""),
            certificate=read("TIDEMILL_CLIENT_CERTIFICATE", ""),
            certificate_key=read("TIDEMILL_CLIENT_KEY", ""),
        )

    def sent(self) -> dict[str, str]:
        """What goes with every request, names in lower case."""
        key = {"x-api-key": self.api_key} if self.api_key else {}
        return key | {name.lower(): value for name, value in self.headers.items()}

    def tls(self) -> ssl.SSLContext:
        """The context of an encrypted HTTP connection; ConfigError if a file cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.certificate_key or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the certificates cannot be used: {error}") from error
        return context


def _number(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, expected a number") from None

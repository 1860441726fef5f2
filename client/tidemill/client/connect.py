"""Choose wire and transports for an address, and name the extra that is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from tidemill.client.address import Address, parse_address
from tidemill.client.call import Wire
from tidemill.client.settings import Settings

__all__ = ["open_transport", "open_wire", "settle"]


def settle(url: str, headers: Mapping[str, str] | None, settings: Settings | None) -> tuple[Settings, Address]:
    """What counts: the arguments of a client before its settings, those instead of the environment."""
    found = settings or Settings.from_environment()
    if headers:
        found = replace(found, headers={**found.headers, **headers})
    return found, parse_address(url or found.url)


def open_wire(address: Address, settings: Settings) -> Wire:
    """How to put questions there."""
    if address.is_grpc:
        wire: Wire = _load(address, "_core", "GrpcWire")()
    else:
        wire = _load(address, "_core", "HttpWire")(settings.binary)
    return wire


def open_transport(address: Address, settings: Settings, prefix: str = "") -> Any:
    """What moves the bytes; `prefix` "Async" for asyncio."""
    links = _load(address, "", "grpc_links" if address.is_grpc else "http_links")(address, settings)
    # Imported late, for it brings asyncio.
    transports = import_module("tidemill.client.transport")
    return getattr(transports, f"{prefix}Transport")(address, settings, links)


def _load(address: Address, file: str, name: str) -> Any:
    kind = "grpc" if address.is_grpc else "http"
    try:
        module = import_module(f"tidemill.client.{kind}{file}")
    except ModuleNotFoundError as error:
        extra = "grpc" if address.is_grpc else "client"
        raise ImportError(f'{address} needs {error.name}; install it with: pip install "tidemill[{extra}]"') from error
    return getattr(module, name)

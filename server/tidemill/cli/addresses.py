"""Servers' addresses on the command line: http:// and grpc://, or from the environment; opens clients for them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.client import Client

__all__ = ["add_headers", "addresses", "headers", "open_client"]

_VARIABLE = "TIDEMILL_URL"
_DEFAULT = "http://localhost:8000"
_KINDS = {"http": "http", "https": "http", "grpc": "grpc", "grpcs": "grpc"}


def addresses(given: Sequence[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The addresses of REST ("http") and gRPC ("grpc"); those given, else TIDEMILL_URL, else http://localhost:8000.

    Raises:
        ConfigError: An address is of another kind, has no host, or there are two of one kind.
    """
    found: dict[str, str] = {}
    for text in given or environment.get(_VARIABLE, "").split() or [_DEFAULT]:
        url = text if "://" in text else f"http://{text}"
        kind, host = _KINDS.get(urlsplit(url).scheme), urlsplit(url).hostname
        if kind is None or not host:
            raise ConfigError(f"{text!r} is no address; give http://HOST:PORT for REST or grpc://HOST:PORT for gRPC")
        if kind in found:
            raise ConfigError(f"two addresses of one kind: {found[kind]} and {url}")
        found[kind] = url.rstrip("/")
    return found


def open_client(url: str, sent: Mapping[str, str]) -> Client:
    """A client for one address; `sent` goes with every request."""
    from tidemill.client import Client

    address, *others = addresses([url] if url else []).values()
    if others:
        raise ConfigError(f"{_VARIABLE} holds two addresses; give the one to ask")
    return Client(address, headers=sent)


def add_headers(parser: argparse.ArgumentParser) -> None:
    """Declare --header."""
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="sent with every request, such as a key"
    )


def headers(args: argparse.Namespace) -> dict[str, str]:
    """What --header gave; ConfigError if it is not NAME=VALUE."""
    pairs = [text.partition("=") for text in args.header]
    for name, sign, value in pairs:
        if not name or not sign:
            raise ConfigError(f"--header is {name + sign + value!r}, expected NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}

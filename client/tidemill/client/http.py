"""How HTTP/1.1 is spoken with one server."""

from __future__ import annotations

from tidemill.client.address import Address
from tidemill.client.http1 import Http1Link, format_head
from tidemill.client.link import Links
from tidemill.client.settings import Settings

__all__ = ["http_links"]


def http_links(address: Address, settings: Settings) -> Links:
    """The links of connections to a server."""
    head = format_head(address.authority, settings.sent())
    return Links(lambda: Http1Link(address.path, head))

"""Header blocks of HTTP/2 as fields; knows no connection. Blocks seen before are looked up."""

from __future__ import annotations

from collections.abc import Mapping

from hpack import Decoder, HPACKError

from tidemill.protocol.bounded import Bounded
from tidemill.protocol.http2 import ConnectionFault, Fault

__all__ = ["HeaderBlocks"]

_LONGEST_KEPT = 1024


class HeaderBlocks:
    """The blocks of one connection."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._known: Bounded[bytes, Mapping[str, str]] = Bounded()

    def decode(self, block: bytes) -> Mapping[str, str]:
        """The fields of a block.

        Raises:
            ConnectionFault: It is none, or too long.
        """
        plain = not self._decoder.header_table.dynamic_entries
        found = self._known.get(block) if plain else None
        if found is not None:
            return found
        try:
            fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._raw(block)}
        except HPACKError as error:
            raise ConnectionFault(Fault.COMPRESSION_ERROR, f"its headers cannot be read: {error}") from error
        if plain and not self._decoder.header_table.dynamic_entries and len(block) <= _LONGEST_KEPT:
            self._known.put(block, fields)
        return fields

    def _raw(self, block: bytes) -> list[tuple[bytes, bytes]]:
        return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]

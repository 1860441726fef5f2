"""What a URL's content was when it was last fetched, as a small file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from tidemill.weights.durable import write_whole
from tidemill.weights.objectstore import RemoteFile

__all__ = ["Record", "read_record", "write_record"]


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a URL.

    Attributes:
        url: Without user, password and query.
        sha256: The content's digest as hex.
        size: Bytes.
        version: The store's mark of this content; None if it gave none.
    """

    url: str
    sha256: str
    size: int
    version: str | None

    def describes(self, file: RemoteFile) -> bool:
        """Whether a store's file surely has this content."""
        return self.version is not None and (self.version, self.size) == (file.version, file.size)


def read_record(path: Path) -> Record | None:
    """The record in a file; None if there is none or it is not one."""
    try:
        record = Record(**json.loads(path.read_bytes()))
        # The digest becomes a file name.
        return record if re.fullmatch("[0-9a-f]{64}", record.sha256) else None
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write_record(path: Path, record: Record) -> None:
    """Write a record whole."""
    path.parent.mkdir(exist_ok=True)
    write_whole(path, json.dumps(asdict(record), indent=1).encode())

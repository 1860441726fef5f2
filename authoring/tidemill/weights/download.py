"""One remote file brought into a file on disk, whole or with an error; knows no cache."""

from __future__ import annotations

import hashlib
import os
import shutil

from tidemill.weights.location import shown, split_url
from tidemill.weights.objectstore import FileChanged, ObjectStore, RemoteFile, StoreOptions
from tidemill.weights.progress import Progress
from tidemill.weights.transfer import transfer

__all__ = ["Source", "download"]

_TRIES_OF_A_CHANGING_FILE = 3


class Source:
    """A file at a URL.

    Attributes:
        url: Where, fit to be shown.
    """

    def __init__(self, url: str, options: StoreOptions | None = None) -> None:
        folder, self._name = split_url(url)
        self._store = ObjectStore(folder, options)
        self.url = shown(url)

    def stat(self) -> RemoteFile:
        """Its size and version; see `ObjectStore.stat`."""
        return self._store.stat(self._name)

    def copy_to(self, descriptor: int, file: RemoteFile, progress: Progress) -> None:
        """Write the file's bytes to an open file.

        Raises:
            FileChanged: It is not the file that was described.
        """
        with progress(self.url, file.size) as advance:

            def put(offset: int, part: memoryview) -> None:
                _write(descriptor, offset, part)
                advance(len(part))

            try:
                transfer(lambda *span: self._store.read_part(self._name, span, file), put, (0, file.size))
            except NotImplementedError:
                self._store.read_whole(self._name, put, file)


def download(source: Source, descriptor: int, progress: Progress) -> tuple[RemoteFile, str]:
    """Fill an empty, open file with the content of a remote one and bring it to the disk.

    A file that changes meanwhile is read anew, a few times.

    Returns:
        What was read, and its sha256 as hex.

    Raises:
        OSError: It could not be read or written; the message says which and why.
    """
    for remaining in reversed(range(_TRIES_OF_A_CHANGING_FILE)):
        file = source.stat()
        try:
            _reserve(source, descriptor, file.size)
            source.copy_to(descriptor, file, progress)
            break
        except FileChanged:
            if not remaining:
                raise
    os.fsync(descriptor)
    with open(descriptor, "rb", closefd=False) as content:
        content.seek(0)
        return file, hashlib.file_digest(content, "sha256").hexdigest()


def _reserve(source: Source, descriptor: int, size: int) -> None:
    """Take the room on the disk at once, so that a full one is found before the transfer."""
    try:
        os.ftruncate(descriptor, 0)
        if size:
            os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        free = shutil.disk_usage(descriptor).free
        raise OSError(
            error.errno, f"no room for the {size} bytes of {source.url}, {free} are free: {error.strerror}"
        ) from None


def _write(descriptor: int, offset: int, part: memoryview) -> None:
    while part:
        written = os.pwrite(descriptor, part, offset)
        part, offset = part[written:], offset + written

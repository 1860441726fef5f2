"""Files below a URL as a store: each is brought into the cache when first read, and mapped from there."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import quote

from tidemill.weights.cache import Cache, CachedFile
from tidemill.weights.location import file_name, split_url
from tidemill.weights.objectstore import ObjectStore
from tidemill.weights.store import LocalStore

__all__ = ["CachedStore"]


class CachedStore:
    """The files beside one at a URL.

    Args:
        cache: Where they are kept.
        url: One of the files.
    """

    def __init__(self, cache: Cache, url: str) -> None:
        self._cache = cache
        self._url = url
        self._folder, _ = split_url(url)
        self._files: dict[str, CachedFile] = {}
        self._blobs = LocalStore(cache.root / "blobs")

    def list(self) -> list[str]:
        """The names of the files, sorted; see `ObjectStore.list`."""
        return ObjectStore(self._folder, self._cache.options.store).list()

    def size(self, name: str) -> int:
        """The file's length in bytes; fetches it, as do all methods that name one. Raises as `Cache.fetch`."""
        return self.file(name).size

    def read(self, name: str, offset: int, length: int) -> memoryview:
        """A read-only view of the mapped file."""
        return self._blobs.read(self.file(name).sha256, offset, length)

    def file(self, name: str) -> CachedFile:
        """The file in the cache."""
        if name not in self._files:
            self._files[name] = self._cache.fetch(self.url(name))
        return self._files[name]

    def url(self, name: str) -> str:
        """Where the file of this name is; ValueError if the name leads elsewhere."""
        if name == file_name(self._url):
            return self._url
        if not name or PurePosixPath(name).name != name or "\\" in name:
            raise ValueError(f"{name!r} must be the name of a file beside {self._folder}")
        return f"{self._folder}/{quote(name) if self._folder.startswith('http') else name}"

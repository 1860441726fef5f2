"""Remote files kept on disk under their digest, shared by processes; knows no file format.

    blobs/<sha256>       a file's content, read-only; the time of its last change is that of its last use
    records/<key>.json   which content a URL had, and in which version; the key is the sha256 of the URL
    drafts/<key>         what is being fetched; locked by the one who fetches it
    folders/<key>/       bundles put together from blobs, by hard links

A blob appears by one rename after its bytes are on the disk, so that a process may end at any moment. What is in use is
locked by its user, and locks end with the process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.weights.download import Source, download
from tidemill.weights.durable import sync
from tidemill.weights.eviction import blobs_by_use, drop_blob, make_room, sweep_drafts
from tidemill.weights.lease import FileLock, claim, share
from tidemill.weights.objectstore import RemoteFile, StoreOptions
from tidemill.weights.progress import Progress, log_progress, progress_for
from tidemill.weights.record import Record, read_record, write_record

__all__ = ["Cache", "CacheOptions", "CachedFile", "DigestMismatch"]

_LOG = logging.getLogger("tidemill.weights")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class DigestMismatch(ValueError):
    """A remote file has other bytes than were asked for."""


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file of the cache.

    Attributes:
        path: Where it lies; never to be written to.
        sha256: The digest of its content as hex, which was compared when it was fetched.
        size: Bytes.
        lock: Keeps it from eviction as long as this object lives.
    """

    path: Path
    sha256: str
    size: int
    lock: FileLock


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """How a cache behaves.

    Attributes:
        limit_bytes: What its files may take together; None for no limit. The least recently used go first.
        store: How patient to be with stores.
        progress: What is shown while a file is fetched.
        pause_seconds: Between looks at a file that another process fetches.
    """

    limit_bytes: int | None = None
    store: StoreOptions = field(default_factory=StoreOptions)
    progress: Progress = log_progress
    pause_seconds: float = 0.1


class Cache:
    """A folder of fetched files.

    Args:
        root: The folder; made when first needed. One that cannot be written to serves what it has.
        options: How it behaves.
    """

    def __init__(
        self,
        root: Path,
        options: CacheOptions | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.root = root
        self.options = options or CacheOptions()
        self._sleep = sleep

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Cache:
        """The user's cache: TIDEMILL_CACHE, else ~/.cache/tidemill; limited by TIDEMILL_CACHE_LIMIT, such as "50GB".

        Raises:
            ValueError: The limit is not a number of bytes.
        """
        given = os.environ if environ is None else environ
        home = Path(given.get("XDG_CACHE_HOME") or Path(given.get("HOME", "~")).expanduser() / ".cache")
        limit = _parse_limit(given.get("TIDEMILL_CACHE_LIMIT", ""))
        root = Path(given.get("TIDEMILL_CACHE") or home / "tidemill")
        return cls(root, CacheOptions(limit_bytes=limit, progress=progress_for()))

    def fetch(self, url: str, sha256: str | None = None) -> CachedFile:
        """The file at a URL, from the cache if it is there.

        Several processes that want the same file fetch it once.

        Args:
            url: Where it is.
            sha256: What its digest must be. With it, a file that is there is found without asking the store.

        Raises:
            DigestMismatch: The file has another digest; nothing is kept.
            OSError: It cannot be read or there is no room for it; the message says why, and nothing is kept.
        """
        if sha256 is not None:
            if not re.fullmatch("[0-9a-f]{64}", sha256):
                raise ValueError(f"sha256 {sha256!r} must be 64 lower-case hex digits")
            if found := self._blob(sha256):
                return found
        source = Source(url, self.options.store)
        version = source.stat()
        while not (found := self._find(source, version, sha256)):
            digest = self._try_fetching(source, version, sha256)
            if digest is None:
                self._sleep(self.options.pause_seconds)
            sha256 = digest or sha256
        return found

    def folder(self, key: str, build: Callable[[Path], None]) -> Path:
        """A folder made of cached files, built once.

        Args:
            key: What the folder's content follows from; letters and digits.
            build: Fills the folder. What it links from the cache must be locked by the caller, so that it stays.
        """
        target = self.root / "folders" / key
        while not target.is_dir():
            with self._draft(key) as draft:
                if draft is None:
                    self._sleep(self.options.pause_seconds)
                elif not target.is_dir():
                    _build(target, build)
        return target

    def blobs(self) -> list[Path]:
        """The files, the least recently used first; each is named by its sha256."""
        return blobs_by_use(self.root)

    def records(self) -> list[Record]:
        """What is known of URLs."""
        folder = self.root / "records"
        found = (read_record(path) for path in sorted(folder.glob("*.json")))
        return [record for record in found if record]

    def remove(self, sha256: str) -> bool:
        """Remove a file and what was put together from it; False if it is in use."""
        sweep_drafts(self.root)
        return drop_blob(self.root, self.root / "blobs" / sha256)

    def faulty(self) -> list[Path]:
        """The files whose content has not the digest any more that they are named by; reads all bytes."""
        return [blob for blob in self.blobs() if _digest(blob) != blob.name]

    def _find(self, source: Source, version: RemoteFile, sha256: str | None) -> CachedFile | None:
        if sha256 is not None:
            return self._blob(sha256)
        record = read_record(self._record_path(source))
        return self._blob(record.sha256) if record and record.describes(version) else None

    def _blob(self, sha256: str) -> CachedFile | None:
        path = self.root / "blobs" / sha256
        lock = share(path)
        if lock is None:
            return None
        with suppress(OSError):  # a cache that is only read keeps no order of use
            os.utime(lock.descriptor)
        return CachedFile(path, sha256, os.fstat(lock.descriptor).st_size, lock)

    def _try_fetching(self, source: Source, version: RemoteFile, sha256: str | None) -> str | None:
        """The digest of the fetched file; None if another process fetches it, or did so just now."""
        with self._draft(_key(source.url)) as draft:
            if draft is None:
                _LOG.debug("another process is fetching %s", source.url)
                return None
            if self._find(source, version, sha256):
                return None
            return self._fetch_into(draft, source, version, sha256)

    def _fetch_into(self, draft: FileLock, source: Source, version: RemoteFile, sha256: str | None) -> str:
        make_room(self.root, self.options.limit_bytes, version.size)
        found, digest = download(source, draft.descriptor, self.options.progress)
        if sha256 is not None and digest != sha256:
            raise DigestMismatch(f"{source.url} has sha256 {digest}, expected {sha256}; nothing of it was kept")
        write_record(self._record_path(source), Record(source.url, digest, found.size, found.version))
        blob = self.root / "blobs" / digest
        blob.parent.mkdir(exist_ok=True)
        os.fchmod(draft.descriptor, 0o444)
        draft.path.replace(blob)
        sync(blob.parent)
        return digest

    @contextmanager
    def _draft(self, key: str) -> Iterator[FileLock | None]:
        folder = self.root / "drafts"
        folder.mkdir(parents=True, exist_ok=True)
        draft = claim(folder / key, create=True)
        try:
            yield draft
        finally:
            if draft:
                if draft.is_current():
                    draft.path.unlink()
                draft.release()

    def _record_path(self, source: Source) -> Path:
        return self.root / "records" / f"{_key(source.url)}.json"


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(target: Path, build: Callable[[Path], None]) -> None:
    """Only the holder of the draft of the folder's key may do this."""
    aside = target.with_name(f".{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    build(aside)
    for file in aside.rglob("*"):
        sync(file)
    aside.rename(target)
    sync(target.parent)


def _parse_limit(text: str) -> int | None:
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]?)B?", text.strip().upper())
    if not found:
        raise ValueError(f'TIDEMILL_CACHE_LIMIT is {text!r}, expected a number of bytes such as "50GB"')
    return int(float(found[1]) * _UNITS[found[2]])

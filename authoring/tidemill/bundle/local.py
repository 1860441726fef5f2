"""A bundle whose weights lie elsewhere, made complete on this machine; knows neither onnx nor pydantic."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidemill.bundle.manifest import MANIFEST_FILE
from tidemill.bundle.stored import StoredBundle, file_entry, open_bundle
from tidemill.errors import InvalidBundle, LoadFailed
from tidemill.weights.cache import Cache, CachedFile, DigestMismatch

__all__ = ["make_local"]


def make_local(bundle: StoredBundle, cache: Cache | None = None) -> StoredBundle:
    """The same bundle with all its files in one folder.

    Files that are absent are fetched into the cache and compared with their digests. As ONNX Runtime refuses data that
    lies outside of the graph's folder, the bundle is put together in the cache, of hard links and copies of graphs.

    Args:
        bundle: Any bundle; one with nothing absent is returned as it is.
        cache: The user's cache by default.

    Returns:
        The bundle to load. While it lives, what it needs is not evicted.

    Raises:
        LoadFailed: A file cannot be fetched; the message says why.
        InvalidBundle: A fetched file is not what the bundle says, or a file of the folder is not.
    """
    if not bundle.absent:
        return bundle
    try:
        cache = cache or Cache.from_environment()
        fetched = {name: _fetch(cache, bundle, name) for name in bundle.absent}
        key = hashlib.sha256(bundle.manifest.to_json().encode()).hexdigest()
        folder = cache.folder(key, lambda target: _assemble(target, bundle, fetched))
    except DigestMismatch as error:
        raise InvalidBundle(f"{bundle.path}: {error}") from None
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise LoadFailed(f"{bundle.path}: {error}") from None
    return replace(open_bundle(folder), held=tuple(fetched.values()))


def _fetch(cache: Cache, bundle: StoredBundle, name: str) -> CachedFile:
    entry = bundle.manifest.files[name]
    return cache.fetch(entry.url or "", entry.sha256)


def _assemble(target: Path, bundle: StoredBundle, fetched: Mapping[str, CachedFile]) -> None:
    for name, entry in bundle.manifest.files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if name in fetched:
            _link(fetched[name].path, target / name)
            continue
        shutil.copyfile(bundle.path / name, target / name)
        if not file_entry(target / name).has_content_of(entry):
            raise InvalidBundle(f"{bundle.path}: {name} has not the sha256 {entry.sha256}; write the bundle again")
    (target / MANIFEST_FILE).write_text(bundle.manifest.to_json(), encoding="utf-8")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # the file system has no hard links
        shutil.copyfile(source, target)

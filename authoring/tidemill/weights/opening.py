"""Any checkpoint as a mapping from names to arrays: chosen by the place's form and ending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path

from tidemill.weights.cache import Cache
from tidemill.weights.cached_store import CachedStore
from tidemill.weights.checkpoint import Checkpoint
from tidemill.weights.gguf_file import GgufFile
from tidemill.weights.location import file_name, is_url
from tidemill.weights.npz_file import read_npz
from tidemill.weights.rename import check_rename, expand_rename
from tidemill.weights.safetensors import Array
from tidemill.weights.torch_file import TORCH_SUFFIXES, read_torch

__all__ = ["Renamed", "open_checkpoint"]


class Renamed(Mapping[str, Array]):
    """A mapping under other names; a renamed key is no longer seen under its own."""

    def __init__(self, arrays: Mapping[str, Array], rename: Mapping[str, str]) -> None:
        self._arrays = arrays
        keys = expand_rename(rename, arrays)
        gone = set(keys.values())
        self._keys = {key: key for key in arrays if key not in gone} | keys

    def __getitem__(self, name: str) -> Array:
        return self._arrays[self._keys[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def open_checkpoint(
    place: str | PathLike[str], *, rename: Mapping[str, str] | None = None, cache: Cache | None = None
) -> Mapping[str, Array]:
    """Open a checkpoint wherever it lies and whatever wrote it.

    Args:
        place: A path or URL of a safetensors file, an `*.index.json` over several, a GGUF file, a PyTorch checkpoint
            or a .npz; or a local folder with one of the former two.
        rename: Wanted name to the key in the files, with patterns as in `tidemill.weights.rename`.
        cache: Where remote files are kept; the user's cache by default.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: It cannot be read.
        ValueError: It is malformed, or has an ending that is not known.
    """
    check_rename(rename or {})
    if not is_url(place):
        return _open_local(Path(place), rename or {}, Path(place).suffix)
    url = fspath(place)
    store, name = CachedStore(cache or Cache.from_environment(), url), file_name(url)
    if Path(name).suffix in (".gguf", ".npz", *TORCH_SUFFIXES):
        return _open_local(store.file(name).path, rename or {}, Path(name).suffix)
    return Checkpoint(store, [name], rename=rename)


def _open_local(path: Path, rename: Mapping[str, str], suffix: str) -> Mapping[str, Array]:
    if suffix == ".gguf":
        return Renamed(GgufFile(path), rename)
    if suffix in TORCH_SUFFIXES:
        return Renamed(read_torch(path), rename)
    if suffix == ".npz":
        return Renamed(read_npz(path), rename)
    return Checkpoint.open(path, rename=rename)

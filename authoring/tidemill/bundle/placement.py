"""A checkpoint's bytes brought into a bundle's folder, or remembered by where they lie; knows no graph."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tidemill.bundle.manifest import FileEntry
from tidemill.driver.buffer import Buffer
from tidemill.driver.dlpack import DLPackArray
from tidemill.weights.cache import Cache
from tidemill.weights.cached_store import CachedStore
from tidemill.weights.checkpoint import Checkpoint, Located
from tidemill.weights.location import file_name, is_url, shown
from tidemill.weights.opening import open_checkpoint
from tidemill.weights.safetensors import Array, SafetensorsFile, open_safetensors, write_safetensors

__all__ = [
    "WEIGHTS_FILE",
    "PlacedWeights",
    "WeightSource",
    "arrays_of",
    "place_arrays",
    "place_file",
    "place_reference",
    "placed",
    "stored_file",
]

WEIGHTS_FILE = "weights.safetensors"

WeightSource: TypeAlias = str | PathLike[str] | Mapping[str, DLPackArray]
"""A path, a URL, or arrays by name."""


@dataclass(frozen=True, slots=True)
class PlacedWeights:
    """Weights at the place where a bundle has them.

    Attributes:
        located: The file of the bundle and the range in it, by key.
        values: The arrays by key.
        references: What does not lie in the folder, by the file's name in the bundle.
    """

    located: Mapping[str, Located] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    references: Mapping[str, FileEntry] = field(default_factory=dict)


@contextmanager
def stored_file(source: WeightSource, cache: Cache | None) -> Iterator[Path | None]:
    """The one safetensors file that a source is, on this machine; None if it is anything else."""
    if isinstance(source, Mapping):
        yield None
    elif not is_url(source):
        yield Path(source) if Path(source).suffix == ".safetensors" else None
    elif file_name(fspath(source)).endswith(".safetensors"):
        # Held here, it is not evicted before it is copied.
        held = (cache or Cache.from_environment()).fetch(fspath(source))
        yield held.path
    else:
        yield None


def arrays_of(source: WeightSource, cache: Cache | None) -> Mapping[str, Array]:
    """The arrays of any source by key."""
    if not isinstance(source, Mapping):
        return open_checkpoint(source, cache=cache)
    return {
        name: value if isinstance(value, np.ndarray) else Buffer.from_dlpack(value).to_numpy()
        for name, value in source.items()
    }


def place_file(path: Path, folder: Path) -> PlacedWeights:
    """Copy a safetensors file byte for byte."""
    # A hard link would save the bytes, and onnx.checker refuses external data with a second link.
    shutil.copyfile(path, folder / WEIGHTS_FILE)
    return placed(open_safetensors(folder / WEIGHTS_FILE))


def place_arrays(arrays: Mapping[str, DLPackArray], folder: Path) -> PlacedWeights:
    """Write arrays as a safetensors file; nothing, if there are none."""
    if not arrays:
        return PlacedWeights()
    write_safetensors(folder / WEIGHTS_FILE, arrays)
    return placed(open_safetensors(folder / WEIGHTS_FILE))


def place_reference(source: WeightSource, cache: Cache | None) -> PlacedWeights:
    """Leave a checkpoint at its URL and remember its digests; it is read once, through the cache.

    Raises:
        ValueError: It has no URL that others can use, or is no safetensors.
    """
    if isinstance(source, Mapping) or not is_url(source):
        raise ValueError("weights by reference take a URL, such as s3://bucket/model.safetensors")
    url = fspath(source)
    if shown(url) != url:
        raise ValueError(f"{shown(url)} was given with a signature or password, which would be written into the bundle")
    store = CachedStore(cache or Cache.from_environment(), url)
    checkpoint = Checkpoint(store, [file_name(url)])
    names = sorted({place.file for place in checkpoint.entries.values()})
    files = {name: store.file(name) for name in names}
    references = {name: FileEntry(file.sha256, file.size, store.url(name)) for name, file in files.items()}
    return PlacedWeights(checkpoint.entries, checkpoint, references)


def placed(file: SafetensorsFile) -> PlacedWeights:
    """The tensors of a file that lies in the bundle, or is to."""
    return PlacedWeights({key: Located(WEIGHTS_FILE, entry) for key, entry in file.header.tensors.items()}, file)

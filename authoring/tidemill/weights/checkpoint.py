"""A checkpoint: the tensors of one or many safetensors files under one set of names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.weights.header import SafetensorsHeader, TensorEntry, read_header_from
from tidemill.weights.rename import check_rename, expand_rename
from tidemill.weights.safetensors import Array, view_tensor
from tidemill.weights.store import LocalStore, WeightStore

__all__ = ["Checkpoint", "Located"]

_INDEX_SUFFIX = ".index.json"
_MAX_INDEX_BYTES = 100_000_000


class Located(NamedTuple):
    """A tensor and the file that holds it."""

    file: str
    entry: TensorEntry


class Checkpoint(Mapping[str, Array]):
    """Tensors by name: read-only arrays over mapped bytes, made when asked for.

    Args:
        store: Where the files are.
        files: Their names: safetensors files, or one `*.index.json` that lists shards.
        rename: Wanted name to the key in the files, with patterns as in `tidemill.weights.rename`. A renamed key is no
            longer seen under its own name.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is malformed, a shard lacks a tensor that the index promises, two files hold one key, or a
            renamed key does not exist; all such faults are named.
    """

    def __init__(self, store: WeightStore, files: Sequence[str], *, rename: Mapping[str, str] | None = None) -> None:
        _check_formats(files)
        self._store = store
        index = _read_index(store, files[0]) if files[0].endswith(_INDEX_SUFFIX) else None
        names = sorted(set(index.values())) if index is not None else files
        headers = {name: read_header_from(store, name) for name in names}
        located = _locate(headers) if index is None else _locate_indexed(headers, index)
        check_rename(rename or {})
        self.entries: Mapping[str, Located] = _renamed(located, expand_rename(rename or {}, located))

    @classmethod
    def open(cls, path: str | PathLike[str], *, rename: Mapping[str, str] | None = None) -> Checkpoint:
        """Open a local checkpoint: a safetensors file, an `*.index.json`, or a folder that has one of them."""
        given = Path(path)
        file = _find_in(given) if given.is_dir() else given
        return cls(LocalStore(file.parent), [file.name], rename=rename)

    def __getitem__(self, name: str) -> Array:
        if name not in self.entries:
            close = get_close_matches(name, self.entries, n=1)
            raise KeyError(f"no weight {name!r}" + (f", did you mean {close[0]!r}?" if close else ""))
        file, entry = self.entries[name]
        return view_tensor(self._store, file, entry)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def _check_formats(files: Sequence[str]) -> None:
    if not files:
        raise ValueError("a checkpoint has at least one file")
    for file in files:
        if not file.endswith((".safetensors", _INDEX_SUFFIX)):
            raise ValueError(
                f"{file} is no checkpoint that can be read; known are .safetensors, {_INDEX_SUFFIX}, .gguf, .pt"
            )


def _find_in(folder: Path) -> Path:
    found = sorted(folder.glob(f"*.safetensors{_INDEX_SUFFIX}")) or sorted(folder.glob("*.safetensors"))
    if len(found) != 1:
        listed = ", ".join(file.name for file in found) or "none"
        raise ValueError(f"{folder} must have one checkpoint to be opened as one, found {listed}; name the file")
    return found[0]


def _read_index(store: WeightStore, name: str) -> dict[str, str]:
    size = store.size(name)
    if size > _MAX_INDEX_BYTES:
        raise ValueError(f"{name} has {size} bytes; at most {_MAX_INDEX_BYTES} are read")
    try:
        fields: Any = json.loads(bytes(store.read(name, 0, size)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    files = fields.get("weight_map") if isinstance(fields, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise ValueError(f"{name} must have a 'weight_map' from tensor names to file names")
    outside = sorted({file for file in files.values() if not file.endswith(".safetensors") or set(file) & set("/\\")})
    if outside:
        raise ValueError(f"{name} names {outside[0]!r}; shards must be .safetensors files beside it")
    return files


def _locate(headers: Mapping[str, SafetensorsHeader]) -> dict[str, Located]:
    located: dict[str, Located] = {}
    faults = []
    for file, header in headers.items():
        for key, entry in header.tensors.items():
            if key in located:
                faults.append(f"{key!r} stands in {located[key].file} and in {file}")
            located[key] = Located(file, entry)
    _raise_all(faults)
    return located


def _locate_indexed(headers: Mapping[str, SafetensorsHeader], index: Mapping[str, str]) -> dict[str, Located]:
    _raise_all([f"{file} lacks {key!r}" for key, file in index.items() if key not in headers[file].tensors])
    return {key: Located(file, headers[file].tensors[key]) for key, file in index.items()}


def _renamed(located: Mapping[str, Located], rename: Mapping[str, str]) -> dict[str, Located]:
    faults = []
    for name, key in rename.items():
        if key not in located:
            close = get_close_matches(key, located, n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            faults.append(f"{name!r} is to be read from {key!r}, which is missing{hint}")
    _raise_all(faults)
    gone = set(rename.values())
    kept = {key: place for key, place in located.items() if key not in gone}
    clash = sorted(kept.keys() & rename.keys())
    _raise_all([f"{name!r} is renamed from {rename[name]!r} and also stands in the files" for name in clash])
    return kept | {name: located[key] for name, key in rename.items()}


def _raise_all(faults: Sequence[str]) -> None:
    if faults:
        raise ValueError(f"the checkpoint is faulty: {'; '.join(faults)}")

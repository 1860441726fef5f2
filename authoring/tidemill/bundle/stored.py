"""A bundle on disk, opened with cheap checks and verified on demand; knows neither onnx nor pydantic."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from tidemill.bundle.manifest import MANIFEST_FILE, BundleManifest, FileEntry
from tidemill.bundle.ranges import check_ranges
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec
from tidemill.weights.header import read_header

__all__ = ["StoredBundle", "check_inside", "file_entry", "open_bundle"]

_MAX_MANIFEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """A bundle's folder and what its manifest promises.

    Attributes:
        path: The folder.
        manifest: The content of bundle.json.
        held: What has to live as long as the bundle is used: locks on fetched files.
    """

    path: Path
    manifest: BundleManifest
    held: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        """The model's name when it was traced."""
        return self.manifest.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs of the main graph."""
        return self.manifest.main.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs of the main graph."""
        return self.manifest.main.outputs

    @property
    def graph_path(self) -> Path:
        """The main graph's ONNX file."""
        return self.path / self.manifest.main.file

    @property
    def weights_path(self) -> Path | None:
        """The safetensors file; None if the bundle has no weights."""
        file = self.manifest.weights_file
        return None if file is None else self.path / file

    @property
    def absent(self) -> tuple[str, ...]:
        """The files that do not lie in the folder and are to be fetched; see `tidemill.bundle.local`."""
        return tuple(name for name, entry in self.manifest.files.items() if _is_absent(self.path, name, entry))

    def verify(self) -> None:
        """Compare every file with its digest; reads all bytes once. What is fetched is compared when it is fetched.

        Raises:
            InvalidBundle: A file is not what the manifest says; all such files are named.
        """
        faults = []
        for name, entry in self.manifest.files.items():
            if _is_absent(self.path, name, entry):
                continue
            found = file_entry(self.path / name)
            if not found.has_content_of(entry):
                faults.append(f"{name} has sha256 {found.sha256}, expected {entry.sha256}")
        if faults:
            raise InvalidBundle(f"{self.path}: {'; '.join(faults)}; write or copy the bundle again")


def open_bundle(directory: str | PathLike[str]) -> StoredBundle:
    """Open a bundle's folder.

    Sizes, and where the graphs say that their data lies, are checked here; `StoredBundle.verify` checks the digests.

    Args:
        directory: The folder that holds bundle.json.

    Returns:
        The opened bundle.

    Raises:
        InvalidBundle: bundle.json is missing or wrong; a file is missing, leads out of the folder, is no regular file,
            or has another size; a graph's data lies outside of the files; the message names the file.
    """
    folder = Path(directory)
    try:
        manifest = BundleManifest.from_json(_read_manifest(folder))
        for name, entry in manifest.files.items():
            if not _is_absent(folder, name, entry):
                _check_file(folder, name, entry)
        _check_contents(folder, manifest)
    except InvalidBundle as error:
        raise InvalidBundle(f"{folder}: {error}") from None
    return StoredBundle(folder, manifest)


def file_entry(path: Path) -> FileEntry:
    """The size in bytes and sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(digest, file.tell())


def _read_manifest(folder: Path) -> bytes:
    file = folder / MANIFEST_FILE
    if not os.path.lexists(file):
        raise InvalidBundle(f"this is no bundle, since there is no {MANIFEST_FILE}")
    size = check_inside(folder, MANIFEST_FILE)
    if size > _MAX_MANIFEST_BYTES:
        raise InvalidBundle(f"{MANIFEST_FILE} has {size} bytes; at most {_MAX_MANIFEST_BYTES} are read")
    return file.read_bytes()


def check_inside(folder: Path, name: str) -> int:
    """The size in bytes of a regular file that really lies in the folder; InvalidBundle if it does not."""
    file = folder / name
    if "\0" in name or not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise InvalidBundle(f"{name!r} leads out of the bundle's folder; put the file itself there")
    try:
        found = file.stat()
    except OSError as error:
        raise InvalidBundle(f"{name} belongs to the bundle and is missing or unreadable: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise InvalidBundle(f"{name} is not a regular file")
    return found.st_size


def _is_absent(folder: Path, name: str, entry: FileEntry) -> bool:
    return entry.url is not None and not os.path.lexists(folder / name)


def _check_contents(folder: Path, manifest: BundleManifest) -> None:
    sizes = {name: entry.size for name, entry in manifest.files.items()}
    for graph in manifest.graphs.values():
        check_ranges(folder / graph.file, sizes)
    for name, entry in manifest.files.items():
        if name.endswith(".safetensors") and not _is_absent(folder, name, entry):
            try:
                read_header(folder / name)
            except ValueError as error:
                raise InvalidBundle(str(error)) from None


def _check_file(folder: Path, name: str, entry: FileEntry) -> None:
    size = check_inside(folder, name)
    if size != entry.size:
        raise InvalidBundle(f"{name} has {size} bytes, {MANIFEST_FILE} says {entry.size}; is the copy whole?")

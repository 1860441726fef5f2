"""What an answer follows from, as a digest: a model's files, its version and all of the request that counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidemill.bundle.manifest import MANIFEST_FILE
from tidemill.dtype import DType
from tidemill.protocol.tensors import to_bytes
from tidemill.protocol.types import InferRequest
from tidemill.repository.plan import Plan

__all__ = ["model_digest", "request_key"]

_OF_THE_WAY = {"priority", "timeout", "binary_data_output", "tidemill_timing", "sequence_id", "sequence_start"} | {
    "sequence_end"
}
"""Parameters that say how an answer comes, not what is in it."""


def model_digest(plan: Plan) -> bytes:
    """The digest of all files that a model's answers follow from; its base's too.

    A bundle's manifest holds the digests of its large files, so those are not read.
    """
    digest = hashlib.blake2b(digest_size=32)
    _add(digest, plan.version.encode(), repr(plan.config).encode())
    if plan.base:
        _add(digest, model_digest(plan.base))
    for path in sorted(path for path in plan.folder.iterdir() if path.is_file()):
        _add(digest, path.name.encode(), _file_digest(path))
    for path in _of_version(plan.bundle) if plan.bundle else ():
        _add(digest, path.name.encode(), _file_digest(path))
    return digest.digest()


def request_key(model: bytes, request: InferRequest, outputs: Sequence[str]) -> bytes:
    """The key of a request's answer.

    Args:
        model: The model's digest.
        request: The request; its inputs were checked.
        outputs: The outputs that are answered.
    """
    digest = hashlib.blake2b(model, digest_size=32)
    _add(digest, *(name.encode() for name in outputs))
    for name, value in sorted(request.parameters.items()):
        if name not in _OF_THE_WAY:
            _add(digest, name.encode(), type(value).__name__.encode(), str(value).encode())
    for name, array in sorted(request.inputs.items()):
        dtype = DType.from_numpy(array.dtype)
        _add(digest, b"input", name.encode(), dtype.wire.encode(), str(array.shape).encode())
        _add(digest, to_bytes(array, dtype, name=name))
    return digest.digest()


def _of_version(folder: Path) -> Iterable[Path]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = folder / MANIFEST_FILE
    return [path for path in files if path == manifest or path.suffix == ".onnx"] if manifest in files else files


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _add(digest: hashlib.blake2b, *parts: bytes | memoryview) -> None:
    """With its length before each part, so that no two sequences of parts are the same bytes."""
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

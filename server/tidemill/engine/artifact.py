"""Graphs kept as ONNX Runtime's optimiser left them, so that it has done its work once; shared by processes."""

from __future__ import annotations

import fcntl
import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.bundle.manifest import GraphEntry
from tidemill.bundle.stored import StoredBundle
from tidemill.engine.artifact_key import artifact_key
from tidemill.engine.optimize import optimize
from tidemill.engine.providers import CPU_PROVIDER
from tidemill.engine.runtime import onnxruntime
from tidemill.engine.session import OrtSession, open_session
from tidemill.engine.session_options import SessionOptions
from tidemill.engine.source import check_size, flat_bytes
from tidemill.errors import LoadFailed, MissingArtifact
from tidemill.weights.durable import write_whole

__all__ = ["ArtifactCache", "LoadedGraph", "load_graph"]

_LOG = logging.getLogger("tidemill.engine")

_TOO_LARGE = 64 * 1024 * 1024
"""Bytes; an artifact of more holds what was computed from the weights, which would be read and kept twice."""

_DECLINED = b""
"""What is kept for a graph that is not worth an artifact."""


@dataclass(frozen=True, slots=True)
class ArtifactCache:
    """A folder of optimised graphs.

        <key>.<digest>.onnx   the key says what it was made from (see `artifact_key`), the digest what it must be
        <key>.lock            held by the process that compiles

    Weights are not in it: an artifact points into the bundle's own files, which stay mapped and shared.

    Attributes:
        directory: The folder; made when needed.
        strict: Whether a graph must be there already; nothing is compiled then.
    """

    directory: Path
    strict: bool = False


@dataclass(frozen=True, slots=True)
class LoadedGraph:
    """A session and where its graph came from.

    Attributes:
        session: The session.
        artifact: "hit", "compiled" (and kept), "declined" (not worth keeping, or not for the CPU) or "off".
        key: What the graph and its kernels follow from, see `artifact_key`; "" if nobody asked.
    """

    session: OrtSession
    artifact: str
    key: str = ""


def load_graph(
    bundle: StoredBundle, graph: GraphEntry, options: SessionOptions, cache: ArtifactCache | None
) -> LoadedGraph:
    """Load a bundle's graph, by way of the cache if there is one.

    An artifact that cannot be loaded is thrown away and made again.

    Raises:
        MissingArtifact: The cache is strict, and has none or a broken one.
        LoadFailed: ONNX Runtime refuses the graph, or would not run it on the providers asked for.
        InvalidBundle: The graph is too large once its functions are written out.
    """
    path = bundle.path / graph.file
    if cache is None:
        return LoadedGraph(_open_plainly(path, options), "off")
    if options.providers == (CPU_PROVIDER,):
        entry = _Entry(bundle, graph, options, cache)
        return replace(_load_cached(entry), key=entry.key)
    if cache.strict:
        raise MissingArtifact(f"artifacts are for the CPU only, and {path} is to run on {options.providers[0]}")
    return LoadedGraph(_open_plainly(path, options), "declined")


def _open_plainly(path: Path, options: SessionOptions) -> OrtSession:
    check_size(path)
    return open_session(path, options)


def _load_cached(entry: _Entry) -> LoadedGraph:
    artifact = entry.read()
    if artifact is not None:
        try:
            return LoadedGraph(entry.open(artifact), "hit" if artifact else "declined")
        except LoadFailed as error:
            entry.discard(error)
    if entry.cache.strict:
        raise MissingArtifact(
            f"{entry.graph.file} of {entry.bundle.path} has no usable artifact in {entry.cache.directory}, and only "
            "compiled models may be loaded; compile it with the same ONNX Runtime, options and kind of CPU"
        )
    return _load_compiled(entry, entry.compile())


def _load_compiled(entry: _Entry, artifact: bytes) -> LoadedGraph:
    try:
        return LoadedGraph(entry.open(artifact), "compiled" if artifact else "declined")
    except LoadFailed as error:
        if not artifact:
            raise
        entry.discard(error)
        return LoadedGraph(entry.open(_DECLINED), "declined")


class _Entry:
    """The place of one graph in a cache."""

    def __init__(self, bundle: StoredBundle, graph: GraphEntry, options: SessionOptions, cache: ArtifactCache) -> None:
        self.bundle = bundle
        self.graph = graph
        self.cache = cache
        self._options = options
        self.key = artifact_key(bundle, graph, options, onnxruntime().__version__)

    def read(self) -> bytes | None:
        """The artifact, None if there is none; one with other bytes than it was written with is removed."""
        for path in self.cache.directory.glob(f"{self.key}.*.onnx"):
            artifact = path.read_bytes()
            if path.name == self._name(artifact):
                return artifact
            _LOG.warning("%s is damaged and is made again", path)
            if not self.cache.strict:
                path.unlink(missing_ok=True)
        return None

    def discard(self, error: Exception) -> None:
        """Remove an artifact that cannot be loaded, unless the folder is only to be read."""
        _LOG.warning("the artifact of %s cannot be loaded: %s", self.bundle.path, error)
        if not self.cache.strict:
            for path in self.cache.directory.glob(f"{self.key}.*.onnx"):
                path.unlink(missing_ok=True)

    def compile(self) -> bytes:
        """The artifact, made by this process or by another that was at it."""
        self.cache.directory.mkdir(parents=True, exist_ok=True)
        with _locked(self.cache.directory / f"{self.key}.lock"):
            artifact = self.read()
            if artifact is None:
                artifact = self._optimized()
                write_whole(self.cache.directory / self._name(artifact), artifact)
            return artifact

    def open(self, artifact: bytes) -> OrtSession:
        """A session on the artifact, or on the graph itself if that is as good."""
        if artifact:
            return open_session(artifact, replace(self._options, weights_folder=self.bundle.path, optimized=True))
        return _open_plainly(self.bundle.path / self.graph.file, self._options)

    def _optimized(self) -> bytes:
        path = self.bundle.path / self.graph.file
        if path.stat().st_size > _TOO_LARGE:  # its weights are inside
            return _DECLINED
        try:
            options = replace(self._options, weights_folder=self.bundle.path)
            artifact = optimize(flat_bytes(path), options, for_this_cpu=True)
        except LoadFailed as error:
            _LOG.warning("%s is loaded without an artifact: %s", self.bundle.path, error)
            return _DECLINED
        return artifact if len(artifact) <= _TOO_LARGE else _DECLINED

    def _name(self, artifact: bytes) -> str:
        return f"{self.key}.{hashlib.sha256(artifact).hexdigest()[:16]}.onnx"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process or thread is in here with this path."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

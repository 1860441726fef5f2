"""Compiled forms of traced graphs, one file a graph, written by one session and read by another."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tidemill.engine.optimize import optimize
from tidemill.engine.runtime import onnxruntime
from tidemill.engine.session_options import SessionOptions
from tidemill.errors import MissingArtifact
from tidemill.weights.durable import write_whole

__all__ = ["MANIFEST_FILE", "Exports"]

MANIFEST_FILE = "manifest.json"

_FORMAT = 1
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Exports:
    """A folder of compiled graphs.

        <graph's name>-<digest>.onnx   the digest is of what the graph computes, its weights' values aside
        manifest.json                  what each file is and must be

    Attributes:
        directory: The folder.
    """

    directory: Path

    @classmethod
    def at(cls, directory: str | PathLike[str]) -> Exports:
        """The folder at a path."""
        return cls(Path(directory))

    def write(self, name: str, model: bytes, options: SessionOptions) -> bytes:
        """Compile a graph and keep the result, which is returned.

        Args:
            name: The graph's name.
            model: The serialised graph with its weights as inputs.
            options: Those of the session.

        Raises:
            LoadFailed: ONNX Runtime refuses the graph.
            Unsupported: The session is not on the CPU.
        """
        digest = _digest(model)
        file, compiled = _file_name(name, digest), optimize(model, options, for_this_cpu=False)
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._locked():
            write_whole(self.directory / file, compiled)
            entry = {"graph": name, "digest": digest, "sha256": _sha256(compiled)}
            self._write_manifest({**self._artifacts(), file: entry})
        return compiled

    def read(self, name: str, model: bytes) -> bytes:
        """The compiled form of a graph; nothing is ever compiled here.

        Args:
            name: The graph's name.
            model: The serialised graph, to be sure that it is the one that was compiled.

        Raises:
            MissingArtifact: There is none, it is damaged, or another ONNX Runtime made it; the message says which.
        """
        file = _file_name(name, _digest(model))
        made_by, own = self._manifest().get("onnxruntime"), onnxruntime().__version__
        if made_by != own:
            raise MissingArtifact(
                f"{self.directory} holds graphs compiled by ONNX Runtime {made_by}, this is {own}; export them again"
                if made_by
                else f"{self.directory} has no {MANIFEST_FILE}, so it holds no exported graphs"
            )
        entry = self._artifacts().get(file)
        if entry is None:
            raise MissingArtifact(self._explain(name, file))
        return self._checked(file, entry)

    def _checked(self, file: str, entry: Mapping[str, str]) -> bytes:
        try:
            compiled = (self.directory / file).read_bytes()
        except OSError as error:
            raise MissingArtifact(f"{self.directory / file} cannot be read: {error.strerror}") from None
        if _sha256(compiled) != entry["sha256"]:
            raise MissingArtifact(f"{self.directory / file} is damaged; export the graph again")
        return compiled

    def _explain(self, name: str, file: str) -> str:
        artifacts = self._artifacts()
        if any(entry["graph"] == name for entry in artifacts.values()):
            return (
                f"{self.directory} has graph {name!r}, but not in this form ({file} is missing): it was traced "
                "otherwise when it was exported; export it again"
            )
        held = ", ".join(sorted({entry["graph"] for entry in artifacts.values()})) or "none"
        return f"{self.directory} has no graph {name!r} ({file}), and a session with precompiled= compiles none; " + (
            f"it has {held}"
        )

    def _artifacts(self) -> dict[str, dict[str, str]]:
        manifest = self._manifest()
        # Files that another ONNX Runtime compiled are of no use beside new ones.
        current = manifest.get("onnxruntime") == onnxruntime().__version__
        return dict(manifest["artifacts"]) if current else {}

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads((self.directory / MANIFEST_FILE).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise MissingArtifact(f"{self.directory / MANIFEST_FILE} is not JSON: {error}") from None
        if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
            raise MissingArtifact(f"{self.directory / MANIFEST_FILE} is of another tidemill; export the graphs again")
        return manifest

    def _write_manifest(self, artifacts: Mapping[str, Mapping[str, str]]) -> None:
        fields = {"format": _FORMAT, "onnxruntime": onnxruntime().__version__, "artifacts": artifacts}
        write_whole(self.directory / MANIFEST_FILE, json.dumps(fields, indent=2).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.directory / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _digest(model: bytes) -> str:
    from tidemill.bundle.fingerprint import fingerprint  # onnx takes its time to import

    return fingerprint(model)


def _file_name(name: str, digest: str) -> str:
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name)
    return f"{safe}-{digest[:_SHORT]}.onnx"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

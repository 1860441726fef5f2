"""The text of bundle.json as data: what a bundle holds and promises; reads no file but the one it is given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec
from tidemill.weights.location import split_url

__all__ = ["FORMAT", "MAIN_GRAPH", "MANIFEST_FILE", "BundleManifest", "FileEntry", "GraphEntry"]

FORMAT = 1
MAIN_GRAPH = "main"
MANIFEST_FILE = "bundle.json"

_REQUIRED = frozenset({"format", "name", "graphs", "files", "opset"})
_OPTIONAL = frozenset({"weights_file", "tied", "converted", "source", "created_with"})

_SHOWN = 200
"""Characters of a text of the file that a message repeats."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One graph of the bundle: its ONNX file and signature."""

    file: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a file must be.

    Attributes:
        sha256: The digest of its content as hex.
        size: Bytes.
        url: Where it is fetched from when it does not lie in the folder; None for a file that has to.
    """

    sha256: str
    size: int
    url: str | None = None

    def has_content_of(self, other: FileEntry) -> bool:
        """Whether both have the same bytes."""
        return (self.sha256, self.size) == (other.sha256, other.size)


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """What bundle.json says.

    Attributes:
        name: The model's name when it was traced.
        graphs: Graphs by key; "main" is the one that is served when none is named.
        files: Every file of the bundle but bundle.json, by its path in the folder.
        opset: The ONNX opset of the graphs.
        weights_file: The safetensors file that the graphs point into; None if there are no weights.
        tied: Names that share another weight's values, each with the name of the weight that is stored.
        converted: Element types of the checkpoint that were changed as asked for, each with what they became.
        source: Dotted path of the class that was traced; "" if unknown.
        created_with: Versions of what wrote the bundle, by package.
        format: The version of this layout.

    Raises:
        InvalidBundle: The parts contradict each other.
    """

    name: str
    graphs: Mapping[str, GraphEntry]
    files: Mapping[str, FileEntry]
    opset: int
    weights_file: str | None = None
    tied: Mapping[str, str] = field(default_factory=dict)
    converted: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    created_with: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.graphs:
            raise InvalidBundle(f"{MANIFEST_FILE}: graphs is empty; a bundle has at least one")
        for key, graph in self.graphs.items():
            self._check_listed(f"graphs.{key}.file", graph.file)
            if self.files[graph.file].url is not None:
                raise InvalidBundle(f"{MANIFEST_FILE}: files.{graph.file} has a url; a graph lies in the folder")
            _check_unique(f"graphs.{key}.inputs", graph.inputs)
            _check_unique(f"graphs.{key}.outputs", graph.outputs)
        if self.weights_file is not None:
            self._check_listed("weights_file", self.weights_file)
        for name, entry in self.files.items():
            _check_file_name(name)
            _check_url(name, entry.url)

    @property
    def main(self) -> GraphEntry:
        """The graph to serve: "main", or the only one.

        Raises:
            InvalidBundle: There are several graphs and none is called "main".
        """
        if MAIN_GRAPH in self.graphs:
            return self.graphs[MAIN_GRAPH]
        if len(self.graphs) > 1:
            raise InvalidBundle(f"the bundle has no graph {MAIN_GRAPH!r}; name one of {', '.join(self.graphs)}")
        return next(iter(self.graphs.values()))

    def to_json(self) -> str:
        """The text of bundle.json; the same manifest always gives the same text."""
        fields: dict[str, Any] = {
            "format": self.format,
            "name": self.name,
            "graphs": {key: _graph_to_json(graph) for key, graph in self.graphs.items()},
            "weights_file": self.weights_file,
            "files": {name: _file_to_json(file) for name, file in self.files.items()},
            "tied": dict(self.tied),
            "converted": dict(self.converted),
            "source": self.source,
            "opset": self.opset,
            "created_with": dict(self.created_with),
        }
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> BundleManifest:
        """Read bundle.json.

        Raises:
            InvalidBundle: It is not JSON, has another format version, or a field is missing, unknown or wrong; the
                message names the field.
        """
        try:
            given = json.loads(text, object_pairs_hook=_object_of)
        except (ValueError, RecursionError) as error:
            raise InvalidBundle(f"{MANIFEST_FILE} is not JSON: {_short(str(error))}") from None
        root = _Node(given, "")
        root.check_format()
        parts = root.fields(_REQUIRED, _OPTIONAL)
        return cls(
            name=parts["name"].text(),
            graphs=parts["graphs"].mapping(_read_graph),
            files=parts["files"].mapping(_read_file),
            opset=parts["opset"].number(),
            weights_file=parts["weights_file"].optional_text(),
            tied=parts["tied"].mapping(_Node.text),
            converted=parts["converted"].mapping(_Node.text),
            source=parts["source"].optional_text() or "",
            created_with=parts["created_with"].mapping(_Node.text),
        )

    def _check_listed(self, where: str, file: str) -> None:
        if file not in self.files:
            raise InvalidBundle(
                f"{MANIFEST_FILE}: {_short(where)} is {_short(repr(file))}, which is not listed in files"
            )


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key that is there twice would be read one way here and another way elsewhere."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has the key {twice[:_SHOWN]!r} twice")
    return found


def _short(text: str) -> str:
    """What a file from elsewhere says, fit for one line of a log."""
    plain = "".join(letter if letter.isprintable() else "\ufffd" for letter in text[: _SHOWN + 1])
    return plain if len(text) <= _SHOWN else f"{plain[:_SHOWN]}..."


def _check_unique(where: str, specs: tuple[TensorSpec, ...]) -> None:
    for name, count in Counter(spec.name for spec in specs).items():
        if count > 1:
            raise InvalidBundle(f"{MANIFEST_FILE}: {_short(where)} names {_short(repr(name))} twice")


def _check_file_name(name: str) -> None:
    parts = name.split("/")
    plain = all(part and not part.startswith(".") and part.isprintable() for part in parts)
    if not plain or "\\" in name or name == MANIFEST_FILE:
        raise InvalidBundle(
            f"{MANIFEST_FILE}: files has {_short(repr(name))}; expected the path of a file inside the bundle's folder, "
            "without leading dots"
        )


def _check_url(name: str, url: str | None) -> None:
    try:
        if url is not None:
            split_url(url)
    except ValueError as error:
        raise InvalidBundle(f"{MANIFEST_FILE}: files.{_short(name)}.url: {_short(str(error))}") from None


def _file_to_json(file: FileEntry) -> dict[str, Any]:
    return {"sha256": file.sha256, "size": file.size} | ({} if file.url is None else {"url": file.url})


def _graph_to_json(graph: GraphEntry) -> dict[str, Any]:
    return {
        "file": graph.file,
        "inputs": [_spec_to_json(spec) for spec in graph.inputs],
        "outputs": [_spec_to_json(spec) for spec in graph.outputs],
    }


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.dtype.wire, "shape": list(spec.shape)}


def _read_graph(node: _Node) -> GraphEntry:
    parts = node.fields({"file", "inputs", "outputs"})
    inputs, outputs = parts["inputs"].items(_read_spec), parts["outputs"].items(_read_spec)
    return GraphEntry(parts["file"].text(), inputs, outputs)


def _read_spec(node: _Node) -> TensorSpec:
    parts = node.fields({"name", "datatype", "shape"})
    try:
        dtype = DType.from_wire(parts["datatype"].text())
    except ValueError as error:
        raise InvalidBundle(f"{MANIFEST_FILE}: {parts['datatype'].path}: {error}") from None
    return TensorSpec(parts["name"].text(), dtype, parts["shape"].items(_read_dim))


def _read_dim(node: _Node) -> int | str:
    return node.text() if isinstance(node.value, str) else node.number()


def _read_file(node: _Node) -> FileEntry:
    parts = node.fields({"sha256", "size"}, {"url"})
    digest = parts["sha256"].text()
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise parts["sha256"].wrong("64 lower-case hex digits")
    return FileEntry(digest, parts["size"].number(), parts["url"].optional_text())


@dataclass(frozen=True, slots=True)
class _Node:
    """A JSON value that knows where it stands, so that every complaint can say so."""

    value: Any
    path: str

    def wrong(self, expected: str) -> InvalidBundle:
        given = _short(repr(self.value))
        return InvalidBundle(f"{MANIFEST_FILE}: {_short(self.path) or 'the whole'} is {given}, expected {expected}")

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        if not self.value.isprintable():
            raise self.wrong("text without control characters")
        return self.value

    def optional_text(self) -> str | None:
        return None if self.value is None else self.text()

    def number(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < 0:
            raise self.wrong("a whole number of at least 0")
        return self.value

    def items(self, read: Callable[[_Node], _T]) -> tuple[_T, ...]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return tuple(read(_Node(item, f"{self.path}[{index}]")) for index, item in enumerate(self.value))

    def mapping(self, read: Callable[[_Node], _T]) -> dict[str, _T]:
        if self.value is None:
            return {}
        return {key: read(self._child(key)) for key in self._object()}

    def fields(self, required: Set[str], optional: Set[str] = frozenset()) -> dict[str, _Node]:
        given = self._object()
        known = required | optional
        unknown = sorted(given.keys() - known)
        if unknown:
            close = get_close_matches(unknown[0][:_SHOWN], known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
            raise InvalidBundle(f"{MANIFEST_FILE}: unknown field {_short(self._named(unknown[0]))}{hint}")
        missing = sorted(required - given.keys())
        if missing:
            raise InvalidBundle(f"{MANIFEST_FILE}: {self._named(missing[0])} is missing")
        return {key: self._child(key) for key in known}

    def check_format(self) -> None:
        given = self._object().get("format")
        if type(given) is not int or given != FORMAT:
            raise InvalidBundle(
                f"{MANIFEST_FILE} has format {_short(repr(given))}; this tidemill reads format {FORMAT}"
            )

    def _object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def _child(self, key: str) -> _Node:
        return _Node(self.value.get(key), self._named(key))

    def _named(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

"""ONNX files and the graphs within their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import onnx

from tidemill.errors import InvalidBundle

__all__ = ["read_graph", "subgraphs"]


def read_graph(path: str | PathLike[str]) -> onnx.ModelProto:
    """An ONNX file without the weights that lie beside it.

    Raises:
        InvalidBundle: It is no ONNX file.
    """
    try:
        return onnx.load_model_from_string(Path(path).read_bytes())
    except Exception as error:  # protobuf's DecodeError has no base but this, and protobuf is not imported here
        raise InvalidBundle(f"{Path(path).name} is no ONNX model: {error}") from None


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies of a loop or branch."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs

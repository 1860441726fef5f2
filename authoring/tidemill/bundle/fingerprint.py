"""A digest of what a model computes; where its lines were written does not count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import onnx

from tidemill.bundle.graphs import subgraphs

__all__ = ["fingerprint"]


def fingerprint(model: bytes) -> str:
    """The sha256, as hex, of a serialised model without source lines, comments and the name of its producer."""
    proto = onnx.load_model_from_string(model)
    proto.ClearField("producer_name")
    proto.ClearField("producer_version")
    proto.ClearField("doc_string")
    _forget_sources(proto.graph.node)
    for function in proto.functions:
        _forget_sources(function.node)
    return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()


def _forget_sources(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
        for body in subgraphs(node):
            _forget_sources(body.node)

"""Tiny models on disk, shared by the tests of every server room."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from tidemill.bundle import Bundle, GraphPart
from tidemill.dtype import DType
from tidemill.protocol import TensorSpec

WriteModel = Callable[..., Path]

_F32 = DType.float32


def _x(dtype: DType = _F32, *shape: int | str) -> TensorSpec:
    return TensorSpec("x", dtype, shape)


def _y(dtype: DType = _F32, *shape: int | str) -> TensorSpec:
    return TensorSpec("y", dtype, shape)


def _node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], **attributes)


def _constant(name: str, values: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def _graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    constants: Sequence[onnx.TensorProto] = (),
) -> GraphPart:
    infos = [
        [helper.make_tensor_value_info(spec.name, spec.dtype.onnx, list(spec.shape)) for spec in specs]
        for specs in (inputs, outputs)
    ]
    graph = helper.make_graph(list(nodes), "main", infos[0], infos[1], list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return GraphPart(model, tuple(inputs), tuple(outputs))


def _identity(dtype: DType = _F32) -> GraphPart:
    return _graph([_node("Identity", ["x"], "y")], [_x(dtype, "n", 3)], [_y(dtype, "n", 3)])


def _strings() -> GraphPart:
    return _graph([_node("Identity", ["x"], "y")], [_x(DType.string, "n")], [_y(DType.string, "n")])


def _sum() -> GraphPart:
    nodes = [_node("ReduceSum", ["x", "axes"], "y", keepdims=0)]
    return _graph(nodes, [_x(_F32, "n", "k")], [_y(_F32, "n")], [_constant("axes", [1], np.int64)])


def _negate() -> GraphPart:
    return _graph([_node("Neg", ["x"], "y")], [_x()], [_y()])


def _gather() -> GraphPart:
    nodes = [_node("Gather", ["table", "x"], "y")]
    return _graph(nodes, [_x(DType.int64, "n")], [_y(_F32, "n")], [_constant("table", [10, 20, 30, 40])])


def _two() -> GraphPart:
    nodes = [_node("Add", ["x", "one"], "y"), _node("Mul", ["x", "two"], "z")]
    outputs = [_y(_F32, "n", 2), TensorSpec("z", _F32, ("n", 2))]
    return _graph(nodes, [_x(_F32, "n", 2)], outputs, [_constant("one", 1), _constant("two", 2)])


def _mean() -> GraphPart:
    """Its rows depend on each other, so it must never be batched, though its signature says that it may."""
    nodes = [_node("ReduceMean", ["x", "axes"], "m", keepdims=1), _node("Sub", ["x", "m"], "y")]
    return _graph(nodes, [_x(_F32, "n", 2)], [_y(_F32, "n", 2)], [_constant("axes", [0], np.int64)])


def _value(k: float = 1.0) -> GraphPart:
    nodes = [_node("Mul", ["x", "zero"], "none"), _node("Add", ["none", "k"], "y")]
    return _graph(nodes, [_x(_F32, "n", 1)], [_y(_F32, "n", 1)], [_constant("zero", 0), _constant("k", k)])


def _slow() -> GraphPart:
    """y = x, after as many turns of a loop as the largest element of x says; 1,000 turns take about 0.1 s."""
    body = helper.make_graph(
        [_node("Identity", ["keep"], "keep_on"), _node("MatMul", ["state", "eye"], "next")],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [256, 256]),
        ],
        [
            helper.make_tensor_value_info("keep_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [256, 256]),
        ],
    )
    nodes = [
        _node("ReduceMax", ["x"], "largest", keepdims=0),
        _node("Cast", ["largest"], "turns", to=TensorProto.INT64),
        _node("Loop", ["turns", "go", "eye"], "end", body=body),
        _node("ReduceMax", ["end"], "one", keepdims=0),
        _node("Mul", ["x", "one"], "y"),
    ]
    constants = [_constant("go", True, np.bool_), _constant("eye", np.eye(256))]
    return _graph(nodes, [_x(_F32, "n", 1)], [_y(_F32, "n", 1)], constants)


def _tokens() -> GraphPart:
    """The sum of the token ids of each row, where the mask is 1."""
    ids, mask = (TensorSpec(name, DType.int64, ("n", "s")) for name in ("input_ids", "attention_mask"))
    nodes = [
        _node("Mul", ["input_ids", "attention_mask"], "kept"),
        _node("ReduceSum", ["kept", "axes"], "y", keepdims=0),
    ]
    return _graph(nodes, [ids, mask], [_y(DType.int64, "n")], [_constant("axes", [1], np.int64)])


GRAPHS: dict[str, Callable[..., GraphPart]] = {
    "identity": _identity,
    "strings": _strings,
    "sum": _sum,
    "negate": _negate,
    "gather": _gather,
    "two": _two,
    "mean": _mean,
    "value": _value,
    "slow": _slow,
    "tokens": _tokens,
}


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Puts back what `configure_logs` changes."""
    root, own = logging.getLogger(), logging.getLogger("tidemill")
    handlers, level, own_level = root.handlers[:], root.level, own.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    own.setLevel(own_level)


@pytest.fixture(scope="session")
def all_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one model of every kind; for tests that only read it."""
    repository = tmp_path_factory.mktemp("repository")
    for kind, graph in GRAPHS.items():
        Bundle(kind, {"main": graph()}).write(repository / kind / "1")
    return repository


@pytest.fixture
def write_model(tmp_path: Path) -> WriteModel:
    """Writes `<repository>/<name>/<version>` of a kind of graph and returns the repository."""

    def write(
        kind: str,
        name: str = "",
        *,
        version: int = 1,
        config: Mapping[str, Any] | None = None,
        repository: Path = tmp_path / "models",
        **options: Any,
    ) -> Path:
        folder = repository / (name or kind)
        Bundle(kind, {"main": GRAPHS[kind](**options)}).write(folder / str(version))
        if config is not None:
            (folder / "model.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        return repository

    return write


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of a server that speaks S3, with the bucket "models"."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The S3 bucket "models", which the environment leads to; by boto3."""
    import boto3

    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }.items():
        monkeypatch.setenv(name, value)
    return boto3.resource("s3").create_bucket(Bucket="models")

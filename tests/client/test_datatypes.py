"""Every element type in every memory layout goes to a real server and comes back bit by bit, by every client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from zoo_server import serving

from tidemill import errors
from tidemill.bundle import Bundle, GraphPart
from tidemill.client import AsyncClient, Client
from tidemill.dtype import DType
from tidemill.protocol import TensorSpec

NUMBERS = [dtype for dtype in DType if dtype is not DType.string]
KINDS = {"numbers": NUMBERS, "texts": [DType.string]}
CLIENTS = pytest.mark.parametrize("kind", [Client, AsyncClient])
WIRES = pytest.mark.parametrize("wire", ["http", "grpc"])
# Bytes that C, numpy's "S" arrays or a text decoder would cut; the runtime's strings are UTF-8, so none is not.
TEXTS = [b"x\0\0", b"", b"a\0b", "é😀".encode(), b"\n", b"\0"]


def write_echo(folder: Path, dtypes: Sequence[DType], shape: tuple[str, ...]) -> None:
    """A model that answers each of its inputs, one for each element type, as the output of the same name and "_"."""
    inputs = tuple(TensorSpec(dtype.name, dtype, shape) for dtype in dtypes)
    outputs = tuple(TensorSpec(f"{dtype.name}_", dtype, shape) for dtype in dtypes)
    infos = [
        [helper.make_tensor_value_info(spec.name, spec.dtype.onnx, list(shape)) for spec in specs]
        for specs in (inputs, outputs)
    ]
    nodes = [helper.make_node("Identity", [dtype.name], [f"{dtype.name}_"]) for dtype in dtypes]
    graph = helper.make_graph(nodes, "main", *infos)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    Bundle("echo", {"main": GraphPart(model, inputs, outputs)}).write(folder / "1")


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    repository = tmp_path_factory.mktemp("datatypes")
    # Apart, for the runtime cannot answer 8-bit floats to a model that takes texts.
    for kind, dtypes in KINDS.items():
        write_echo(repository / kind, dtypes, ("n", "k"))
        write_echo(repository / f"{kind}-scalar", dtypes, ())
    with serving(repository) as found:
        yield found


def ask(kind: type[Any], url: str, model: str, inputs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    if kind is Client:
        with Client(url) as client:
            return client.infer(model, inputs, **options)

    async def run() -> dict[str, Any]:
        async with AsyncClient(url) as client:
            return await client.infer(model, inputs, **options)

    return asyncio.run(run())


def random_bits(dtype: DType, shape: tuple[int, ...]) -> Any:
    """Any bits at all, those of numbers that are none included."""
    element = dtype.to_numpy()
    count = int(np.prod(shape))
    if dtype is DType.string:
        return np.resize(np.array(TEXTS, object), shape) if count else np.empty(shape, object)
    bits = np.random.default_rng(7).integers(0, 2 if dtype is DType.bool else 256, count * element.itemsize, np.uint8)
    return bits.view(element).reshape(shape)


def unaligned(array: Any) -> Any:
    if array.dtype == object:
        return array
    memory = np.zeros(array.nbytes + 1, np.uint8)
    moved = np.ndarray(array.shape, array.dtype, memory.data, 1)
    moved[...] = array
    return moved


def swapped(array: Any) -> Any:
    other = array.dtype.newbyteorder()
    # The types of ml_dtypes have no other byte order.
    return array.astype(other) if array.dtype.kind in "iuf" else array


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


LAYOUTS: dict[str, Callable[[DType], Any]] = {
    "rows": lambda dtype: random_bits(dtype, (3, 4)),
    "fortran": lambda dtype: np.asfortranarray(random_bits(dtype, (3, 4))),
    "transposed": lambda dtype: random_bits(dtype, (4, 3)).T,
    "strided": lambda dtype: random_bits(dtype, (6, 8))[::2, ::2],
    "reversed": lambda dtype: random_bits(dtype, (3, 4))[::-1, ::-1],
    "one row for all": lambda dtype: np.broadcast_to(random_bits(dtype, (1, 4)), (3, 4)),
    "unaligned": lambda dtype: unaligned(random_bits(dtype, (3, 4))),
    "other byte order": lambda dtype: swapped(random_bits(dtype, (3, 4))),
    "read only": lambda dtype: read_only(random_bits(dtype, (3, 4))),
    "no rows": lambda dtype: random_bits(dtype, (0, 4)),
    "no columns": lambda dtype: random_bits(dtype, (3, 0)),
    "large": lambda dtype: random_bits(dtype, (500, 100)),
}


def same_bits(answer: Any, given: Any) -> bool:
    if answer.shape != given.shape or answer.dtype != given.dtype.newbyteorder("="):
        return False
    if given.dtype == object:
        return bool(answer.tolist() == given.tolist())
    return bool(answer.tobytes() == given.astype(given.dtype.newbyteorder("=")).tobytes())


@CLIENTS
@WIRES
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", KINDS)
def test_every_datatype_in_every_layout(
    kind: Any, wire: str, layout: str, model: str, addresses: dict[str, str]
) -> None:
    given = {dtype.name: LAYOUTS[layout](dtype) for dtype in KINDS[model]}
    answer = ask(kind, f"{wire}://{addresses[wire]}", model, given)
    assert [name for name, array in given.items() if not same_bits(answer[f"{name}_"], array)] == []


@CLIENTS
@WIRES
@pytest.mark.parametrize("model", KINDS)
def test_scalars_of_every_datatype(kind: Any, wire: str, model: str, addresses: dict[str, str]) -> None:
    given = {dtype.name: random_bits(dtype, (1,)).reshape(()) for dtype in KINDS[model]}
    answer = ask(kind, f"{wire}://{addresses[wire]}", f"{model}-scalar", given)
    assert [name for name, array in given.items() if not same_bits(answer[f"{name}_"], array)] == []


GIVEN_TEXTS = {
    "list": [TEXTS],
    "bytes": np.array([TEXTS], object),
    "str": np.array([[text.decode() for text in TEXTS]], object),
}


@CLIENTS
@WIRES
@pytest.mark.parametrize("form", GIVEN_TEXTS)
def test_texts_keep_their_zero_bytes(kind: Any, wire: str, form: str, addresses: dict[str, str]) -> None:
    answer = ask(kind, f"{wire}://{addresses[wire]}", "texts", {"string": GIVEN_TEXTS[form]}, outputs=["string_"])
    assert answer["string_"].tolist() == [TEXTS]


UNSUPPORTED = {
    "complex": np.array([1 + 2j]),
    "dates": np.array(["2026-01-01"], "datetime64[D]"),
    "durations": np.array([3], "timedelta64[s]"),
    "records": np.zeros(2, [("a", "i4")]),
    "raw bytes": np.zeros(2, "V3"),
    "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    "objects": np.array([{}], object),
    "numbers and texts": np.array([1, "a"], object),
    "a list of both": [1, "a"],
    "ragged": [[1.0], [2.0, 3.0]],
    "4 bits": np.zeros(2, ml_dtypes.int4),
    "a set": {1, 2},
    "nothing": None,
}


@CLIENTS
@WIRES
@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_is_no_tensor_is_refused_before_anything_is_sent(kind: Any, wire: str, case: str) -> None:
    # Nobody listens there: had it been sent, the error would be Unavailable.
    with pytest.raises(errors.InvalidArgument, match="input 'x'"):
        ask(kind, f"{wire}://127.0.0.1:9", "m", {"x": UNSUPPORTED[case]})

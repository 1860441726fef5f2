from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tidemill.bundle import Bundle, GraphPart, open_bundle, open_foreign
from tidemill.bundle.manifest import BundleManifest
from tidemill.bundle.ranges import check_ranges, external_data
from tidemill.bundle.stored import file_entry
from tidemill.dtype import DType
from tidemill.errors import InvalidBundle
from tidemill.protocol.types import TensorSpec


def tensor(name: str = "w", **place: Any) -> TensorProto:
    made = TensorProto(name=name, data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": "w.bin"} | place).items():
        made.external_data.add(key=key, value=str(value))
    return made


X = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])


def model(*initializers: TensorProto, nodes: list[onnx.NodeProto] | None = None, **options: Any) -> onnx.ModelProto:
    used = nodes or [helper.make_node("Add", ["x", "w"], ["y"])]
    return helper.make_model(helper.make_graph(used, "g", [X], [Y], initializers), **options)


def body(name: str) -> onnx.GraphProto:
    output = helper.make_tensor_value_info("o", TensorProto.FLOAT, [3])
    return helper.make_graph([helper.make_node("Identity", [name], ["o"])], "b", [], [output], [tensor(name)])


def everywhere() -> onnx.ModelProto:
    """Data outside of the file in each place in which a tensor can stand."""
    constant = helper.make_node("Constant", [], ["c"], value=tensor("in a constant"))
    several = onnx.NodeProto(
        op_type="Odd", attribute=[onnx.AttributeProto(name="t", type=9, tensors=[tensor("in a list")])]
    )
    branch = helper.make_node("If", ["x"], ["y"], then_branch=body("in a body"))
    function = helper.make_function("f", "F", [], ["c"], [constant], [helper.make_opsetid("", 21)])
    made = model(tensor("initializer"), nodes=[several, branch], functions=[function])
    made.graph.sparse_initializer.add(values=tensor("sparse values"), indices=tensor("sparse indices"))
    return made


def test_data_is_found_wherever_it_hides(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(everywhere().SerializeToString())
    assert sorted(place.tensor for place in external_data(tmp_path / "m.onnx")) == [
        "in a body",
        "in a constant",
        "in a list",
        "initializer",
        "sparse indices",
        "sparse values",
    ]


HOSTILE = [
    ({"location": "../w.bin"}, "'../w.bin', which leads out of the bundle's folder"),
    ({"location": "a/../../w.bin"}, "leads out"),
    ({"location": "/etc/passwd"}, "leads out"),
    ({"location": "..\\w.bin"}, "leads out"),
    ({"location": "w.bin\0"}, "leads out"),
    ({"location": ""}, "leads out"),
    ({"location": "other.bin"}, "no file of the bundle|missing"),
    ({"location": "*/_ORT_MEM_ADDR_/*"}, "no file of the bundle|missing"),
    ({"offset": -1}, "offset '-1', expected a number >= 0"),
    ({"length": "-4"}, "length '-4', expected a number"),
    ({"offset": "0x4"}, "expected a number"),
    ({"offset": "٣"}, "expected a number"),
    ({"offset": 2**70}, "which has 12"),
    ({"offset": 4, "length": 12}, "bytes 4 to 16 of w.bin, which has 12"),
]


@pytest.mark.parametrize(("place", "text"), HOSTILE)
@pytest.mark.parametrize("foreign", [True, False])
def test_data_that_leaves_its_place_is_refused_before_a_runtime_sees_it(
    tmp_path: Path, place: dict[str, Any], text: str, foreign: bool
) -> None:
    part = GraphPart(model(), (TensorSpec("x", DType.float32, ("n", 3)),), (TensorSpec("y", DType.float32, ("n", 3)),))
    folder = Bundle("m", {"main": part}).write(tmp_path / "m").path
    (folder / "w.bin").write_bytes(bytes(12))
    (folder / "model.onnx").write_bytes(model(tensor(**place)).SerializeToString())
    manifest = BundleManifest.from_json((folder / "bundle.json").read_bytes())
    files = {name: file_entry(folder / name) for name in ("model.onnx", "w.bin")}
    (folder / "bundle.json").write_text(BundleManifest("m", manifest.graphs, files, 21).to_json())
    with pytest.raises(InvalidBundle, match=text):
        open_foreign(folder) if foreign else open_bundle(folder)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(12))
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "w.bin").symlink_to(tmp_path / "secret")
    (folder / "model.onnx").write_bytes(model(tensor()).SerializeToString())
    with pytest.raises(InvalidBundle, match="leads out of the bundle's folder"):
        open_foreign(folder)


def test_an_oversize_weights_header_is_refused_at_opening(tmp_path: Path) -> None:
    part = GraphPart(model(), (TensorSpec("x", DType.float32, ("n", 3)),), (TensorSpec("y", DType.float32, ("n", 3)),))
    folder = Bundle("m", {"main": part}, {"w": np.ones(3, np.float32)}).write(tmp_path / "m").path
    text = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes((2**40).to_bytes(8, "little") + text[8:])
    with pytest.raises(InvalidBundle, match=r"header is said to have 1099511627776 bytes; at most 100000000"):
        open_bundle(folder)


@pytest.mark.parametrize(
    "content",
    [b"\x3a\x05abc", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x3b", b"\x3a", b"\x3a\x80" + b"\x80" * 20],
)
def test_files_that_are_no_onnx(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(InvalidBundle, match=r"m\.onnx: the graph is no ONNX model"):
        check_ranges(tmp_path / "m.onnx", {})


def test_a_place_named_twice_and_graphs_without_end(tmp_path: Path) -> None:
    double = tensor()
    double.external_data.add(key="location", value="w2.bin")
    (tmp_path / "m.onnx").write_bytes(model(double).SerializeToString())
    with pytest.raises(InvalidBundle, match="names the location of its data twice"):
        check_ranges(tmp_path / "m.onnx", {"w.bin": 12, "w2.bin": 12})
    deep = body("w")
    for _ in range(25):
        deep = helper.make_graph([helper.make_node("If", ["x"], ["y"], then_branch=deep)], "b", [], [])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(deep).SerializeToString())
    with pytest.raises(InvalidBundle, match="nested over 64 deep"):
        check_ranges(tmp_path / "m.onnx", {"w.bin": 12})


@given(st.binary(max_size=80))
def test_any_bytes_are_judged_without_another_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(content)
    with suppress(InvalidBundle):
        check_ranges(path, {})

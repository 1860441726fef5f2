"""Models compute the same without their functions, and their nodes tell where they were called."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from tidemill.bundle.expansion import ExpansionLimits, check_expansion, function_uses
from tidemill.bundle.fingerprint import fingerprint
from tidemill.bundle.graphs import read_graph
from tidemill.bundle.inline import inline_functions
from tidemill.bundle.skeleton import Skeleton, read_skeleton
from tidemill.bundle.wire import has_functions
from tidemill.errors import InvalidBundle

_MODEL = '<ir_version: 10, opset_import: ["" : 21, "f" : 1]>\n'
_FUNCTION = '<domain: "f", opset_import: ["" : 21, "f" : 1]>\n'

NESTED = (
    "g (float[N] x) => (float[N] y) { [first] a = f.outer (x) [second] y = f.outer (a) }",
    "outer (x) => (y) { [inner] h = f.inner (x) [neg] y = Neg (h) }",
    "inner (x) => (y) { c = Constant <value_float = 2.0> () y = Mul (x, c) }",
)
ATTRIBUTES = (
    "g (float[N] x) => (float[N] y) { a = f.outer <slope = 0.5> (x) y = f.outer (a) }",
    "outer <slope: float = 0.25> (x) => (y) { y = f.inner <alpha: float = @slope> (x) }",
    "inner <alpha> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }",
)
OPTIONAL = (
    "g (float[N] x) => (float[N] y) <float high = {1.5}> { a = f.clip (x, , high) y = f.clip (a) }",
    "clip (x, low, high) => (y) { y = Clip (x, low, high) }",
)
PASSED_THROUGH = (
    "g (float[N] x) => (float[N] y, float[N] z, float[N] w) { y, z, w = f.three (x) }",
    "three (x) => (x, y, y) { y = Neg (x) }",
)
UNUSED_OUTPUTS = (
    "g (float[N] x) => (float[N] y) { _, y = f.two (x) z = f.two (y) }",
    "two (x) => (a, b) { a = Neg (x) b = Abs (x) }",
)
BRANCHES = (
    "g (float[N] x, bool c) => (float[N] y) { y = f.pick (x, c) }",
    """pick (x, c) => (y) {
        d = Neg (x)
        y = If (c) <
            then_branch = t () => (float[N] r) { h = Mul (x, d) r = f.twice (h) },
            else_branch = e () => (float[N] r) { r = f.twice (d) }
        >
    }""",
    "twice (x) => (y) { y = Add (x, x) }",
)
CALL_IN_BRANCH = (
    """g (float[N] x, bool c) => (float[N] y) {
        y = If (c) <
            then_branch = t () => (float[N] r) { r = f.twice (x) },
            else_branch = e () => (float[N] r) { h = f.twice (x) r = f.twice (h) }
        >
    }""",
    "twice (x) => (y) { h = Add (x, x) y = Identity (h) }",
)
TAKEN_NAMES = (
    # The graph has already the names that the calls would lead to.
    "g (float[N] x) => (float[N] y) <float a__h = {3.0}> { [a] t = f.double (x) [a__Add] y = Mul (t, a__h) }",
    "double (x) => (y) { h = Add (x, x) y = Identity (h) }",
)
X = np.array([-2, -0.5, 1, 3], np.float32)

MODELS = {
    "nested": NESTED,
    "attributes": ATTRIBUTES,
    "optional": OPTIONAL,
    "branches": BRANCHES,
    "call-in-branch": CALL_IN_BRANCH,
    "taken-names": TAKEN_NAMES,
    "no-functions": ("g (float[N] x) => (float[N] y) { y = Neg (x) }",),
}


def model_of(graph: str, *functions: str) -> onnx.ModelProto:
    """A model from its text; "__" stands for the dot, which the parser does not take in names."""
    model = parser.parse_model(_MODEL + graph + "".join(f"\n{_FUNCTION}{function}" for function in functions))
    for node in model.graph.node:
        node.name = node.name.replace("__", ".")
        node.input[:] = [name.replace("__", ".") for name in node.input]
    for tensor in model.graph.initializer:
        tensor.name = tensor.name.replace("__", ".")
    return model


def skeleton_of(model: onnx.ModelProto) -> Skeleton:
    return read_skeleton(model.SerializeToString())


def run(model: onnx.ModelProto, condition: bool) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {"x": X, "c": np.array(condition)}
    return session.run(None, {node.name: feed[node.name] for node in session.get_inputs()})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("condition", [True, False])
def test_the_flat_model_computes_the_same(name, condition):
    model = model_of(*MODELS[name])
    before = model.SerializeToString(deterministic=True)

    flat = inline_functions(model)

    onnx.checker.check_model(flat, full_check=True)
    assert (len(flat.functions), model.SerializeToString(deterministic=True)) == (0, before)
    for ours, runtimes in zip(run(flat, condition), run(model, condition), strict=True):
        np.testing.assert_array_equal(ours, runtimes)


@pytest.mark.parametrize(
    ("model", "expected"),
    [(PASSED_THROUGH, lambda x: [x, -x, -x]), (UNUSED_OUTPUTS, lambda x: [np.abs(x)])],
    ids=["passed-through", "unused-outputs"],
)
def test_calls_that_the_runtime_itself_cannot_inline(model, expected):
    outputs = run(inline_functions(model_of(*model)), True)

    for found, wanted in zip(outputs, expected(X), strict=True):
        np.testing.assert_array_equal(found, wanted)


BRANCHES_BYTES = model_of(*BRANCHES).SerializeToString()


def test_nodes_are_named_by_the_path_of_calls():
    flat = inline_functions(model_of(*NESTED))

    assert [node.name for node in flat.graph.node] == [
        "first.inner.Constant",
        "first.inner.Mul",
        "first.neg",
        "second.inner.Constant",
        "second.inner.Mul",
        "second.neg",
    ]
    assert [entry.domain for entry in flat.opset_import] == [""]


def test_the_runtime_names_the_layer_when_a_kernel_fails():
    model = model_of(
        "g (int64[N] x) => (float[N] y) <float[2] t = {1, 2}> { [layers__7] y = f.look (t, x) }",
        "look (t, x) => (y) { [table] y = Gather (t, x) }",
    )
    session = ort.InferenceSession(inline_functions(model).SerializeToString(), providers=["CPUExecutionProvider"])
    options = ort.RunOptions()
    options.log_severity_level = 4

    with pytest.raises(Exception, match=r"Name:'layers\.7\.table'"):
        session.run(None, {"x": np.array([5])}, options)


def doubling(levels: int) -> onnx.ModelProto:
    """A kilobyte that stands for 2 ** levels nodes."""
    functions = [f"f{n} (x) => (y) {{ h = f.f{n + 1} (x) y = f.f{n + 1} (h) }}" for n in range(levels)]
    return model_of("g (float x) => (float y) { y = f.f0 (x) }", *functions, f"f{levels} (x) => (y) {{ y = Neg (x) }}")


@pytest.mark.parametrize(("levels", "depth"), [(0, 1), (3, 4), (10, 11)])
def test_expansion_is_counted(levels, depth):
    found = check_expansion(skeleton_of(doubling(levels)))

    assert (found.nodes, found.depth) == (2**levels, depth)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (doubling(18), "262144 nodes when its functions are written out; at most 200000"),
        (doubling(28), "268435456 nodes"),
        (doubling(60), "deeper than 32 within each other"),
        (model_of("g (float x) => (float y) { y = f.a (x) }", "a (x) => (y) { y = f.a (x) }"), "'a' calls itself"),
        (
            model_of(
                "g (float x) => (float y) { y = f.a (x) }",
                "a (x) => (y) { y = f.b (x) }",
                "b (x) => (y) { y = f.a (x) }",
            ),
            "'a' calls itself",
        ),
    ],
)
def test_bombs_are_refused_at_once(model, text):
    with pytest.raises(InvalidBundle, match=text):
        inline_functions(model)


def test_limits_can_be_set_and_bodies_count():
    model = skeleton_of(model_of(*BRANCHES))

    assert check_expansion(model).nodes == 2 + 2 + 1
    with pytest.raises(InvalidBundle, match="at most 4 are loaded"):
        check_expansion(model, ExpansionLimits(nodes=4))
    with pytest.raises(InvalidBundle, match="deeper than 2"):
        check_expansion(model, ExpansionLimits(depth=2))


def test_uses_of_functions_are_counted_through_each_other():
    uses = {use.name: (use.nodes, use.calls) for use in function_uses(skeleton_of(model_of(*NESTED)))}

    assert uses == {"outer": (3, 2), "inner": (2, 2)}


@pytest.mark.parametrize("name", MODELS)
def test_functions_are_seen_in_the_file_without_reading_it(name, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(model_of(*MODELS[name]).SerializeToString())

    assert has_functions(file) == (name != "no-functions")
    assert read_graph(file) == model_of(*MODELS[name])


@pytest.mark.parametrize("content", [b"", b"\xff\xff", b"\x0a\x05", b"text that is no model"])
def test_what_is_no_model_is_left_to_the_parser(tmp_path, content):
    file = tmp_path / "model.onnx"
    file.write_bytes(content)

    assert has_functions(file) in (True, False)
    with contextlib.suppress(InvalidBundle):
        read_skeleton(content)


@given(cut=st.integers(0, 600), place=st.integers(0, 600), byte=st.integers(0, 255))
def test_a_damaged_model_is_an_invalid_bundle_at_worst(cut, place, byte):
    content = bytearray(BRANCHES_BYTES[:cut])
    if place < len(content):
        content[place] = byte

    with contextlib.suppress(InvalidBundle):
        check_expansion(read_skeleton(bytes(content)))


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no model")

    with pytest.raises(InvalidBundle, match=r"model\.onnx is no ONNX model"):
        read_graph(tmp_path / "model.onnx")


def test_a_fingerprint_is_of_the_computation_only():
    model, moved, other = model_of(*BRANCHES), model_of(*BRANCHES), model_of(*NESTED)
    for nodes in (moved.graph.node, moved.functions[0].node):
        nodes[0].metadata_props.add(key="source", value="app:12")
    moved.functions[0].node[1].attribute[0].g.node[0].doc_string = "why"
    moved.producer_version = "2"

    prints = [fingerprint(each.SerializeToString()) for each in (model, moved, other)]

    assert prints[0] == prints[1] != prints[2]

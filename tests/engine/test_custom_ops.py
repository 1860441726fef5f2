"""Custom extensions are libraries of ONNX Runtime operators for this machine, or are refused before they are loaded."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from tidemill.engine import InferenceSession, Instance, InstanceOptions
from tidemill.errors import LoadFailed

X = np.ones((1, 4), np.float32)


@pytest.fixture
def build_library(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def build(source: str):
        library = tmp_path / "ops.so"
        (tmp_path / "ops.c").write_text(source)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "ops.c"], check=True)
        return library

    return build


def test_a_library_is_registered_with_the_session(linear, weight, build_library, stack):
    library = build_library("void *RegisterCustomOps(void *options, const void *api) { return 0; }")

    for model in (
        InferenceSession().load(linear, {"l_weight": weight}, custom_extensions=[str(library)]),
        InferenceSession(custom_extensions=[library]).load(linear, {"l_weight": weight}, custom_extensions=[library]),
        InferenceSession().load(replace(linear, custom_extensions=(library,)), {"l_weight": weight}),
    ):
        np.testing.assert_array_equal(model(X)[0].to_numpy(), X)
    Instance.open(stack, InstanceOptions(custom_ops=(library,)))


def test_a_library_of_something_else_is_named(linear, weight, build_library):
    library = build_library("int answer(void) { return 42; }")

    with pytest.raises(LoadFailed, match=r"ops\.so"):
        InferenceSession().load(linear, {"l_weight": weight}, custom_extensions=[library])


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("ops.mojo", None, "is Mojo, which only MAX runs; an extension is a library of ONNX Runtime operators"),
        ("ops.mojopkg", b"", "is Mojo"),
        ("ops.so", None, "ops.so does not exist"),
        ("", None, "is a folder"),
        ("ops.py", b"import os", "is no library of this system"),
        ("ops.so", b"", "is no library of this system"),
        ("ops.so", b"\x7fELF" + bytes(14) + b"\xf3\x00", "is built for processor 243, this machine is"),
    ],
)
@pytest.mark.parametrize("where", ["session", "load", "graph"])
def test_what_is_no_library_is_refused_at_once(linear, weight, tmp_path, where, name, content, text):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    given = {where: [path]}

    with pytest.raises(ValueError, match=text):
        InferenceSession(custom_extensions=given.get("session", ())).load(
            replace(linear, custom_extensions=tuple(given.get("graph", ()))),
            {"l_weight": weight},
            custom_extensions=given.get("load", ()),
        )

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import load_file, save_file

from tidemill.driver import Buffer
from tidemill.dtype import DType
from tidemill.weights import open_safetensors, read_header, write_safetensors

BASE = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "array",
    [
        BASE.T,
        np.asfortranarray(BASE),
        BASE[:, ::2],
        BASE[::-1],
        np.broadcast_to(BASE[0], (4, 3)),
        BASE.astype(">f4"),
        BASE[0, 0],
        BASE[:0],
        np.frombuffer(b"\0" + BASE.tobytes(), np.float32, offset=1),
    ],
    ids=["transposed", "fortran", "strided", "reversed", "broadcast", "big-endian", "scalar", "empty", "unaligned"],
)
def test_any_layout_is_written_by_value(tmp_path: Path, array: Any) -> None:
    array = np.asarray(array)
    before = array.copy()
    write_safetensors(tmp_path / "w.safetensors", {"w": array})
    for read in (load_file(tmp_path / "w.safetensors")["w"], open_safetensors(tmp_path / "w.safetensors")["w"]):
        assert read.shape == array.shape
        np.testing.assert_array_equal(read, array)
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.safetensors], ids=str)
def test_every_element_type_comes_back_bit_for_bit(tmp_path: Path, dtype: DType) -> None:
    array = np.arange(2, dtype=np.float32).astype(dtype.to_numpy())
    write_safetensors(tmp_path / "w.safetensors", {"w": array})
    read = open_safetensors(tmp_path / "w.safetensors")["w"]
    assert read.dtype == array.dtype
    assert read.tobytes() == array.tobytes()


def test_a_bfloat16_file_made_by_hand(tmp_path: Path) -> None:
    text = b'{"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}'
    values = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + values.tobytes())
    read = open_safetensors(tmp_path / "w.safetensors")["w"]
    assert read.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(read, values)


def test_views_are_read_only_lazy_and_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"w": BASE}, path)
    view = open_safetensors(path)["w"]
    path.unlink()
    assert not view.flags.writeable
    assert not view.flags.owndata
    np.testing.assert_array_equal(view, BASE)


def test_every_tensor_is_aligned_to_its_element(tmp_path: Path) -> None:
    tensors = {"a": np.ones(3, np.int8), "b": np.ones(1, np.float64), "c": np.ones(1, np.float16)}
    write_safetensors(tmp_path / "w.safetensors", tensors, metadata={"origin": "tëst"})
    header = read_header(tmp_path / "w.safetensors")
    assert all(entry.offset % entry.require_dtype().align == 0 for entry in header.tensors.values())
    assert header.metadata == {"origin": "tëst"}
    assert dict(load_file(tmp_path / "w.safetensors")).keys() == tensors.keys()


def test_buffers_are_written(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "w.safetensors", {"w": Buffer.from_numpy(BASE)})
    np.testing.assert_array_equal(load_file(tmp_path / "w.safetensors")["w"], BASE)


@pytest.mark.parametrize("array", [np.ones(1, ml_dtypes.float8_e5m2fnuz), np.array([b"a"], object)])
def test_a_type_without_a_name_leaves_the_old_file(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    path = tmp_path / "w.safetensors"
    write_safetensors(path, {"w": BASE})
    with pytest.raises(TypeError, match="weight 'bad'"):
        write_safetensors(path, {"w": BASE.T, "bad": array})
    np.testing.assert_array_equal(open_safetensors(path)["w"], BASE)
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_empty_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "w.safetensors", {})
    assert dict(open_safetensors(tmp_path / "w.safetensors")) == {}
    assert load_file(tmp_path / "w.safetensors") == {}


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(min_size=1, max_size=4), npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_side=0)))
)
def test_reading_inverts_writing(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Any]) -> None:
    kept = {name: array for name, array in tensors.items() if array.dtype.kind in "biuf" and array.itemsize <= 8}
    path = tmp_path_factory.mktemp("w") / "w.safetensors"
    write_safetensors(path, kept)
    read = open_safetensors(path)
    assert read.keys() == kept.keys()
    for name, array in kept.items():
        np.testing.assert_array_equal(read[name], array)

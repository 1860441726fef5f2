from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from tidemill.dtype import DType
from tidemill.weights import MemoryStore, read_header
from tidemill.weights.header import parse_header, read_header_from


def file_bytes(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str, shape: Any, begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_what_safetensors_writes(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": np.ones((2, 3), np.float32), "b": np.zeros(5, np.int8)}, path, metadata={"format": "np"})
    header = read_header(path)
    a, b = header.tensors["a"], header.tensors["b"]
    assert (a.dtype, a.shape, a.offset, a.length) == (DType.float32, (2, 3), header.data_start, 24)
    assert (b.dtype, b.shape, b.offset) == (DType.int8, (5,), header.data_start + 24)
    assert header.metadata == {"format": "np"}
    assert header.data_start % 8 == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "has 0 bytes, too few"),
        (b"\0" * 7, "has 7 bytes, too few"),
        ((10**9).to_bytes(8, "little"), "at most 100000000 are read"),
        ((2**64 - 1).to_bytes(8, "little"), "at most 100000000 are read"),
        (file_bytes({})[:-1], "the file has only 9"),
        (file_bytes(b"\xff\xff"), "not the JSON"),
        (file_bytes(b"["), "not the JSON"),
        (file_bytes(b"[" * 200_000), "not the JSON"),
        (file_bytes(b"[]"), "is a JSON list"),
        (file_bytes(b'{"a":1,"a":1}'), "'a' stands twice"),
        (file_bytes({"__metadata__": {"a": 1}}), "must map strings to strings"),
        (file_bytes({"a": 1}), "'a' must have exactly"),
        (file_bytes({"a": {"dtype": "F32", "shape": []}}), "'a' must have exactly"),
        (file_bytes({"a": tensor("F32", [-1], 0, 4)}, b"1234"), "shape .-1."),
        (file_bytes({"a": tensor("F32", [True], 0, 4)}, b"1234"), "shape .True."),
        (file_bytes({"a": tensor("F32", "x", 0, 4)}, b"1234"), "shape 'x'"),
        (file_bytes({"a": tensor("F32", [1], -4, 0)}), "data_offsets"),
        (file_bytes({"a": tensor("F32", [1], 4, 0)}, b"1234"), "data_offsets"),
        (file_bytes({"a": tensor("F32", [1], 0, 4.0)}, b"1234"), "data_offsets"),
        (file_bytes({"a": tensor("F32", [2], 0, 4)}, b"1234"), r"has 4 bytes, F32 \[2\]"),
        (file_bytes({"a": tensor("F32", [2**62, 2**62, 0], 0, 4)}, b"1234"), "has 4 bytes"),
        (
            file_bytes({"a": tensor("F32", [1], 0, 4)}, b"123"),
            "'a' and 'the end of the file' there are 1 bytes too few",
        ),
        (file_bytes({"a": tensor("F32", [1], 0, 4)}, b"12345"), "1 bytes that belong to no tensor"),
        (file_bytes({"a": tensor("F32", [1], 4, 8)}, b"12345678"), "'the header' and 'a' there are 4 bytes that"),
        (file_bytes({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 2, 6)}, b"123456"), "2 bytes too few"),
    ],
)
def test_hostile_headers_are_refused_with_the_fact(content: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=f"^w.safetensors: .*{text}"):
        read_header_from(MemoryStore({"w.safetensors": content}), "w.safetensors")


def test_unknown_element_types_are_refused_only_when_used() -> None:
    header = read_header_from(MemoryStore({"w": file_bytes({"a": tensor("F4", [4], 0, 2)}, b"12")}), "w")
    entry = header.tensors["a"]
    assert (entry.dtype, entry.type_name) == (None, "F4")
    with pytest.raises(TypeError, match="'a' has element type F4"):
        entry.require_dtype()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read_header(tmp_path / "absent.safetensors")


@given(st.dictionaries(st.text(max_size=5).filter(lambda name: name != "__metadata__"), st.integers(0, 4), max_size=4))
def test_any_names_and_sizes(sizes: dict[str, int]) -> None:
    content = save({name: np.zeros((size, 2), np.int16) for name, size in sizes.items()})
    header = read_header_from(MemoryStore({"w": content}), "w")
    assert {name: entry.shape for name, entry in header.tensors.items()} == {n: (s, 2) for n, s in sizes.items()}


@given(st.binary(max_size=40), st.integers(0, 100))
def test_no_bytes_raise_anything_but_value_error(text: bytes, size: int) -> None:
    with suppress(ValueError):
        parse_header(text, size, Path("w"))

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tidemill.errors import InvalidArgument
from tidemill.protocol.safetensors_body import from_safetensors, to_safetensors

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "none": np.zeros((0, 3), np.int64),
    "scalar": np.array(7, np.uint8),
    "half": np.array([1.5], np.float16),
    "flags": np.array([True, False]),
}


def test_the_official_library_reads_what_is_written_and_writes_what_is_read() -> None:
    body = b"".join(to_safetensors(TENSORS, {"id": "7"}))
    official = safetensors.numpy.load(body)
    found, metadata = from_safetensors(safetensors.numpy.save(TENSORS, {"id": "7"}))
    assert metadata == {"id": "7"}
    assert official.keys() == found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        for read in (official[name], found[name]):
            assert (read.dtype, read.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(read, array)


def test_bfloat16_is_exact() -> None:
    array = np.array([1.5, -0.0], ml_dtypes.bfloat16)
    found, _ = from_safetensors(b"".join(to_safetensors({"a": array}, {})))
    assert found["a"].tobytes() == array.tobytes()


def document(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(start: Any, end: Any, shape: Any = (1,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no safetensors document"),
        (b"\xff" * 8, "header length"),
        (document(b"{"), "not JSON"),
        (document([]), "not an object"),
        (document({"__metadata__": {"a": 1}}), "object of strings"),
        (document({"a": entry(0, 4)}), "have 0 bytes, the header describes 4"),
        (document({"a": entry(0, 4)}, bytes(5)), "have 5 bytes, the header describes 4"),
        (document({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)), "'b' starts at byte 0"),
        (document({"a": entry(4, 8)}, bytes(8)), "'a' starts at byte 4"),
        (document({"a": entry(4, 0)}, bytes(4)), "a start and an end"),
        (document({"a": entry(-4, 0)}, bytes(4)), "a start and an end"),
        (document({"a": entry(0, 4.5)}, bytes(4)), "two whole numbers"),
        (document({"a": 3}), "two whole numbers"),
        (document({"a": entry(0, 4, [2])}, bytes(4)), "4 bytes, expected 8"),
        (document({"a": entry(0, 4, [-1])}, bytes(4)), "must not be negative"),
        (document({"a": entry(0, 4, "x")}, bytes(4)), "expected a list"),
        (document({"a": entry(0, 4, [1], "F99")}, bytes(4)), "unknown safetensors dtype"),
        (document({"a": entry(0, 4, [1], [])}, bytes(4)), "unknown safetensors dtype"),
    ],
)
def test_damaged_and_hostile_documents(body: bytes, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        from_safetensors(body)


def test_text_has_no_form() -> None:
    with pytest.raises(InvalidArgument, match="output 'y' is BYTES"):
        to_safetensors({"y": np.array([b"a"], np.object_)}, {})

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors.numpy import save

from tidemill.dtype import DType
from tidemill.weights import Cache, CacheOptions, Checkpoint, StoreOptions, open_checkpoint
from tidemill.weights.check import WeightKeys, WeightSpec
from tidemill.weights.conversion import Conversion, Converted, find_conversions, require_convertible
from tidemill.weights.progress import log_progress, progress_for, terminal_progress
from tidemill.weights.report import report_weights

A = np.arange(64, dtype=np.float32).reshape(2, 32)


@pytest.fixture
def cache(tmp_path: Path, patience: StoreOptions) -> Cache:
    return Cache(tmp_path / "cache", CacheOptions(store=patience))


def write_gguf(path: Path) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("plain", A)
    writer.add_tensor("half", A.astype(np.float16))
    writer.add_tensor("brain", gguf.quants.quantize(A, GGMLQuantizationType.BF16), raw_dtype=GGMLQuantizationType.BF16)
    writer.add_tensor("q8", gguf.quants.quantize(A, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    found = open_checkpoint(tmp_path / "m.gguf", rename={"w.**": "pl**"})
    assert sorted(found) == ["brain", "half", "q8", "w.ain"]
    np.testing.assert_array_equal(found["w.ain"], A)
    assert found["half"].dtype == np.float16
    np.testing.assert_array_equal(found["brain"], A.astype(ml_dtypes.bfloat16))
    np.testing.assert_allclose(found["q8"], A, atol=0.3)
    assert (found["q8"].dtype, found["q8"].shape) == (np.float32, (2, 32))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 40, b"nothing at all, really nothing"])
def test_files_that_are_no_gguf(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.gguf cannot be read as a GGUF file"):
        open_checkpoint(tmp_path / "m.gguf")


def test_remote_shards_are_cached_and_mapped(site: Any, cache: Cache) -> None:
    site.put("m/1 of 2.safetensors", save({"a": A}))
    site.put("m/2.safetensors", save({"b": A + 1}))
    index = {"weight_map": {"a": "1 of 2.safetensors", "b": "2.safetensors"}}
    url = site.put("m/x.safetensors.index.json", json.dumps(index).encode())
    found = open_checkpoint(url, cache=cache, rename={"x.*": "*"})
    assert isinstance(found, Checkpoint)
    np.testing.assert_array_equal(found["x.b"], A + 1)
    downloads = site.downloads
    assert downloads == 3
    open_checkpoint(url, cache=cache)
    assert site.downloads == downloads


@pytest.mark.parametrize("outside", ["../1.safetensors", "/1.safetensors", "http://host/1.safetensors"])
def test_b34_a_remote_index_names_only_what_lies_beside_it(site: Any, cache: Cache, outside: str) -> None:
    url = site.put("m/x.index.json", json.dumps({"weight_map": {"a": outside}}).encode())
    with pytest.raises(ValueError, match="shards must be"):
        open_checkpoint(url, cache=cache)


def test_a_remote_gguf_and_a_signed_url(site: Any, cache: Cache, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    url = site.put("m.gguf", (tmp_path / "m.gguf").read_bytes())
    np.testing.assert_array_equal(open_checkpoint(url, cache=cache)["plain"], A)
    signed = site.put("w.safetensors", save({"a": A})) + "?signature=secret"
    np.testing.assert_array_equal(open_checkpoint(signed, cache=cache)["a"], A)
    assert "secret" not in "".join(path.read_text() for path in (cache.root / "records").iterdir())


SPECS = {"w": WeightSpec(DType.float16, (2,)), "norm": WeightSpec(DType.float32, (2,))}


def test_only_what_was_asked_for_is_converted() -> None:
    arrays = {"m.w": np.array([1, 2], np.float32), "m.norm": np.array([3, 4], np.float32), "n": np.array([1])}
    changes = find_conversions(SPECS, arrays, WeightKeys({"**": "m.**"}), require_convertible("float16"))
    assert changes == {"m.w": Conversion(DType.float32, DType.float16)}
    found = Converted(arrays, changes)
    assert {key: array.dtype.name for key, array in found.items()} == {
        "m.w": "float16",
        "m.norm": "float32",
        "n": "int64",
    }


def test_a_conversion_that_would_lose_a_number_is_refused() -> None:
    arrays = {"w": np.array([1, 70_000, np.inf], np.float32)}
    with pytest.raises(ValueError, match="weight 'w' holds 70000, which float16 cannot"):
        Converted(arrays, {"w": Conversion(DType.float32, DType.float16)})["w"]
    assert Converted(arrays, {"w": Conversion(DType.float32, DType.bfloat16)})["w"][2] == np.inf


@pytest.mark.parametrize("name", ["int8", "float8_e4m3fn", "half"])
def test_types_that_weights_are_not_converted_to(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"cannot be converted to '\w+'; known are float64, float32, float16, bfloat16"
    ):
        require_convertible(name)


def test_the_report() -> None:
    report = report_weights(SPECS, ["m.w", "m.alias", "x", "y"], WeightKeys({"**": "m.**"}, {"alias": "w"}))
    assert (report.used, report.missing, report.unexpected) == ({"w": "m.w"}, ("norm",), ("x", "y"))
    assert str(report) == "1 weights used; 1 missing: norm; 2 unexpected: x, y"


def test_progress_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidemill.weights")
    times = iter([0.0, 5.0, 11.0, 11.0, 12.0])
    with log_progress("w", 4_000_000, clock=lambda: next(times)) as advance:
        advance(1_000_000)
        advance(1_000_000)
    assert [record.message for record in caplog.records] == [
        "fetching w: 4.0 MB",
        "fetching w: 2.0 of 4.0 MB",
        "fetched w: 2.0 MB in 12.0 s",
    ]


def test_progress_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal_progress("weights", 100) as advance:
        advance(100)
    assert "weights" in capsys.readouterr().err


def test_a_bar_only_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert progress_for(Terminal()) is terminal_progress
    assert progress_for(io.StringIO()) is log_progress


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", enc_w=np.arange(6, dtype=np.float32).reshape(2, 3))
    found = open_checkpoint(tmp_path / "w.npz", rename={"encoder.weight": "enc_w"})
    assert list(found) == ["encoder.weight"]
    np.testing.assert_array_equal(found["encoder.weight"], [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("kind", ["pickled", "single", "empty", "cut"])
def test_files_that_are_no_npz(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, a=np.array([{}], object) if kind == "pickled" else np.ones(3))
    if kind == "single":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    elif kind != "pickled":
        path.write_bytes(b"" if kind == "empty" else path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"w\.npz cannot be read as a numpy archive"):
        open_checkpoint(path)

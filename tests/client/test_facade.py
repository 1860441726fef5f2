"""What `tidemill.client` exports, and what it says when an extra is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidemill.client


def test_exported_names() -> None:
    assert tidemill.client.__all__ == ["AsyncClient", "AsyncModel", "Client", "InferOptions", "Model", "Settings"]
    for name in tidemill.client.__all__:
        assert getattr(tidemill.client, name).__name__ == name


@pytest.mark.parametrize(("missing", "works", "extra"), [("hpack", "http", "grpc"), ("orjson", "grpc", "client")])
def test_a_missing_extra_is_named_and_spares_the_other_wire(missing: str, works: str, extra: str) -> None:
    fails = {"http": "grpc", "grpc": "http"}[works]
    program = f"""
import sys
sys.modules[{missing!r}] = None
from tidemill.client import Client
Client("{works}://localhost").close()
try:
    Client("{fails}://localhost")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert f'pip install "tidemill[{extra}]"' in done.stdout


def test_the_import_is_light() -> None:
    program = "import sys, tidemill.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    heavy = {
        "asyncio",
        "fastapi",
        "google",
        "grpc",
        "httpx",
        "ml_dtypes",
        "onnx",
        "onnxruntime",
        "pydantic",
        "safetensors",
        "starlette",
    }
    assert loaded & heavy == set()


def test_types_that_numpy_lacks_are_known_when_they_are_asked_for() -> None:
    program = """
from tidemill.dtype import DType
assert DType.from_numpy("bfloat16") is DType.bfloat16
assert DType.from_numpy(DType.float8_e5m2.to_numpy()) is DType.float8_e5m2
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'HttpClient'"):
        _ = tidemill.client.HttpClient

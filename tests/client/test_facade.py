"""What `tidemill.client` exports, and what it says when an extra is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidemill.client


def test_exported_names() -> None:
    assert tidemill.client.__all__ == ["AsyncGrpcClient", "AsyncHttpClient", "GrpcClient", "HttpClient"]
    for name in tidemill.client.__all__:
        assert getattr(tidemill.client, name).__name__ == name


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Client'"):
        _ = tidemill.client.Client


@pytest.mark.parametrize(
    ("missing", "name", "works", "extra"),
    [("grpc", "GrpcClient", "HttpClient", "grpc"), ("httpx", "HttpClient", "GrpcClient", "client")],
)
def test_a_missing_extra_is_named_and_spares_the_other_client(missing: str, name: str, works: str, extra: str) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from tidemill.client import {works}
try:
    from tidemill.client import {name}
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert f'pip install "tidemill[{extra}]"' in done.stdout

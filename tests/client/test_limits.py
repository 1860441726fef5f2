"""A request above the server's limit is an error that names the limit, over both wires, and spares the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from zoo_server import serving

from tidemill import errors
from tidemill.client import Client


@pytest.fixture(scope="module")
def addresses(all_models: Path) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_MAX_REQUEST_BYTES", str(6_000_000))
        with serving(all_models) as found:
            yield found


@pytest.mark.parametrize("wire", ["http", "grpc"])
def test_below_the_limit_passes_and_above_it_is_told(wire: str, addresses: dict[str, str]) -> None:
    fits, exceeds = np.ones((600_000, 2), np.float32), np.ones((800_000, 2), np.float32)
    with Client(f"{wire}://{addresses[wire]}") as client:
        with pytest.raises(errors.TooLarge, match=r"6000000|6,000,000"):
            client.infer("two", {"x": exceeds})
        answer = client.infer("two", {"x": fits})
    np.testing.assert_array_equal(answer["y"], fits + 1)
    np.testing.assert_array_equal(answer["z"], fits * 2)

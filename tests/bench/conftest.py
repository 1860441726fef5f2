from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from measured_server import serving_with_shared_memory


@pytest.fixture(scope="session")
def server(all_models: Path) -> Iterator[dict[str, str]]:
    """The addresses, "http" and "grpc", of a server of tiny models that allows shared memory."""
    with serving_with_shared_memory(all_models) as addresses:
        yield addresses

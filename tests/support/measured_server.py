"""A real server of tiny models, for the tests of the load and of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from zoo_server import serving

__all__ = ["serving_with_shared_memory"]


@contextmanager
def serving_with_shared_memory(repository: Path) -> Iterator[dict[str, str]]:
    """Its addresses, "http" and "grpc"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_SYSTEM_SHARED_MEMORY", "true")
        with serving(repository) as addresses:
            yield {wire: f"{wire}://{address}" for wire, address in addresses.items()}

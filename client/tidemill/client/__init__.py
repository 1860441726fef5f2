"""Call a server of the Open Inference Protocol: tidemill, Triton, KServe or another.

`Client` and `AsyncClient` speak HTTP with `tidemill[client]` and gRPC with `tidemill[grpc]`; what a wire needs is
imported when a client of it is made, so that one works without the other's libraries.
"""

from __future__ import annotations

from tidemill.client.async_client import AsyncClient, AsyncModel
from tidemill.client.client import Client, Model
from tidemill.client.feed import InferOptions
from tidemill.client.settings import Settings

__all__ = ["AsyncClient", "AsyncModel", "Client", "InferOptions", "Model", "Settings"]

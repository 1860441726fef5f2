"""What both ends of a wire agree on: requests and answers as data, and how they look as bytes, JSON and messages.

The gRPC half (`tidemill.protocol.messages` and `.rpc`) needs protobuf and is imported by name.
"""

from tidemill.protocol.index import ModelIndex
from tidemill.protocol.signature import check_inputs, check_names
from tidemill.protocol.types import (
    Array,
    InferRequest,
    InferResponse,
    ModelMetadata,
    Parameter,
    RegionSlice,
    RequestedOutput,
    ServerMetadata,
    TensorSpec,
    Timing,
)

__all__ = [
    "Array",
    "InferRequest",
    "InferResponse",
    "ModelIndex",
    "ModelMetadata",
    "Parameter",
    "RegionSlice",
    "RequestedOutput",
    "ServerMetadata",
    "TensorSpec",
    "Timing",
    "check_inputs",
    "check_names",
]

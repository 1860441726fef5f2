"""Running models on ONNX Runtime."""

from tidemill.engine.batchability import BatchProof, batch_symbol, prove_batchable
from tidemill.engine.inference_session import InferenceSession
from tidemill.engine.instance import Instance, InstanceOptions
from tidemill.engine.model import Model
from tidemill.engine.threads import available_threads
from tidemill.engine.traced import TracedGraph, TracedModule

__all__ = [
    "BatchProof",
    "InferenceSession",
    "Instance",
    "InstanceOptions",
    "Model",
    "TracedGraph",
    "TracedModule",
    "available_threads",
    "batch_symbol",
    "prove_batchable",
]

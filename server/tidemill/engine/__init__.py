"""Running models on ONNX Runtime."""

from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.batchability import BatchProof, batch_symbol, prove_batchable
from tidemill.engine.inference_session import InferenceSession
from tidemill.engine.instance import Instance, InstanceOptions
from tidemill.engine.model import Model
from tidemill.engine.placement import Placement
from tidemill.engine.profiles import DimRange
from tidemill.engine.quantize import QuantizationReport, QuantizeOptions, quantize_bundle
from tidemill.engine.threads import available_threads
from tidemill.engine.traced import TracedGraph, TracedModule

__all__ = [
    "ArtifactCache",
    "BatchProof",
    "DimRange",
    "InferenceSession",
    "Instance",
    "InstanceOptions",
    "Model",
    "Placement",
    "QuantizationReport",
    "QuantizeOptions",
    "TracedGraph",
    "TracedModule",
    "available_threads",
    "batch_symbol",
    "prove_batchable",
    "quantize_bundle",
]

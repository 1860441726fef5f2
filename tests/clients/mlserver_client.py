"""Asks a server with MLServer's codecs, types and stubs; run by MLServer's environment, prints JSON."""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

import grpc
import numpy as np
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.grpc.converters import ModelInferRequestConverter, ModelInferResponseConverter
from mlserver.grpc.dataplane_pb2 import ModelMetadataRequest, ServerReadyRequest
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub
from mlserver.types import InferenceRequest, InferenceResponse, MetadataModelResponse, Parameters


def requests(*, text_as_bytes: bool) -> dict[str, InferenceRequest]:
    """One for each model; JSON has strings where gRPC has bytes."""
    found = {
        "two": InferenceRequest(
            id="the-id",
            inputs=[NumpyCodec.encode_input("x", np.array([[1, 2], [3, 4]], np.float32))],
            parameters=Parameters(content_type="np"),
        ),
        "gather": InferenceRequest(inputs=[NumpyCodec.encode_input("x", np.array([0, 3], np.int64))]),
        "strings": InferenceRequest(inputs=[StringCodec.encode_input("x", ["é😀", "", "a"], use_bytes=text_as_bytes)]),
    }
    # Its codecs write the shape of a row of strings and of single numbers with a last axis of 1.
    for name in ("gather", "strings"):
        found[name].inputs[0].shape = found[name].inputs[0].shape[:1]
    return found


def shown(response: InferenceResponse) -> dict[str, Any]:
    outputs = {}
    for output in response.outputs:
        codec = StringCodec if output.datatype == "BYTES" else NumpyCodec
        decoded = codec.decode_output(output)
        data = decoded if isinstance(decoded, list) else decoded.ravel().tolist()
        outputs[output.name] = {"datatype": output.datatype, "shape": list(output.shape), "data": data}
    return {"id": response.id, "model": response.model_name, "outputs": outputs}


def over_rest(url: str) -> dict[str, Any]:
    found: dict[str, Any] = {"answers": {}}
    for model, request in requests(text_as_bytes=False).items():
        sent = urllib.request.Request(
            f"{url}/v2/models/{model}/infer",
            request.model_dump_json(exclude_none=True).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(sent, timeout=30) as answer:
            found["answers"][model] = shown(InferenceResponse.model_validate_json(answer.read()))
    with urllib.request.urlopen(f"{url}/v2/models/two", timeout=30) as answer:
        metadata = MetadataModelResponse.model_validate_json(answer.read())
    found["metadata"] = [metadata.name, metadata.inputs[0].datatype, metadata.outputs[0].name]
    return found


def over_grpc(address: str) -> dict[str, Any]:
    found: dict[str, Any] = {"answers": {}}
    with grpc.insecure_channel(address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        found["ready"] = stub.ServerReady(ServerReadyRequest(), timeout=30).ready
        metadata = stub.ModelMetadata(ModelMetadataRequest(name="two"), timeout=30)
        found["metadata"] = [metadata.name, metadata.inputs[0].datatype, metadata.outputs[0].name]
        for model, request in requests(text_as_bytes=True).items():
            message = ModelInferRequestConverter.from_types(request, model_name=model, model_version="")
            answer = stub.ModelInfer(message, timeout=30)
            found["answers"][model] = shown(ModelInferResponseConverter.to_types(answer))
    return found


http, grpc_address = sys.argv[1:3]
print(json.dumps({"rest": over_rest(f"http://{http}"), "grpc": over_grpc(grpc_address)}))

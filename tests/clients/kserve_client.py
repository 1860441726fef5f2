"""Asks a server through KServe's own clients; run by KServe's environment, prints JSON, knows nothing of tidemill."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferInput, InferRequest
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig


def request(model: str, arrays: dict[str, Any]) -> InferRequest:
    inputs = []
    for name, (datatype, array) in arrays.items():
        one = InferInput(name, list(array.shape), datatype)
        one.set_data_from_numpy(array, binary_data=False)
        inputs.append(one)
    return InferRequest(model, inputs, request_id="the-id")


def shown(response: Any) -> dict[str, Any]:
    outputs = {}
    for output in response.outputs:
        array = output.as_numpy()
        values = [item.decode() if isinstance(item, bytes) else item for item in array.ravel().tolist()]
        outputs[output.name] = {"datatype": output.datatype, "shape": list(output.shape), "data": values}
    return {"id": response.id, "model": response.model_name, "outputs": outputs}


CASES = {
    "two": {"x": ("FP32", np.array([[1, 2], [3, 4]], np.float32))},
    "gather": {"x": ("INT64", np.array([0, 3], np.int64))},
    "strings": {"x": ("BYTES", np.array(["é😀", "", "a"], dtype=object))},
}


async def over_rest(url: str) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    found: dict[str, Any] = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model ready": await client.is_model_ready(url, "two"),
        "answers": {},
    }
    for model, arrays in CASES.items():
        found["answers"][model] = shown(await client.infer(url, request(model, arrays), model_name=model))
    binary = request("two", {})
    one = InferInput("x", [2, 2], "FP32")
    one.set_data_from_numpy(CASES["two"]["x"][1], binary_data=True)
    binary.inputs.append(one)
    found["binary"] = shown(await client.infer(url, binary, model_name="two"))
    try:
        await client.infer(url, request("gather", {"x": ("INT64", np.array([9], np.int64))}), model_name="gather")
    except Exception as error:
        found["refused"] = f"{type(error).__name__}: {error}"
    await client.close()
    return found


async def over_rest_v1(url: str) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v1", retries=0))
    answer = await client.infer(url, {"instances": [[1, 2], [3, 4]]}, model_name="sum")
    found = {"ready": await client.is_model_ready(url, "sum"), "answer": answer}
    await client.close()
    return found


async def over_grpc(address: str) -> dict[str, Any]:
    client = InferenceGRPCClient(address, retries=0)
    found: dict[str, Any] = {
        "live": await client.is_server_live(),
        "ready": await client.is_server_ready(),
        "model ready": await client.is_model_ready("two"),
        "answers": {},
    }
    for model, arrays in CASES.items():
        found["answers"][model] = shown(await client.infer(request(model, arrays)))
    try:
        await client.infer(request("gather", {"x": ("INT64", np.array([9], np.int64))}))
    except Exception as error:
        found["refused"] = str(error)
    await client.close()
    return found


async def main() -> None:
    http, grpc = sys.argv[1:3]
    url = f"http://{http}"
    found = {"rest": await over_rest(url), "v1": await over_rest_v1(url), "grpc": await over_grpc(grpc)}
    print(json.dumps(found))


asyncio.run(main())

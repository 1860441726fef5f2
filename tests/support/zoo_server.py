"""A real `tidemill serve` in a process of its own, and two clients that know nothing of tidemill."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype

__all__ = ["Ask", "ask_over", "hear", "serving"]

Ask = Callable[..., dict[str, Any]]
"""Asks a model, by name, about arrays by name; parameters of the request may follow."""

_LIMIT_SECONDS = 120.0


@contextmanager
def serving(repository: Path, *options: str) -> Iterator[dict[str, str]]:
    """The server's addresses, "http" and "grpc", and its "pid"."""
    command = [
        sys.executable,
        "-m",
        "tidemill.cli",
        "serve",
        str(repository),
        "--http-port",
        "0",
        "--grpc-port",
        "0",
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        limit = threading.Timer(_LIMIT_SECONDS, server.kill)
        limit.start()
        try:
            assert server.stdout is not None
            ready = re.search(r"https?://(\S+) and grpcs?://(\S+)", server.stdout.readline())
            limit.cancel()
            assert ready, f"no ready line within {_LIMIT_SECONDS} s"
            yield {"http": ready[1], "grpc": ready[2], "pid": str(server.pid)}
        finally:
            limit.cancel()
            server.terminate()


def ask_over(wire: str, addresses: Mapping[str, str]) -> Ask:
    """Asks through Triton's client, over "http" or "grpc"."""
    module: Any = {"http": tritonclient.http, "grpc": tritonclient.grpc}[wire]
    client = module.InferenceServerClient(addresses[wire])

    def ask(model: str, inputs: Mapping[str, Any], parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        tensors = []
        for name, array in inputs.items():
            tensors.append(module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
            tensors[-1].set_data_from_numpy(array)
        answer = client.infer(model, tensors, parameters=dict(parameters) if parameters else None)
        response = answer.get_response()
        outputs = response["outputs"] if wire == "http" else response.outputs
        names = [output["name"] if wire == "http" else output.name for output in outputs]
        return {name: answer.as_numpy(name) for name in names}

    return ask


def hear(wire: str, address: str, sequence: int | str, chunks: Any) -> list[float]:
    """Sends chunks of sound to silero-vad as one sequence, through Triton's client; returns the probabilities."""
    module: Any = {"http": tritonclient.http, "grpc": tritonclient.grpc}[wire]
    answers = []
    with module.InferenceServerClient(address) as client:
        for place, chunk in enumerate(chunks):
            tensor = module.InferInput("audio", [1, *chunk.shape], np_to_triton_dtype(chunk.dtype))
            tensor.set_data_from_numpy(chunk[None])
            flags = {"sequence_start": not place, "sequence_end": place == len(chunks) - 1}
            answer = client.infer("silero-vad", [tensor], sequence_id=sequence, **flags)
            assert answer.as_numpy("next_hidden") is None
            answers.append(float(answer.as_numpy("probability")[0]))
    return answers

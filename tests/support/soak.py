"""A mixed load on a real server while its models are replaced under it, and an account of every request."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

CANCELLED, BAD = 0.05, 0.01
LEVELS = 3
RELOAD_SECONDS = 2.0


@dataclass
class Account:
    """What became of the requests; `faults` is what must stay empty."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        told = ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))
        return f"seed {self.seed}: {told}; versions answered {len(self.versions)}"


@dataclass
class Soak:
    """One run of the load.

    Attributes:
        http: The server's REST address.
        grpc: Its gRPC address.
        repository: The folder that it serves: "two", "gather" and "v", whose version number is its answer.
        put_version: Writes a whole version of "v".
        clients: How many callers, half of them over each face.
        seconds: How long.
    """

    http: str
    grpc: str
    repository: Path
    put_version: Callable[[int], None]
    clients: int = 128
    seconds: float = 10.0
    seed: int = 0
    clock: Callable[[], float] = time.monotonic

    async def run(self) -> Account:
        """Ask, cancel, send nonsense and reload until the time is over; return when every request is accounted for."""
        account, ends = Account(self.seed), self.clock() + self.seconds
        limits = httpx.Limits(max_connections=self.clients)
        async with (
            httpx.AsyncClient(base_url=f"http://{self.http}", timeout=60, limits=limits) as rest,
            triton.InferenceServerClient(self.grpc) as grpc,
        ):
            callers = [
                self._caller(self._over_rest(rest) if number % 2 else self._over_grpc(grpc), number, account, ends)
                for number in range(self.clients)
            ]
            await asyncio.wait_for(asyncio.gather(self._reload(rest, account, ends), *callers), self.seconds + 60)
        return account

    async def _caller(self, ask: Ask, number: int, account: Account, ends: float) -> None:
        dice = random.Random(f"{self.seed}/{number}")
        while self.clock() < ends:
            kind = "bad" if dice.random() < BAD else dice.choice(["two", "v"])
            request = asyncio.create_task(ask(kind, dice))
            account.counts["sent"] += 1
            if dice.random() < CANCELLED:
                await asyncio.sleep(dice.random() * 0.003)
                request.cancel()
            try:
                model, fault = await request
            except asyncio.CancelledError:
                account.counts["cancelled"] += 1
                continue
            account.counts["answered" if kind != "bad" else "refused"] += 1
            if fault:
                account.faults.append(fault)
            if model:
                account.versions.add(model)

    def _over_rest(self, client: httpx.AsyncClient) -> Ask:
        async def ask(kind: str, dice: random.Random) -> tuple[str, str]:
            rows = dice.randint(1, 4)
            x = [[dice.randint(0, 9), number] for number in range(rows)]
            name, tensor = _tensor(kind, x)
            body = {"inputs": [tensor], "parameters": {"priority": dice.randint(1, LEVELS)}}
            answer = await client.post(f"/v2/models/{name}/infer", json=body)
            if kind == "bad":
                return "", "" if answer.status_code == 422 else f"REST {kind} {answer.status_code} {answer.text}"
            if answer.status_code != 200:
                return "", f"REST {kind} {answer.status_code} {answer.text}"
            told = answer.json()
            values = np.array(told["outputs"][0]["data"], np.float32).reshape(told["outputs"][0]["shape"])
            return _judge("REST", kind, x, told["model_version"], values)

        return ask

    def _over_grpc(self, client: triton.InferenceServerClient) -> Ask:
        async def ask(kind: str, dice: random.Random) -> tuple[str, str]:
            rows = dice.randint(1, 4)
            x = [[dice.randint(0, 9), number] for number in range(rows)]
            name, tensor = _tensor(kind, x)
            given = triton.InferInput("x", tensor["shape"], tensor["datatype"])
            dtype = np.int64 if kind == "bad" else np.float32
            given.set_data_from_numpy(np.array(tensor["data"], dtype).reshape(tensor["shape"]))
            try:
                answer = await client.infer(name, [given], priority=dice.randint(1, LEVELS))
            except InferenceServerException as error:
                expected = kind == "bad" and "INVALID_ARGUMENT" in str(error.status())
                return "", "" if expected else f"gRPC {kind} {error}"
            if kind == "bad":
                return "", "gRPC took what is bad"
            values = answer.as_numpy("y")
            assert values is not None
            return _judge("gRPC", kind, x, answer.get_response().model_version, values)

        return ask

    async def _reload(self, client: httpx.AsyncClient, account: Account, ends: float) -> None:
        """Every two seconds a new version of "v", each third of them broken."""
        version = max(int(folder.name) for folder in (self.repository / "v").iterdir() if folder.is_dir())
        while self.clock() + RELOAD_SECONDS < ends:
            await asyncio.sleep(RELOAD_SECONDS)
            version += 1
            broken = version % 3 == 0
            if broken:
                folder = self.repository / "v" / str(version)
                folder.mkdir()
                (folder / "model.onnx").write_bytes(b"this is no model")
            else:
                await asyncio.to_thread(self.put_version, version)
            answer = await client.post("/v2/repository/models/v/load")
            account.counts["broken loads" if broken else "loads"] += 1
            if (answer.status_code == 200) == broken:
                account.faults.append(f"load of version {version}: {answer.status_code} {answer.text}")
            if broken:
                shutil.rmtree(folder)


Ask = Callable[[str, random.Random], Coroutine[Any, Any, tuple[str, str]]]
"""Sends one request of a kind; returns which version of "v" answered, and what is wrong with the answer."""


def _tensor(kind: str, x: list[list[int]]) -> tuple[str, dict[str, Any]]:
    if kind == "bad":
        return "gather", {"name": "x", "shape": [1], "datatype": "INT64", "data": [99]}
    rows = [row[:1] for row in x] if kind == "v" else x
    data = [value for row in rows for value in row]
    return kind, {"name": "x", "shape": [len(rows), len(rows[0])], "datatype": "FP32", "data": data}


def _judge(face: str, kind: str, x: list[list[int]], version: str, values: Any) -> tuple[str, str]:
    """The version that answered, and what is wrong with its answer."""
    given = np.array(x, np.float32)
    expected = given + 1 if kind == "two" else np.full((len(x), 1), float(version), np.float32)
    if values.shape != expected.shape or not np.array_equal(values, expected):
        return "", f"{face} {kind} version {version} answered {values.tolist()} to {x}"
    return (version if kind == "v" else ""), ""

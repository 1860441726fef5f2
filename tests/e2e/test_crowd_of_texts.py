"""Two hundred texts at once from a real server, some given up, some refused: none is another's, and all is let go."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from byte_tokenizer import END
from talker import Oracle, write_talker
from zoo_server import serving

CROWD, ROUNDS, KINDS = 200, 2, 6


def body(number: int) -> dict[str, Any]:
    prompt = f"{number % KINDS} " * (1 + 5 * (number % KINDS))
    return {"model": "talker", "prompt": prompt, "temperature": 0, "max_tokens": 4 + 6 * (number % 7)}


async def whole(client: httpx.AsyncClient, number: int) -> str:
    answer = (await client.post("/v1/completions", json=body(number))).json()
    return str(answer["choices"][0]["text"])


async def streamed(client: httpx.AsyncClient, number: int) -> str:
    response = await client.post("/v1/completions", json=body(number) | {"stream": True})
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1])


async def given_up(client: httpx.AsyncClient, number: int) -> str:
    asked = body(number) | {"stream": True, "max_tokens": 200, "ignore_eos": True}
    async with client.stream("POST", "/v1/completions", json=asked) as response:
        async for _ in response.aiter_lines():
            break
    return "given up"


async def refused(client: httpx.AsyncClient, number: int) -> str:
    wrong = ({"max_tokens": 9999}, {"prompt": ""}, {"temperature": -1}, {"model": "nobody"})[number % 4]
    response = await client.post("/v1/completions", json=body(number) | wrong)
    assert response.status_code in (400, 404)
    return "refused"


def memory(pid: str) -> int:
    """Bytes that the process has in memory."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) << 10


async def visit(addresses: dict[str, str], expected: dict[tuple[int, int], str]) -> list[int]:
    """Every round of the crowd; the memory after each."""
    random, sizes = np.random.default_rng(11), []
    limits = httpx.Limits(max_connections=CROWD)
    async with httpx.AsyncClient(base_url=f"http://{addresses['http']}", timeout=120, limits=limits) as client:
        for _ in range(ROUNDS):
            kinds = random.choice([whole, streamed, given_up, refused], CROWD, p=[0.4, 0.35, 0.15, 0.1])
            answers = await asyncio.gather(*(kind(client, number) for number, kind in enumerate(kinds)))
            for number, (kind, answer) in enumerate(zip(kinds, answers, strict=True)):
                if kind in (whole, streamed):
                    assert answer == expected[number % KINDS, number % 7]
            sizes.append(memory(addresses["pid"]))
            print(Counter(kind.__name__ for kind in kinds), sizes[-1] >> 20, "MB")
        metrics = (await client.get("/metrics")).text
        ready = await client.get("/v2/health/ready")
        assert ready.status_code == 200
    left = {line.split("{")[0]: float(line.split()[-1]) for line in metrics.splitlines() if 'model="talker"' in line}
    assert (left["tidemill_generation_running"], left["tidemill_generation_waiting"]) == (0, 0)
    return sizes


def test_a_crowd_of_texts(tmp_path: Path) -> None:
    write_talker(tmp_path / "talker")
    oracle = Oracle(tmp_path / "talker")
    expected = {}
    for number in range(CROWD):
        made = oracle.greedy(body(number)["prompt"], body(number)["max_tokens"], [END])
        expected[number % KINDS, number % 7] = oracle.text(made)
    with serving(tmp_path) as addresses:
        sizes = asyncio.run(visit(addresses, expected))
    assert sizes[-1] < sizes[0] * 1.05 + (4 << 20)

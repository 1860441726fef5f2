"""The graph of a served model as the console shows it, and the console's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tidemill.serving import Server, ServerConfig

Connect = Callable[[Server], httpx.AsyncClient]
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_graph_holds_nodes_and_no_weights(shared_server: Server, connect: Connect) -> None:
    answer = await connect(shared_server).get("/v2/models/two/graph")
    assert answer.status_code == 200
    graph = answer.json()
    assert (graph["inputs"], graph["outputs"], graph["truncated"]) == (["x"], ["y", "z"], False)
    assert [(node["op"], node["inputs"], node["outputs"]) for node in graph["nodes"]] == [
        ("Add", ["x", "one"], ["y"]),
        ("Mul", ["x", "two"], ["z"]),
    ]
    assert set(graph["weights"]) == {"one", "two"}
    assert answer.content == (await connect(shared_server).get("/v2/models/two/versions/1/graph")).content


@pytest.mark.parametrize(("path", "status"), [("nothing/graph", 404), ("two/versions/7/graph", 404)])
async def test_a_graph_that_is_not_there_is_told(
    shared_server: Server, connect: Connect, path: str, status: int
) -> None:
    answer = await connect(shared_server).get(f"/v2/models/{path}")
    assert answer.status_code == status
    assert answer.json()["error"]


async def test_the_console_lets_nothing_from_elsewhere_in(shared_server: Server, connect: Connect) -> None:
    client = connect(shared_server)
    page = await client.get("/")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http" not in page.text.replace("http-equiv", "")
    for part in ("main.js", "chart.js", "form.js", "graph.js", "metrics.js", "console.css", "icon.svg"):
        assert (await client.get(f"/console/{part}")).status_code == 200
    for path in ("/console/index.html", "/console/..%2fapp.py", "/console/", "/console/console.py"):
        assert (await client.get(path)).status_code == 404


async def test_the_console_can_be_left_out(write_model: Callable[..., Path], connect: Connect) -> None:
    server = Server([write_model("two")], ServerConfig(http_port=0, grpc_port=0, console=False))
    await server.start()
    assert (await connect(server).get("/")).status_code == 404
    assert (await connect(server).get("/console/main.js")).status_code == 404
    await server.stop()

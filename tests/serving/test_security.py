"""Keys and TLS, spoken to over both faces and both lanes with clients that know nothing of tidemill."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from certificates import Authority, Files
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from tidemill.cli import main
from tidemill.protocol import rpc
from tidemill.serving import Server, ServerConfig
from tidemill.serving.grpc.guard import GROUPS_BY_METHOD
from tidemill.serving.http.guard import group_of

INFER, ADMIN = "key-for-inference-1", "key-for-everything-else"
KEYS = f"inference: {INFER}\nall: {ADMIN}\n"
BODY = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
Start = Callable[..., Awaitable[Server]]

lanes = pytest.mark.parametrize("fast", [True, False], ids=["fast lane", "normal lane"])


@pytest.fixture
async def start(write_model: Callable[..., Path]) -> AsyncIterator[Start]:
    running: list[Server] = []

    async def start(**settings: Any) -> Server:
        running.append(Server([write_model("two")], ServerConfig(http_port=0, grpc_port=0, **settings)))
        await running[-1].start()
        await running[-1].load()
        return running[-1]

    yield start
    for server in running:
        await server.stop()


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    (tmp_path / "keys.yaml").write_text(KEYS)
    return tmp_path / "keys.yaml"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def infer(client: httpx.AsyncClient, key: str | None = None, header: str = "x-api-key") -> httpx.Response:
    return await client.post("/v2/models/two/infer", json=BODY, headers={header: key} if key else {})


def tensor() -> triton.InferInput:
    given = triton.InferInput("x", [1, 2], "FP32")
    given.set_data_from_numpy(np.array([[1, 2]], np.float32))
    return given


@lanes
async def test_the_right_key_is_let_in_and_no_other(start: Start, keys_file: Path, fast: bool) -> None:
    server = await start(keys_file=keys_file, http_fast_lane=fast, grpc_fast_lane=fast)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        for _ in range(3):  # a head that is known is no way in either
            assert (await infer(client, INFER)).status_code == 200
            assert (await infer(client, f"Bearer {INFER}", "authorization")).status_code == 200
            for key, header in ((None, ""), (ADMIN, "x-api-key"), (f"Basic {INFER}", "authorization")):
                refused = await infer(client, key, header)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
                assert "inference" in refused.json()["error"]
        page = (await client.get("/metrics", headers={"x-api-key": ADMIN})).text
    assert 'tidemill_requests_total{code="unauthenticated",model="",protocol="rest",version=""} 9.0' in page
    assert INFER not in page


@pytest.mark.parametrize(
    ("method", "path", "group"),
    [
        ("GET", "/v2/health/live", "health"),
        ("GET", "/v2/health/ready", "health"),
        ("GET", "/v2/models/two/ready", "health"),
        ("GET", "/v1/models/two", "health"),
        ("GET", "/v2", "metadata"),
        ("GET", "/v2/models", "metadata"),
        ("GET", "/v2/models/two", "metadata"),
        ("GET", "/v2/models/two/versions/1/config", "metadata"),
        ("GET", "/v2/models/two/graph", "metadata"),
        ("GET", "/v2/openapi.json", "metadata"),
        ("GET", "/v1/models", "metadata"),
        ("POST", "/v2/repository/index", "metadata"),
        ("POST", "/v2/models/two/infer", "inference"),
        ("POST", "/v2/models/two/versions/1/infer", "inference"),
        ("POST", "/v2/models/two/generate", "inference"),
        ("POST", "/v2/models/two/generate_stream", "inference"),
        ("POST", "/v1/models/two:predict", "inference"),
        ("GET", "/v2/systemsharedmemory/status", "inference"),
        ("POST", "/v2/systemsharedmemory/region/a/register", "inference"),
        ("GET", "/metrics", "statistics"),
        ("GET", "/v2/models/stats", "statistics"),
        ("GET", "/v2/models/two/versions/1/stats", "statistics"),
        ("POST", "/v2/repository/models/two/load", "repository"),
        ("POST", "/v2/repository/models/two/unload", "repository"),
        ("GET", "/v2/trace/setting", "settings"),
        ("POST", "/v2/models/two/trace/setting", "settings"),
        ("GET", "/v2/logging", "settings"),
        ("POST", "/v2/logging", "settings"),
    ],
)
async def test_every_route_belongs_to_a_group(start: Start, tmp_path: Path, method: str, path: str, group: str) -> None:
    (tmp_path / "keys.yaml").write_text(f"{group}: {ADMIN}\n")
    server = await start(keys_file=tmp_path / "keys.yaml")
    assert group_of(path) == group
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        assert (await client.request(method, path)).status_code == 401
        assert (await client.request(method, path, headers={"x-api-key": ADMIN})).status_code != 401


@pytest.mark.parametrize("path", ["/v2/models/two/infer", "/metrics", "/v2/logging", "/v2/models/two/stats"])
@pytest.mark.parametrize("end", ["%0A", "%0D%0A", "%00", "%7F"])
async def test_no_odd_end_of_a_path_is_a_way_around_the_keys(start: Start, tmp_path: Path, path: str, end: str) -> None:
    (tmp_path / "keys.yaml").write_text(f"all: {ADMIN}\n")
    server = await start(keys_file=tmp_path / "keys.yaml")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        for method in ("GET", "POST"):
            answer = await client.request(method, path + end, content=json.dumps(BODY) if method == "POST" else None)
            assert answer.status_code in (401, 404)


async def test_no_route_is_without_a_group(start: Start) -> None:
    """What is new and fits no rule would be open to everybody."""
    from tidemill.serving.http.app import create_app

    app = create_app((await start()).service)
    included = [route for part in app.routes for route in getattr(part, "original_router", app).routes]
    paths = {route.path for route in [*app.routes, *included] if hasattr(route, "path")}
    assert "/v2/repository/models/{model}/load" in paths
    free = {path for path in paths if group_of(path) is None}
    assert free == {"/", "/docs", *(path for path in paths if path.startswith("/console/"))}
    assert set(GROUPS_BY_METHOD) == {method.name for method in rpc.METHODS}


async def test_grpc_wants_the_same_keys(start: Start, keys_file: Path) -> None:
    server = await start(keys_file=keys_file)
    async with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        for headers in ({"x-api-key": INFER}, {"authorization": f"Bearer {INFER}"}):
            answer = await client.infer("two", [tensor()], headers=headers)
            np.testing.assert_array_equal(answer.as_numpy("y"), [[2, 3]])
        for headers in (None, {"x-api-key": ADMIN}):
            with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
                await client.infer("two", [tensor()], headers=headers)
        with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
            await client.unload_model("two", headers={"x-api-key": INFER})
        await client.unload_model("two", headers={"x-api-key": ADMIN})
        with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
            await client.is_server_ready()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@lanes
async def test_keys_change_while_connections_stay(start: Start, keys_file: Path, fast: bool) -> None:
    server = await start(keys_file=keys_file, http_fast_lane=fast, grpc_fast_lane=fast)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        for _ in range(3):
            assert (await infer(client, INFER)).status_code == 200
        keys_file.write_text(f"all: {ADMIN}\n")
        server.renew()
        assert (await infer(client, INFER)).status_code == 401
        assert (await infer(client, ADMIN)).status_code == 200


async def test_keys_are_in_no_log(start: Start, keys_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = await start(keys_file=keys_file, log_level="debug")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        await infer(client, INFER)
        await infer(client, "a-key-that-is-wrong")
    keys_file.write_text(f"inference: {ADMIN}\n")
    server.renew()
    for secret in (INFER, ADMIN, "a-key-that-is-wrong"):
        assert secret not in caplog.text


@lanes
async def test_tls_on_both_faces(start: Start, authority: Authority, fast: bool) -> None:
    own = authority.issue("server")
    server = await start(tls_certificate=own.chain, tls_key=own.key, http_fast_lane=fast, grpc_fast_lane=fast)
    assert str(server).startswith("https://")
    trust = ssl.create_default_context(cafile=str(authority.path))
    async with httpx.AsyncClient(base_url=f"https://localhost:{server.http_port}", verify=trust) as client:
        for _ in range(3):
            assert (await infer(client)).json()["outputs"][0]["data"] == [2.0, 3.0]
    async with triton.InferenceServerClient(
        f"localhost:{server.grpc_port}", ssl=True, root_certificates=str(authority.path)
    ) as client:
        answer = await client.infer("two", [tensor()])
        np.testing.assert_array_equal(answer.as_numpy("y"), [[2, 3]])
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as plain:
        with pytest.raises(httpx.TransportError):
            await infer(plain)
    async with httpx.AsyncClient(base_url=f"https://localhost:{server.http_port}") as stranger:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await infer(stranger)


async def test_clients_must_show_a_certificate_that_is_trusted(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    own, caller = authority.issue("server"), authority.issue("caller")
    (tmp_path / "other").mkdir()
    foreign, expired = Authority(tmp_path / "other").issue("foreign"), authority.issue("expired", days=0)
    (tmp_path / "kept.pem").write_bytes(authority.path.read_bytes())
    server = await start(tls_certificate=own.chain, tls_key=own.key, tls_client_ca=authority.path)
    assert await _status(server, authority, caller) == 200
    for wrong in (None, foreign, expired):
        with pytest.raises(httpx.TransportError):
            await _status(server, authority, wrong)
        with pytest.raises(InferenceServerException):
            await _ask_grpc(server, authority, wrong)
    await _ask_grpc(server, authority, caller)
    (tmp_path / "next").mkdir()
    follower = Authority(tmp_path / "next", "follower")
    authority.path.write_bytes(follower.path.read_bytes() + "# Főtanúsítvány\n".encode())
    server.renew()
    other = follower.issue("newcomer")
    shown_by_server = ssl.create_default_context(cafile=str(tmp_path / "kept.pem"))
    assert await _status_trusting(server, shown_by_server, other) == 200
    with pytest.raises(httpx.TransportError):
        await _status_trusting(server, ssl.create_default_context(cafile=str(tmp_path / "kept.pem")), caller)
    authority.path.write_bytes((tmp_path / "kept.pem").read_bytes())
    server.renew()
    question = ["health", "--url", f"https://127.0.0.1:{server.http_port}", "--insecure"]
    shown = ["--certificate", str(own.chain), "--certificate-key", str(own.key)]
    assert await asyncio.to_thread(main, [*question, *shown]) == 0
    assert await asyncio.to_thread(main, question) == 1


async def test_a_renewed_certificate_counts_for_new_connections(start: Start, authority: Authority) -> None:
    own = authority.issue("server")
    server = await start(tls_certificate=own.chain, tls_key=own.key)
    trust = ssl.create_default_context(cafile=str(authority.path))
    first, first_grpc = await _serial(server.http_port), await _serial(server.grpc_port)
    async with httpx.AsyncClient(base_url=f"https://localhost:{server.http_port}", verify=trust) as client:
        assert (await infer(client)).status_code == 200
        authority.issue("server")
        server.renew()
        assert (await infer(client)).status_code == 200  # on the connection that was open
        assert await _serial(server.http_port) != first
        assert await _serial(server.grpc_port) != first_grpc
        own.key.write_text("nonsense")
        server.renew()
        assert (await infer(client)).status_code == 200
        assert await _serial(server.http_port) != first


async def _status(server: Server, authority: Authority, files: Files | None) -> int:
    return await _status_trusting(server, ssl.create_default_context(cafile=str(authority.path)), files)


async def _status_trusting(server: Server, trust: ssl.SSLContext, files: Files | None) -> int:
    if files:
        trust.load_cert_chain(files.chain, files.key)
    async with httpx.AsyncClient(base_url=f"https://localhost:{server.http_port}", verify=trust) as client:
        return (await infer(client)).status_code


async def _ask_grpc(server: Server, authority: Authority, files: Files | None) -> None:
    shown = {"private_key": str(files.key), "certificate_chain": str(files.chain)} if files else {}
    address = f"localhost:{server.grpc_port}"
    async with triton.InferenceServerClient(
        address, ssl=True, root_certificates=str(authority.path), **shown
    ) as client:
        await client.infer("two", [tensor()], client_timeout=5)


async def _serial(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown

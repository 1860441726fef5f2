"""A tiny server of each wire, built from the protocol's own functions, on a free port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tidemill.dtype import DType
from tidemill.errors import DeadlineExceeded, ModelNotFound, QueueFull, TidemillError
from tidemill.protocol import messages, rest, rpc
from tidemill.protocol.index import ModelIndex
from tidemill.protocol.metadata import format_index, format_model_metadata, format_server_metadata
from tidemill.protocol.status import status_of
from tidemill.protocol.types import InferRequest, InferResponse, ModelMetadata, ServerMetadata, TensorSpec

SERVER = ServerMetadata("echo", "1", ("binary_tensor_data",))
X_SPEC = TensorSpec("x", DType.float32, ("", 3))
MODEL = ModelMetadata("echo", ("1",), "echo", (X_SPEC,), (X_SPEC,))
INDEX = (ModelIndex("echo", "1", "READY"), ModelIndex("cold"))


class Echo:
    """Answers with its inputs; the models "full" and "stuck" fail as an overloaded or hanging server does."""

    def __init__(self) -> None:
        self.requests: list[InferRequest] = []
        self.peers: set[Any] = set()
        self.released = threading.Event()

    def infer(self, request: InferRequest) -> InferResponse:
        self.requests.append(request)
        if request.model_name == "full":
            raise QueueFull("the queue of 'full' holds 8 requests")
        if request.model_name == "stuck":
            self.released.wait(20)
            raise DeadlineExceeded("never answered")
        self.known(request.model_name)
        wanted = [output.name for output in request.outputs] or list(request.inputs)
        outputs = {name: request.inputs[name] for name in wanted}
        return InferResponse(request.model_name, request.model_version or "1", outputs, id=request.id)

    def known(self, name: str) -> None:
        if name != "echo":
            raise ModelNotFound(f"no model {name!r}")


@pytest.fixture
def echo() -> Iterator[Echo]:
    """What the servers answer with; stuck requests end with the test."""
    echo = Echo()
    yield echo
    echo.released.set()


@pytest.fixture
def http_address(echo: Echo) -> Iterator[str]:
    """host:port of an HTTP server around `echo`."""
    config = uvicorn.Config(_app(echo), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        echo.released.set()
        server.should_exit = True
        thread.join()


@pytest.fixture
def grpc_address(echo: Echo) -> Iterator[str]:
    """host:port of a gRPC server around `echo`."""
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", -1)])
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(rpc.SERVICE, _handlers(echo))])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        echo.released.set()
        server.stop(None).wait()


def _app(echo: Echo) -> Starlette:
    async def infer(request: Request) -> Response:
        echo.peers.add(request.client)
        length = rest.parse_header_length(request.headers.get(rest.HEADER_LENGTH))
        path = request.path_params
        asked = rest.parse_infer(await request.body(), length, model_name=path["name"], model_version=path["version"])
        length, parts = rest.format_infer_response(await run_in_threadpool(echo.infer, asked), asked)
        return Response(b"".join(parts), headers={rest.HEADER_LENGTH: str(length)} if length else {})

    async def infer_newest(request: Request) -> Response:
        request.path_params["version"] = ""
        return await infer(request)

    async def model(request: Request) -> Response:
        echo.known(request.path_params["name"])
        return JSONResponse(format_model_metadata(MODEL))

    async def server(request: Request) -> Response:
        return JSONResponse(format_server_metadata(SERVER))

    async def ready(request: Request) -> Response:
        return JSONResponse({"ready": True})

    async def index(request: Request) -> Response:
        return JSONResponse(format_index(INDEX))

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, TidemillError)
        return JSONResponse({"error": str(error)}, status_of(error).http)

    routes = [
        Route("/v2", server),
        Route("/v2/health/ready", ready),
        Route("/v2/repository/index", index, methods=["POST"]),
        Route("/v2/models/{name}", model),
        Route("/v2/models/{name}/ready", model),
        Route("/v2/models/{name}/infer", infer_newest, methods=["POST"]),
        Route("/v2/models/{name}/versions/{version}/infer", infer, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={TidemillError: failed})


def _handlers(echo: Echo) -> dict[str, Any]:
    def infer(message: Any) -> Any:
        return rpc.response_to_message(echo.infer(rpc.request_from_message(message)))

    def model(message: Any) -> Any:
        echo.known(message.name)
        return rpc.metadata_to_message(MODEL)

    def model_ready(message: Any) -> Any:
        echo.known(message.name)
        return messages.ModelReadyResponse(ready=True)

    answers = {
        "ModelInfer": infer,
        "ModelMetadata": model,
        "ModelReady": model_ready,
        "ServerMetadata": lambda _: rpc.server_metadata_to_message(SERVER),
        "ServerReady": lambda _: messages.ServerReadyResponse(ready=True),
        "RepositoryIndex": lambda _: rpc.index_to_message(INDEX),
    }
    methods = {method.name: method for method in rpc.METHODS}
    return {name: _handler(methods[name], answer) for name, answer in answers.items()}


def _handler(method: rpc.Method, answer: Any) -> Any:
    def handle(message: Any, context: Any) -> Any:
        try:
            return answer(message)
        except TidemillError as error:
            context.abort(grpc.StatusCode[status_of(error).grpc], str(error))

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=method.request.FromString, response_serializer=method.response.SerializeToString
    )

"""Every error class has a status on each wire, and clients get a class of the same code back."""

from __future__ import annotations

import grpc
import pytest

from tidemill import errors
from tidemill.errors import TidemillError
from tidemill.protocol.status import STATUSES, error_from_grpc, error_from_http, status_of

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_has_a_row(error: type[TidemillError]) -> None:
    assert error.code in STATUSES
    assert status_of(error("text")) is STATUSES[error.code]


@pytest.mark.parametrize("status", STATUSES.values())
def test_grpc_names_exist(status: tuple[int, str]) -> None:
    assert grpc.StatusCode[status[1]]


@pytest.mark.parametrize("status", {status.http for status in STATUSES.values()})
def test_http_status_survives_the_way_to_the_client(status: int) -> None:
    error = error_from_http(status, "the server's text")
    assert status_of(error).http == status
    assert str(error) == "the server's text"


@pytest.mark.parametrize("name", {status.grpc for status in STATUSES.values()})
def test_grpc_status_survives_the_way_to_the_client(name: str) -> None:
    assert status_of(error_from_grpc(name, "text")).grpc == name


@pytest.mark.parametrize(
    ("error", "http", "grpc_name"),
    [
        (errors.ModelNotFound, 404, "NOT_FOUND"),
        (errors.QueueFull, 503, "UNAVAILABLE"),
        (errors.ShuttingDown, 503, "UNAVAILABLE"),
        (errors.DeadlineExceeded, 504, "DEADLINE_EXCEEDED"),
        (errors.UnprocessableInput, 422, "INVALID_ARGUMENT"),
        (errors.InferenceFailed, 500, "INTERNAL"),
    ],
)
def test_rows_that_clients_rely_on(error: type[TidemillError], http: int, grpc_name: str) -> None:
    assert status_of(error("text")) == (http, grpc_name)


def test_unknown_statuses_keep_their_side() -> None:
    assert type(error_from_http(418, "teapot")) is errors.InvalidArgument
    assert type(error_from_http(599, "odd")) is TidemillError
    assert type(error_from_grpc("DATA_LOSS", "odd")) is TidemillError

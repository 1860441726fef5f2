"""The response cache behind both faces: counted as Triton counts it, and never in the way of an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from triton import CLIENTS, open_triton

from tidemill.errors import ConfigError
from tidemill.serving import Server, ServerConfig

WriteModel = Callable[..., Path]
StartServer = Callable[..., Awaitable[Server]]


@pytest.mark.parametrize("kind", CLIENTS)
async def test_hits_and_misses_are_told_as_triton_does(
    write_model: WriteModel, start_server: StartServer, kind: str
) -> None:
    server = await start_server(write_model("two", config={"response_cache": {"enable": True}}), cache_bytes=1 << 20)
    async with open_triton(kind, server) as triton:
        for value in (1, 1, 2, 1):
            x = triton.input("x", np.full((1, 2), value, np.float32), "FP32")
            assert (await triton.infer("two", x)).as_numpy("y").tolist() == [[value + 1] * 2]
        answer = await triton("get_inference_statistics", "two")
        (stats,) = answer["model_stats"]
        counted: dict[str, Any] = stats["inference_stats"]
    assert (int(counted["cache_hit"]["count"]), int(counted["cache_miss"]["count"])) == (2, 2)
    assert (int(counted["success"]["count"]), int(stats["inference_count"]), int(stats["execution_count"])) == (4, 2, 2)
    page = server.service.metrics.expose().decode()
    assert 'nv_cache_num_hits_per_model{model="two",version="1"} 2' in page
    assert 'nv_cache_num_misses_per_model{model="two",version="1"} 2' in page


async def test_without_a_cache_the_setting_has_no_effect(
    write_model: WriteModel, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server = await start_server(write_model("two", config={"response_cache": {"enable": True}}))
    assert "response_cache has no effect" in caplog.text
    assert server.service.find("two").direct is not None


def test_a_wrong_redis_url_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cache_redis is no URL"):
        Server([tmp_path], ServerConfig(cache_redis="nowhere"))

"""Ensembles behind both faces, judged by Triton's clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from triton import CLIENTS, open_triton

from tidemill.serving import Server

WriteModel = Callable[..., Path]
StartServer = Callable[..., Awaitable[Server]]


@pytest.mark.parametrize("kind", CLIENTS)
async def test_an_ensemble_looks_like_a_model(write_model: WriteModel, start_server: StartServer, kind: str) -> None:
    root = write_model("two")
    steps = [
        {"model": "two", "inputs": {"x": "given"}, "outputs": {"y": "more"}},
        {"model": "two", "inputs": {"x": "more"}, "outputs": {"z": "most"}},
    ]
    (root / "all").mkdir()
    (root / "all" / "model.yaml").write_text(
        yaml.safe_dump({"ensemble": {"steps": steps}, "labels": {"most": "labels.txt"}})
    )
    (root / "all" / "labels.txt").write_text("left\nright\n")
    server = await start_server(root)
    async with open_triton(kind, server) as triton:
        assert await triton("is_model_ready", "all")
        metadata = await triton("get_model_metadata", "all")
        assert (metadata["platform"], metadata["versions"]) == ("ensemble", ["1"])
        config = await triton("get_model_config", "all")
        config = config.get("config", config)
        assert [one["model_name"] for one in config["ensemble_scheduling"]["step"]] == ["two", "two"]
        given = triton.input("given", np.array([[1, 2]], np.float32), "FP32")
        answer = await triton.infer("all", given, outputs=[triton.output("most", class_count=1)], request_id="7")
        assert answer.as_numpy("most").tolist() == [[b"6.000000:1:right"]]
        (stats,) = (await triton("get_inference_statistics", "all"))["model_stats"]
        (member,) = (await triton("get_inference_statistics", "two"))["model_stats"]
        assert (int(stats["inference_count"]), int(member["inference_count"])) == (1, 2)
        assert (
            int(stats["inference_stats"]["success"]["count"]),
            int(member["inference_stats"]["success"]["count"]),
        ) == (1, 2)
        await triton("unload_model", "two")
        assert not await triton("is_model_ready", "all")
        await triton("load_model", "two")
        assert await triton("is_model_ready", "all")
    assert 'nv_inference_request_success{model="all",version="1"} 1' in server.service.metrics.expose().decode()

"""Optimised graphs kept between starts, as the operator's settings say, and where a model's nodes run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tidemill.errors import ConfigError
from tidemill.serving import Server, ServerConfig, load_server_config

WriteModel = Callable[..., Path]


async def _config(repository: Path, **settings: object) -> tuple[dict[str, str], str, str]:
    """The findings about the model "two", the metrics page, and why the server is not ready."""
    server = Server([repository], ServerConfig(http_port=0, grpc_port=0, **settings))
    await server.start()
    await server.load()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client:
        config = (await client.get("/v2/models/two/config")).json()
        page = (await client.get("/metrics")).text
    reason = server.service.not_ready_reason()
    await server.stop()
    found = {name: value["string_value"] for name, value in config.get("parameters", {}).items()}
    return found, page, reason


async def test_the_next_start_finds_what_the_last_one_made(write_model: WriteModel, tmp_path: Path) -> None:
    repository = write_model("two")
    states = [(await _config(repository, artifact_dir=tmp_path / "kept"))[0]["tidemill.artifact"] for _ in range(2)]
    assert states[0] in ("compiled", "declined")
    assert states[1] in ("hit", "declined")
    assert any((tmp_path / "kept").iterdir())
    assert (await _config(repository))[0]["tidemill.artifact"] == "off"


async def test_a_strict_server_compiles_nothing(write_model: WriteModel, tmp_path: Path) -> None:
    repository = write_model("two")
    _, _, reason = await _config(repository, artifact_dir=tmp_path / "kept", precompiled=True)
    assert "no usable artifact" in reason
    await _config(repository, artifact_dir=tmp_path / "kept")
    _, _, reason = await _config(repository, artifact_dir=tmp_path / "kept", precompiled=True)
    assert reason == ""


def test_strictness_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match="precompiled needs artifact_dir"):
        load_server_config(flags={"precompiled": True})


async def test_b29_what_runs_is_shown(write_model: WriteModel) -> None:
    found, page, _ = await _config(write_model("two"))
    assert found["tidemill.providers"] == "CPUExecutionProvider"
    assert found["tidemill.nodes"] == "CPUExecutionProvider 2"
    assert 'tidemill_model_nodes{model="two",provider="CPUExecutionProvider",version="1"} 2.0' in page


async def test_b29_a_device_that_is_not_there_fails_the_load_or_is_done_without_aloud(
    write_model: WriteModel, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    strict = write_model("two", config={"providers": ["cuda"]}, repository=tmp_path / "strict")
    _, _, reason = await _config(strict)
    assert "CUDAExecutionProvider" in reason
    lax = write_model("two", config={"providers": ["cuda", "cpu"], "allow_fallback": True}, repository=tmp_path / "lax")
    found, page, reason = await _config(lax)
    assert reason == ""
    assert found["tidemill.providers"] == "CPUExecutionProvider"
    assert 'provider="CPUExecutionProvider"' in page
    assert sum("CUDA" in record.getMessage() for record in caplog.records if record.levelname == "WARNING") == 1


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"providers": ["cudaa"]}, "did you mean 'cuda'"),
        ({"providers": ["cpu"], "provider_options": {"cpu": {"arena": 1}}}, "arena"),
    ],
)
async def test_b29_a_name_that_no_provider_or_option_has_is_a_fault_of_the_settings(
    write_model: WriteModel, config: dict[str, object], told: str
) -> None:
    _, _, reason = await _config(write_model("two", config=config))
    assert told in reason

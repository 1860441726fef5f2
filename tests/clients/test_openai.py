"""The openai package and LiteLLM, in an environment of their own, against a real server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from byte_tokenizer import END, byte_tokenizer
from talker import Oracle, write_talker
from words import write_words
from zoo_server import serving

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-clients" / "openai" / "bin" / "python"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("texts")
    write_talker(repository / "talker")
    write_words(repository / "words")
    return repository


@pytest.fixture(scope="module")
def found(models: Path) -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.skip("the environment of OpenAI's client is not there; make clients makes it")
    with serving(models) as addresses:
        command = [str(PYTHON), str(HERE / "openai_client.py"), addresses["http"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        assert httpx.get(f"http://{addresses['http']}/v2/health/ready").status_code == 200
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.fixture(scope="module")
def talk(models: Path) -> str:
    oracle = Oracle(models / "talker")
    return oracle.text(oracle.greedy("<talk>user:hi<end><talk>assistant:", 12, [END]))


def vector(text: str) -> list[float]:
    tokens = byte_tokenizer().encode(text)
    return [float(sum(tokens)), float(len(tokens))]


def test_openais_client(found: dict[str, Any], talk: str) -> None:
    told = found["openai"]
    assert (told["whole"], told["streamed"], told["extra"]) == (talk, talk, talk)
    assert told["finish"] in ("stop", "length")
    assert told["usage"]
    assert told["logprobs"] == 2
    assert set(told["models"]) == {"talker", "words"}
    assert told["model"] == "talker"
    assert len(told["completed"]) == 2
    assert told["vectors"] == [vector("a"), vector("bc")]
    assert told["floats"] == vector("a")


def test_its_errors(found: dict[str, Any]) -> None:
    expected = {
        "unknown": ["NotFoundError", 404, "model_not_found", None],
        "field": ["BadRequestError", 400, "invalid_argument", "temperature"],
        "long": ["BadRequestError", 400, "context_length_exceeded", None],
        "tools": ["BadRequestError", 400, "invalid_argument", "tools"],
    }
    assert found["refusals"] == {f"{name} {streams}": expected[name] for name in expected for streams in (False, True)}
    assert found["cancelled"]


def test_litellm(found: dict[str, Any], talk: str) -> None:
    told = found["litellm"]
    assert (told["whole"], told["streamed"], told["async"]) == (talk, talk, talk)
    assert told["usage"]
    assert told["vectors"] == [vector("a")]
    assert told["unknown"] == "NotFoundError"
    assert told["long"] in ("ContextWindowExceededError", "BadRequestError")

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidemill.batching import BatchRecord
from tidemill.bundle.config import RaggedConfig
from tidemill.dtype import DType
from tidemill.errors import ConfigError
from tidemill.protocol.types import InferRequest, TensorSpec
from tidemill.repository import Events, Repository
from tidemill.repository.padding import declare_ragged

WriteModel = Callable[..., Path]

TOKENS = [TensorSpec(name, DType.int64, ("n", "s")) for name in ("ids", "mask")]
SCORES = [TensorSpec("scores", DType.float32, ("n", "s", 2)), TensorSpec("label", DType.int64, ("n",))]


def declare(inputs: list[TensorSpec] = TOKENS, **config: Any) -> Any:
    return declare_ragged(RaggedConfig.model_validate(config), inputs, SCORES, "n")


def test_the_dim_is_the_one_that_the_padded_inputs_share() -> None:
    dim, ragged = declare(pad={"ids": 3, "mask": 0})
    assert dim == "s"
    assert (ragged.inputs, ragged.outputs) == ({"ids": (1,), "mask": (1,)}, {"scores": (1,)})
    assert ragged.mask is None


def test_a_mask_is_not_asked_of_callers() -> None:
    _, ragged = declare(pad={"ids": 0}, mask="mask")
    assert ragged.mask == ("mask", np.dtype(np.int64))
    assert ragged.inputs == {"ids": (1,)}


BIAS = TensorSpec("bias", DType.float32, ("n", "s", "t"))
LENGTH = TensorSpec("length", DType.int64, ("n",))


@pytest.mark.parametrize(
    ("inputs", "config", "fault"),
    [
        (TOKENS, {"pad": {"idz": 0}}, "no input 'idz'; it has ids, mask"),
        (TOKENS, {"pad": {"ids": 0}}, "input 'mask' has the dim 's' too and needs a pad value"),
        (TOKENS, {"pad": {"ids": 0.5, "mask": 0}}, r"ids: INT64\[n, s\] cannot be filled up with 0.5"),
        (TOKENS, {"pad": {"ids": "x", "mask": 0}}, "cannot be filled up with 'x'"),
        ([BIAS], {"pad": {"bias": 0}}, "these dims: s, t; say which one with `dim`"),
        ([LENGTH], {"pad": {"length": 0}}, "these dims: none"),
        ([*TOKENS, LENGTH], {"pad": {"ids": 0, "mask": 0, "length": 0}}, "has no dim 's'"),
        ([TOKENS[0], BIAS], {"pad": {"ids": 0}, "mask": "bias", "dim": "s"}, r"must have the shape \[n, s\]"),
    ],
)
def test_what_does_not_fit_is_refused(inputs: list[TensorSpec], config: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        declare(inputs, **config)


async def serve(root: Path) -> tuple[Repository, list[BatchRecord]]:
    records: list[BatchRecord] = []
    repository = Repository.open([root], Events(observer=lambda _: records.append))
    await repository.load_all()
    return repository, records


async def ask(repository: Repository, name: str, feed: Mapping[str, Any]) -> np.ndarray:
    return (await repository.get(name).infer(InferRequest(name, feed))).outputs["y"]


async def test_lengths_are_joined_and_answers_are_those_of_single_runs(write_model: WriteModel) -> None:
    ragged = {"pad": {"input_ids": 9, "attention_mask": 0}, "max_padding": 0.9}
    repository, records = await serve(write_model("tokens", config={"batching": {"ragged": ragged}}))
    feeds = [{"input_ids": np.full((1, n), n), "attention_mask": np.ones((1, n), np.int64)} for n in (1, 7, 3)]

    answers = await asyncio.gather(*(ask(repository, "tokens", feed) for feed in feeds))

    assert [answer.tolist() for answer in answers] == [[1], [49], [9]]
    assert [(record.rows, record.length) for record in records] == [(3, 7)]
    assert "padded together" in repository.get("tokens").config()["parameters"]["tidemill.padding"]["string_value"]
    repository.close()


async def test_the_server_makes_the_mask(write_model: WriteModel) -> None:
    ragged = {"pad": {"input_ids": 9}, "mask": "attention_mask", "max_padding": 0.9}
    repository, records = await serve(write_model("tokens", config={"batching": {"ragged": ragged}}))
    assert [spec.name for spec in repository.get("tokens").inputs] == ["input_ids"]

    answers = await asyncio.gather(*(ask(repository, "tokens", {"input_ids": np.full((2, n), n)}) for n in (2, 5)))

    assert [answer.tolist() for answer in answers] == [[4, 4], [25, 25]]
    assert len(records) == 1
    repository.close()


async def test_where_padding_changes_answers_only_equal_lengths_are_joined(
    write_model: WriteModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = {"batching": {"ragged": {"pad": {"x": 1.0}, "max_padding": 0.9}}}
    repository, records = await serve(write_model("sum", config=config))

    feeds = [{"x": np.ones((1, n), np.float32)} for n in (2, 3, 2)]
    answers = await asyncio.gather(*(ask(repository, "sum", feed) for feed in feeds))

    assert [answer.tolist() for answer in answers] == [[2], [3], [2]]
    assert sorted(record.rows for record in records) == [1, 2]
    assert "output 'y' is another when the request is padded" in caplog.text
    repository.close()

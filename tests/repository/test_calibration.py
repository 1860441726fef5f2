from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tidemill.bundle.config import ModelConfig
from tidemill.engine.artifact import ArtifactCache
from tidemill.engine.instance import Instance
from tidemill.protocol.types import InferRequest
from tidemill.repository import Repository
from tidemill.repository.calibration import calibrate, choose, splits
from tidemill.repository.kept_costs import KeptCosts
from tidemill.repository.loading import open_instance

WriteModel = Callable[..., Path]


@pytest.mark.parametrize(
    ("processors", "threads", "expected"),
    [
        (1, None, [(1, 1)]),
        (2, None, [(1, 2), (2, 1)]),
        (6, None, [(1, 6), (2, 3), (4, 1), (6, 1)]),
        (8, None, [(1, 8), (2, 4), (4, 2), (8, 1)]),
        (8, 4, [(1, 4), (2, 4)]),
        (2, 8, [(1, 8)]),
    ],
)
def test_the_processors_are_shared_in_every_way_that_uses_them(
    processors: int, threads: int | None, expected: list[tuple[int, int]]
) -> None:
    assert splits(processors, threads) == expected
    assert all(count * each <= max(processors, each) for count, each in expected)


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ((1.0, 0.5, 0.25), (4, 1)),
        ((1.0, 0.5, 0.46), (2, 2)),  # hardly better: not worth four at once
        ((1.0, 0.95, 0.85), (4, 1)),
        ((1.0, 1.1, 2.0), (1, 4)),
        ((1.0,), (1, 4)),
        ((), (1, 4)),
    ],
)
def test_more_runs_at_once_have_to_be_worth_it(seconds: tuple[float, ...], chosen: tuple[int, int]) -> None:
    candidates = [(1, 4), (2, 2), (4, 1)]
    assert choose(dict(zip(candidates, seconds, strict=False)), candidates) == chosen


def test_what_was_measured_is_kept_and_heeded(write_model: WriteModel, tmp_path: Path) -> None:
    folder = write_model("slow") / "slow" / "1"
    artifacts, kept = ArtifactCache(tmp_path / "kept"), KeptCosts(tmp_path / "kept")
    opened: list[tuple[object, object]] = []

    def open_model(config: ModelConfig) -> Instance:
        opened.append((config.instances, config.threads))
        return open_instance(folder, config, artifacts)

    asked = ModelConfig(instances="auto")
    config, instance = calibrate(asked, open_model, kept, processors=2)
    assert opened[:2] == [(1, 2), (2, 1)]
    assert (config.instances, instance.threads) in ((1, 2), (2, 1))
    assert opened[-1] == (config.instances, config.threads) or config.instances == 1

    (file,) = (tmp_path / "kept").glob("*.costs.json")
    for best in (1, 2):
        file.write_text(json.dumps([[1, 2, 1.0 / best], [2, 1, 0.75]]))
        opened.clear()
        config, instance = calibrate(asked, open_model, kept, processors=2)
        # Said of the file: half a second against three quarters, then one second against them.
        assert (config.instances, instance.threads) == ((2, 1) if best == 1 else (1, 2))
        assert opened == ([(1, 2), (2, 1)] if best == 1 else [(1, 2)])


async def test_a_model_is_served_by_the_split_that_was_found(write_model: WriteModel) -> None:
    repository = Repository.open([write_model("slow", config={"instances": "auto"})])
    await repository.load_all()
    served = repository.get("slow")
    described = served.config()
    count = described["instance_group"][0]["count"]
    assert (count, int(described["parameters"]["tidemill.threads"]["string_value"])) in splits(
        count * served.running.instance.threads, None
    )
    answer = await served.infer(InferRequest("slow", {"x": np.full((1, 1), 3, np.float32)}))
    assert answer.outputs["y"].item() == 3
    repository.close()

"""Models that are replaced, taken away and brought back while callers use them (B15)."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from reloading import Crowd, WriteModel, loaded, put_version, states, value

from tidemill.errors import InvalidArgument, LoadFailed, ModelNotFound, ModelNotReady, TidemillError, Unavailable
from tidemill.protocol.types import InferRequest
from tidemill.repository import Events, ModelState, Repository, RepositoryControl


@pytest.mark.parametrize("kind", ["new versions", "the same version"])
async def test_no_request_fails_over_twenty_reloads(write_model: WriteModel, kind: str) -> None:
    root = write_model("value", "v", k=1)
    repository = await loaded(root)
    crowd = Crowd(repository, 20)
    for turn in range(2, 22):
        put_version(write_model, root, turn if kind == "new versions" else 1, k=turn)
        await repository.load("v")
        assert await value(repository) == turn
        before = len(crowd.answers)
        await crowd.answered(40)
        assert set(crowd.answers[before + 20 :]) == {turn}
    await crowd.leave()

    assert crowd.failures == []
    assert crowd.answers == sorted(crowd.answers)
    assert len(crowd.answers) > 400
    repository.close()


async def test_a_broken_version_leaves_the_old_one_serving(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    repository = await loaded(root)
    crowd = Crowd(repository, 4)
    (root / "v" / "2").mkdir()
    (root / "v" / "2" / "model.onnx").write_bytes(b"half of a mod")

    with pytest.raises(LoadFailed, match=r"'v' cannot be loaded: version 2: .*model\.onnx"):
        await repository.load("v")
    await crowd.answered(10)

    assert states(repository) == {"2": "UNAVAILABLE", "1": "READY"}
    assert "model.onnx" in repository.index()[0].reason
    assert repository.not_ready_reason() == ""
    put_version(write_model, root, 2)
    await repository.load("v")
    assert await value(repository) == 2
    await crowd.leave()
    assert crowd.failures == []
    repository.close()


async def test_a_version_that_cannot_run_as_asked_is_not_served(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    repository = await loaded(root)
    put_version(write_model, root, 1, k=2)

    with pytest.raises(LoadFailed, match="unknown provider"):
        await repository.load("v", config={"providers": ["tpu"]})

    assert await value(repository) == 1
    assert states(repository) == {"1": "READY"}
    await repository.load("v")
    assert await value(repository) == 2
    repository.close()


async def test_what_was_replaced_is_let_go(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    repository = await loaded(root)
    await value(repository)
    old = weakref.ref(repository.get("v").running.instance)

    put_version(write_model, root, 1, k=2)
    await repository.load("v")
    while repository.leaving:
        await asyncio.sleep(0)
    await value(repository)
    gc.collect()

    assert old() is None
    repository.close()


async def test_what_has_not_changed_is_not_loaded_again(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    repository = await loaded(root)
    served = repository.get("v")

    await repository.load("v")
    assert repository.get("v") is served

    (root / "v" / "model.yaml").write_text("instances: 2")
    await repository.load("v")
    assert repository.get("v") is not served
    assert repository.get("v").config()["instance_group"][0]["count"] == 2
    repository.close()


async def test_unloading_answers_what_was_taken_and_refuses_the_rest(write_model: WriteModel) -> None:
    root = write_model("slow", config={"max_batch_size": 0})
    repository = await loaded(root)
    request = InferRequest("slow", {"x": np.full((1, 1), 20, np.float32)})
    taken = [asyncio.ensure_future(repository.get("slow").infer(request)) for _ in range(4)]
    await asyncio.sleep(0)

    unloading = asyncio.ensure_future(repository.unload("slow"))
    while states(repository) != {"1": "UNLOADING"}:
        await asyncio.sleep(0)
    with pytest.raises(ModelNotReady, match="DRAINING"):
        repository.get("slow")
    await unloading

    assert [float((await task).outputs["y"].item()) for task in taken] == [20] * 4
    assert states(repository) == {"1": "UNAVAILABLE"}
    assert repository.index()[0].reason == "unloaded"
    assert repository.not_ready_reason() == ""
    await repository.unload("slow")
    await repository.load("slow")
    assert states(repository) == {"1": "READY"}
    repository.close()


async def test_states_are_told_without_a_gap(write_model: WriteModel) -> None:
    seen: list[tuple[str, ModelState]] = []
    root = write_model("value", "v", k=1)
    repository = await loaded(root, events=Events(on_state=lambda served: seen.append((served.version, served.state))))
    seen.clear()

    put_version(write_model, root, 1, k=2)
    await repository.load("v")
    assert seen == [("1", ModelState.READY)]

    seen.clear()
    put_version(write_model, root, 2)
    await repository.load("v")
    await repository.unload("v")
    order = [ModelState.LOADING, ModelState.WARMING, ModelState.READY, ModelState.DRAINING, ModelState.UNAVAILABLE]
    assert [state for version, state in seen if version == "2"] == order
    assert [state for version, state in seen if version == "1"] == order[-2:]
    repository.close()


async def test_a_storm_of_loads_and_unloads_ends_in_the_last_state(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    repository = await loaded(root)
    loop, lock = asyncio.get_running_loop(), threading.Lock()
    finished: list[str] = []

    def operator(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(25):
            action = rng.choice(["load", "unload"])
            asyncio.run_coroutine_threadsafe(getattr(repository, action)("v"), loop).result(30)
            with lock:
                finished.append(action)

    await asyncio.gather(*(asyncio.to_thread(operator, seed) for seed in range(4)))

    assert len(finished) == 100
    for action, state in (("unload", "UNAVAILABLE"), ("load", "READY")):
        await getattr(repository, action)("v")
        assert states(repository) == {"1": state}
    assert await value(repository) == 1
    repository.close()


def write_derived(root: Path) -> None:
    (root / "text").mkdir()
    (root / "text" / "model.yaml").write_text(json.dumps({"base": "tokens", "adapter": {"text": {}}}))
    model = {"type": "WordLevel", "vocab": {"[PAD]": 0, "[UNK]": 5, "a": 1}, "unk_token": "[UNK]"}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (root / "text" / "tokenizer.json").write_text(json.dumps(document))


async def ask_text(repository: Repository) -> int:
    request = InferRequest("text", {"text": np.array([b"a a"], np.object_)})
    return int((await repository.get("text").infer(request)).outputs["y"].item())


async def test_a_base_and_what_it_runs_change_together(write_model: WriteModel) -> None:
    root = write_model("tokens")
    write_derived(root)
    repository = await loaded(root)
    failures: list[TidemillError] = []
    busy = True

    async def caller() -> None:
        while busy:
            try:
                assert await ask_text(repository) == 2
            except TidemillError as error:
                failures.append(error)

    callers = [asyncio.ensure_future(caller()) for _ in range(4)]
    for version in (2, 3, 4):
        write_model("tokens", version=version)
        await repository.load("tokens")
        assert repository.get("text").version == str(version)
        assert repository.get("text").running is repository.get("tokens").running
    busy = False
    await asyncio.gather(*callers)

    assert failures == []
    repository.close()


async def test_unloading_a_base_takes_what_it_runs_along(write_model: WriteModel) -> None:
    root = write_model("tokens")
    write_derived(root)
    repository = await loaded(root)

    await repository.unload("tokens")
    with pytest.raises(ModelNotReady, match="its base 'tokens' was unloaded"):
        repository.get("text")

    await repository.load("text")
    assert await ask_text(repository) == 2
    await repository.unload("text")
    assert repository.get("tokens").state is ModelState.READY
    await repository.load("text")
    await repository.unload("text", dependents=True)
    with pytest.raises(ModelNotReady):
        repository.get("tokens")
    repository.close()


async def test_models_can_be_left_until_they_are_asked_for(write_model: WriteModel) -> None:
    write_model("two")
    root = write_model("value", "v", k=3)
    repository = await loaded(root, control=RepositoryControl(start=("two",)))
    assert [(entry.name, entry.version, entry.state) for entry in repository.index()] == [
        ("two", "1", "READY"),
        ("v", "", ""),
    ]
    assert repository.not_ready_reason() == ""
    with pytest.raises(ModelNotReady, match="it was not loaded"):
        repository.get("v")

    await repository.load("v")
    assert await value(repository) == 3
    write_model("value", "later", k=4)
    await repository.load("later")
    assert await value(repository, "later") == 4
    repository.close()


@pytest.mark.parametrize("name", ["none", "..", "../v", "/etc", "", ".", "a\0b", "n" * 5000])
async def test_names_that_no_repository_holds(write_model: WriteModel, name: str) -> None:
    repository = await loaded(write_model("value", "v"))
    for change in (repository.load, repository.unload):
        with pytest.raises(ModelNotFound):
            await change(name)
    repository.close()


async def test_a_config_can_be_given_and_is_forgotten_at_the_next_load(write_model: WriteModel) -> None:
    repository = await loaded(write_model("value", "v", k=1))

    await repository.load("v", config={"max_batch_size": 7})
    assert repository.get("v").config()["max_batch_size"] == 7
    served = repository.get("v")
    await repository.load("v", config={"max_batch_size": 7})
    assert repository.get("v") is served
    await repository.load("v", config={"name": "v", "max_batch_size": 5, "instance_group": [{"count": 2}]})
    assert repository.get("v").config()["instance_group"][0]["count"] == 2
    await repository.load("v")
    assert repository.get("v").config()["max_batch_size"] not in (5, 7)
    with pytest.raises(InvalidArgument, match="max_batch_size: Input should be greater"):
        await repository.load("v", config={"max_batch_size": -1})
    assert await value(repository) == 1
    repository.close()


async def test_files_can_be_given(write_model: WriteModel, tmp_path: Path) -> None:
    repository = await loaded(write_model("value", "v", k=1))
    other = write_model("value", "w", k=9, repository=tmp_path / "elsewhere") / "w" / "1"
    files = {f"5/{path.name}": path.read_bytes() for path in other.iterdir()}

    await repository.load("v", config={}, files=files)
    assert (await value(repository), repository.get("v").version) == (9, "5")
    await repository.load("new", config={}, files=files)
    assert await value(repository, "new") == 9
    await repository.load("v")
    assert (await value(repository), repository.get("v").version) == (1, "1")
    repository.close()


@pytest.mark.parametrize(
    ("config", "path", "fault"),
    [
        (None, "1/model.onnx", "only be loaded together with a config"),
        ({}, "../1/model.onnx", "is no path below"),
        ({}, "/1/model.onnx", "is no path below"),
        ({}, "1\\model.onnx", "is no path below"),
        ({}, "1/.hidden", "is no path below"),
        ({}, "", "is no path below"),
    ],
)
async def test_files_stay_in_their_folder(
    write_model: WriteModel, config: dict[str, object] | None, path: str, fault: str
) -> None:
    repository = Repository.open([write_model("value", "v")])
    with pytest.raises(InvalidArgument, match=fault):
        await repository.load("v", config=config, files={path: b""})


@contextmanager
def watched(root: Path) -> Iterator[Repository]:
    repository = Repository.open([root], control=RepositoryControl(poll_seconds=60))
    yield repository
    repository.close()


async def test_changes_are_picked_up_once_they_have_settled(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    with watched(root) as repository:
        await repository.load_all()
        put_version(write_model, root, 2)
        await repository.poll()
        assert await value(repository) == 1
        await repository.poll()
        assert await value(repository) == 2

        write_model("value", "later", k=5)
        await repository.poll()
        with pytest.raises(ModelNotFound):
            repository.get("later")
        await repository.poll()
        assert await value(repository, "later") == 5

        shutil.rmtree(root / "later")
        await repository.poll()
        assert repository.find("later").reason == "unloaded"


async def test_a_copy_under_way_is_left_alone(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    whole = write_model("value", "v", version=2, k=2, repository=root / ".aside") / "v" / "2"
    with watched(root) as repository:
        await repository.load_all()
        (root / "v" / "2").mkdir()
        content = (whole / "model.onnx").read_bytes()
        for end in range(10, len(content), len(content) // 4):
            (root / "v" / "2" / "model.onnx").write_bytes(content[:end])
            await repository.poll()
        for path in whole.iterdir():
            shutil.copy(path, root / "v" / "2" / path.name)
        await repository.poll()
        assert states(repository) == {"1": "READY"}
        await repository.poll()
        assert await value(repository) == 2


async def test_a_failed_change_is_not_tried_again_until_it_changes(write_model: WriteModel) -> None:
    root = write_model("value", "v", k=1)
    with watched(root) as repository:
        await repository.load_all()
        (root / "v" / "2").mkdir()
        (root / "v" / "2" / "model.onnx").write_bytes(b"no model")
        for _ in range(2):
            await repository.poll()
        failed = repository.find("v", "2")
        assert failed.state is ModelState.FAILED
        for _ in range(2):
            await repository.poll()
        assert repository.find("v", "2") is failed
        put_version(write_model, root, 2)
        for _ in range(2):
            await repository.poll()
        assert await value(repository) == 2


async def test_nobody_else_changes_what_is_watched(write_model: WriteModel) -> None:
    with watched(write_model("value", "v")) as repository:
        for change in (repository.load, repository.unload):
            with pytest.raises(Unavailable, match="are watched"):
                await change("v")

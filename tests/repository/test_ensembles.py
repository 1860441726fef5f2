"""Ensembles: served models one behind the other, each with its own batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tidemill.batching import BatchRecord
from tidemill.errors import DeadlineExceeded, InvalidArgument, LoadFailed, ModelNotReady, TidemillError
from tidemill.protocol.types import InferRequest, InferResponse, RequestedOutput
from tidemill.repository import Events, ModelState, Repository
from tidemill.repository.control import RepositoryControl

WriteModel = Callable[..., Path]


def step(model: str, inputs: Mapping[str, str], outputs: Mapping[str, str], **more: Any) -> dict[str, Any]:
    return {"model": model, "inputs": dict(inputs), "outputs": dict(outputs), **more}


# given -> more = given + 1 and doubled -> most = more + 1
CHAIN: list[dict[str, Any]] = [
    step("two", {"x": "given"}, {"y": "more", "z": "doubled"}),
    step("two", {"x": "more"}, {"y": "most"}),
]


def write_ensemble(root: Path, ensemble: Mapping[str, Any], name: str = "all", **more: Any) -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "model.yaml").write_text(yaml.safe_dump({"ensemble": dict(ensemble), **more}), encoding="utf-8")


class Noted:
    """What was told of models."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, BatchRecord]] = []
        self.steps: list[tuple[str, str]] = []
        self.states: list[tuple[str, str]] = []

    def events(self) -> Events:
        return Events(
            on_state=lambda served: self.states.append((served.name, served.state.value)),
            observer=lambda served: lambda batch: self.batches.append((served.name, batch)),
            on_step=lambda served, code, seconds: self.steps.append((served.name, code)),
        )


@pytest.fixture
def root(write_model: WriteModel) -> Path:
    """A repository with the member of CHAIN, and another model."""
    write_model("negate", config={"max_batch_size": 0})
    return write_model("two")


Open = Callable[..., Awaitable[Repository]]


@pytest.fixture
async def open_all() -> AsyncIterator[Open]:
    opened: list[Repository] = []

    async def open_repository(root: Path, noted: Noted | None = None, **control: Any) -> Repository:
        events = noted.events() if noted else Events()
        opened.append(Repository.open([root], events, control=RepositoryControl(**control)))
        await opened[-1].load_all()
        return opened[-1]

    yield open_repository
    for repository in opened:
        repository.close()


def request(value: float = 1.0, *outputs: str, model: str = "all", **parameters: Any) -> InferRequest:
    wanted = tuple(RequestedOutput(name) for name in outputs)
    return InferRequest(model, {"given": np.full((1, 2), value, np.float32)}, outputs=wanted, parameters=parameters)


async def test_a_diamond(root: Path, open_all: Open) -> None:
    ensemble = {"steps": [CHAIN[0], CHAIN[1], step("two", {"x": "doubled"}, {"z": "four"})]}
    write_ensemble(root, ensemble)
    noted = Noted()
    repository = await open_all(root, noted)
    served = repository.get("all")
    assert [str(spec) for spec in served.inputs] == ["given: FP32[n, 2]"]
    assert [str(spec) for spec in served.outputs] == ["most: FP32[n, 2]", "four: FP32[n, 2]"]
    assert served.metadata(("1",)).platform == "ensemble"
    response = await served.infer(request(3, "four", "most"))
    assert {name: array.tolist() for name, array in response.outputs.items()} == {"four": [[12, 12]], "most": [[5, 5]]}
    assert (response.model_name, response.model_version) == ("all", "1")
    assert noted.steps == [("two", "ok")] * 3
    assert [name for name, _ in noted.batches].count("all") == 1
    config = served.config()
    assert config["max_batch_size"] == repository.get("two").config()["max_batch_size"]
    assert config["ensemble_scheduling"]["step"][0]["output_map"] == {"y": "more", "z": "doubled"}


async def test_requests_are_joined_at_each_member(root: Path, open_all: Open) -> None:
    write_ensemble(root, {"steps": CHAIN}, "all")
    noted = Noted()
    repository = await open_all(root, noted)
    served = repository.get("all")
    answers = await asyncio.gather(*(served.infer(request(value)) for value in range(16)))
    assert [answer.outputs["most"][0, 0] for answer in answers] == [value + 2 for value in range(16)]
    assert max(batch.requests for name, batch in noted.batches if name == "two") == 16


@pytest.mark.parametrize(("inner", "outer"), [("first", "second"), ("second", "first")])
async def test_ensembles_of_ensembles_hand_on_tensors_as_they_are(
    root: Path, open_all: Open, inner: str, outer: str
) -> None:
    write_ensemble(root, {"steps": [CHAIN[0]], "outputs": ["more", "doubled"]}, inner)
    write_ensemble(root, {"steps": [step(inner, {"given": "x"}, {"more": "y"})]}, outer)
    repository = await open_all(root)
    answer = await repository.get(outer).infer(InferRequest(outer, {"x": np.ones((1, 2), np.float32)}))
    assert answer.outputs["y"].tolist() == [[2, 2]]
    started = repository.get(inner).start(request(model=inner))
    outputs = await started.outputs
    assert started.response().outputs["more"] is outputs["more"]
    assert outputs["given"] is started.request.inputs["given"]
    await repository.unload("two")
    assert repository.ready_versions(outer) == ()
    await repository.load("two")
    assert repository.ready_versions(outer) == ("1",)


@pytest.mark.parametrize(
    ("ensemble", "faults"),
    [
        ({"steps": [step("too", {"x": "a"}, {"y": "b"}), step("none", {}, {"y": "c"})]},
         ["'too' is no model of the repository; did you mean 'two'?", "'none' is no model"]),
        ({"steps": [step("two", {"w": "a"}, {"v": "b"})]},
         ["'two' has no input 'w'; it has x", "'two' has no output 'v'; it has y, z", "lacks the input x: FP32[n, 2]"]),
        ({"steps": [step("two", {"x": "b"}, {"y": "a"}), step("two", {"x": "a"}, {"y": "b"})]},
         ["the steps wait for each other: two -> two"]),
        ({"steps": [step("two", {"x": "a"}, {"y": "b"}), step("two", {"x": "a"}, {"z": "b"})]},
         ["tensor 'b' is made by 'two' and by 'two'"]),
        ({"steps": [step("two", {"x": "a"}, {"y": "b"}), step("gather", {"x": "b"}, {"y": "c"})]},
         ["tensor 'b' is y: FP32[n, 2] of 'two' and x: INT64[n] of 'gather', which differ in datatype"]),
        ({"steps": [step("two", {"x": "a"}, {"y": "b"}), step("value", {"x": "b"}, {"y": "c"})]},
         ["tensor 'b' is y: FP32[n, 2] of 'two' and x: FP32[n, 1] of 'value', which differ in size"]),
        ({"steps": [step("sum", {"x": "a"}, {"y": "b"}), step("two", {"x": "b"}, {"y": "c"})]},
         ["which differ in rank"]),
        ({"steps": [step("two", {"x": "a"}, {"y": "b"})], "inputs": ["q"], "outputs": ["r"]},
         ["'a' is made by no step and is no input", "input 'q' is taken by no step", "output 'r' is made by no step"]),
        ({"steps": [step("two", {"x": "a"}, {"y": "b"})],
          "inputs": [{"name": "a", "datatype": "INT64"}], "outputs": [{"name": "b", "shape": [-1, 3]}]},
         ["'a' is declared as INT64, but is x: FP32[n, 2] of 'two'", "declared with shape [-1, 3]"]),
        ({"steps": [step("all", {"x": "a"}, {"y": "b"})]}, ["the ensembles run each other: all -> all"]),
    ],
)  # fmt: skip
async def test_all_faults_are_told_at_load(
    write_model: WriteModel, open_all: Open, ensemble: dict[str, Any], faults: list[str]
) -> None:
    root = write_model("two")
    for kind in ("gather", "value", "sum"):
        write_model(kind)
    write_ensemble(root, ensemble)
    repository = await open_all(root)
    for fault in faults:
        assert fault in repository.find("all").reason
    assert repository.find("all").state is ModelState.FAILED
    with pytest.raises(ModelNotReady):
        repository.get("all")


async def test_what_belongs_to_members_is_refused(root: Path, open_all: Open) -> None:
    write_ensemble(root, {"steps": CHAIN}, response_cache={"enable": True}, instances=2)
    repository = await open_all(root)
    assert "instances, response_cache belongs to the members" in repository.find("all").reason


async def test_a_bad_request_is_refused_before_any_step(root: Path, open_all: Open) -> None:
    write_ensemble(root, {"steps": CHAIN})
    noted = Noted()
    repository = await open_all(root, noted)
    for wrong in (
        InferRequest("all", {"given": np.ones((1, 3), np.float32)}),
        InferRequest("all", {}),
        request(1, "more"),
    ):
        with pytest.raises(InvalidArgument):
            await repository.get("all").infer(wrong)
    assert not noted.steps


async def test_a_failing_step_fails_the_request_and_no_other(write_model: WriteModel, open_all: Open) -> None:
    root = write_model("gather")
    write_model("value")
    write_ensemble(root, {"steps": [step("gather", {"x": "place"}, {"y": "found"})]}, "all")
    noted = Noted()
    repository = await open_all(root, noted)
    served = repository.get("all")
    asked = [InferRequest("all", {"place": np.array([place])}) for place in (0, 9, 3)]
    first, wrong, last = await asyncio.gather(*(served.infer(one) for one in asked), return_exceptions=True)
    assert isinstance(wrong, TidemillError)
    for answer, value in ((first, 10), (last, 40)):
        assert isinstance(answer, InferResponse)
        assert answer.outputs["found"].tolist() == [value]
    assert sorted(code for _, code in noted.steps) == ["ok", "ok", "unprocessable"]


async def test_deadline_and_cancel_end_the_step_under_way(write_model: WriteModel, open_all: Open) -> None:
    root = write_model("slow", config={"max_batch_size": 0})
    chain = [step("slow", {"x": "a"}, {"y": "b"}), step("slow", {"x": "b"}, {"y": "c"})]
    write_ensemble(root, {"steps": chain})
    noted = Noted()
    repository = await open_all(root, noted)
    slow = InferRequest("all", {"a": np.full((1, 1), 200_000, np.float32)})
    now = asyncio.get_running_loop().time()
    with pytest.raises(DeadlineExceeded):
        await repository.get("all").infer(slow, now + 0.2)
    started = repository.get("all").start(slow)
    await asyncio.sleep(0.05)
    started.outputs.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started.outputs
    assert noted.steps == [("slow", "deadline_exceeded"), ("slow", "cancelled")]
    await asyncio.wait_for(repository.drain(), 20)


async def test_it_is_ready_while_its_members_are_and_fit(root: Path, write_model: WriteModel, open_all: Open) -> None:
    write_ensemble(root, {"steps": CHAIN})
    noted = Noted()
    repository = await open_all(root, noted)
    await repository.unload("two")
    assert "'two' version 1 is" in repository.find("all").reason
    with pytest.raises(ModelNotReady, match="unloaded"):
        repository.get("all")
    await repository.load("two")
    assert (await repository.get("all").infer(request(1))).outputs["most"].tolist() == [[3, 3]]
    write_model("value", "two", version=2)
    await repository.load("two")
    assert "'two' has no output 'z'; it has y" in repository.find("all").reason
    write_model("two", version=3)
    await repository.load("two")
    assert repository.get("all").inputs[0].shape == ("n", 2)
    write_model("gather", "two", version=4)
    await repository.load("two")
    assert "has no output 'z'" in repository.find("all").reason
    assert [state for state, _ in groupby(state for name, state in noted.states if name == "all")] == [
        "LOADING", "READY", "FAILED", "READY", "FAILED", "READY", "FAILED",
    ]  # fmt: skip


async def test_members_are_swapped_under_traffic(root: Path, write_model: WriteModel, open_all: Open) -> None:
    write_model("value", "v", k=1.0)
    write_ensemble(root, {"steps": [step("v", {"x": "a"}, {"y": "b"}), step("v", {"x": "b"}, {"y": "c"})]}, "chain")
    repository = await open_all(root)
    x, answers, going = np.zeros((1, 1), np.float32), [], True

    async def ask() -> None:
        while going:
            answer = await repository.get("chain").infer(InferRequest("chain", {"a": x}))
            answers.append(float(answer.outputs["c"][0, 0]))

    callers = [asyncio.ensure_future(ask()) for _ in range(8)]
    for version in (2, 3):
        write_model("value", "v", version=version, k=float(version))
        await repository.load("v")
    going = False
    await asyncio.gather(*callers)
    assert set(answers) <= {1, 2, 3}
    assert (await repository.get("chain").infer(InferRequest("chain", {"a": x}))).outputs["c"][0, 0] == 3


async def test_members_are_loaded_and_unloaded_with_it(root: Path, open_all: Open) -> None:
    write_ensemble(root, {"steps": CHAIN})
    write_ensemble(root, {"steps": CHAIN}, "other")
    repository = await open_all(root, start=())
    await repository.load("all")
    assert repository.ready_versions("two") == ("1",)
    assert repository.ready_versions("negate") == ()
    await repository.load("other")
    await repository.unload("all", dependents=True)
    assert repository.ready_versions("two") == ("1",)
    await repository.unload("other", dependents=True)
    assert repository.ready_versions("two") == ()
    again = await open_all(root, start=("all",))
    assert again.ready_versions("two") == ("1",)


async def test_an_ensemble_that_does_not_load_says_why(root: Path, open_all: Open) -> None:
    write_ensemble(root, {"steps": CHAIN})
    repository = await open_all(root)
    write_ensemble(root, {"steps": [step("two", {"x": "a"}, {"w": "b"})]})
    with pytest.raises(LoadFailed, match="has no output 'w'"):
        await repository.load("all")
    assert (await repository.get("all").infer(request(1))).outputs["most"].tolist() == [[3, 3]]


async def test_an_adapter_may_stand_before_a_step(write_model: WriteModel, open_all: Open) -> None:
    root = write_model("tokens")
    (root / "text").mkdir()
    (root / "text" / "model.yaml").write_text(json.dumps({"base": "tokens", "adapter": {"text": {}}}))
    model = {"type": "WordLevel", "vocab": {"[PAD]": 9, "[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"}
    document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
    (root / "text" / "tokenizer.json").write_text(json.dumps(document))
    write_model("gather")
    write_ensemble(
        root, {"steps": [step("text", {"text": "words"}, {"y": "sum"}), step("gather", {"x": "sum"}, {"y": "value"})]}
    )
    repository = await open_all(root)
    words = np.array([b"a b", b"b"], np.object_)
    answer = await repository.get("all").infer(InferRequest("all", {"words": words}))
    assert answer.outputs["value"].tolist() == [40, 30]

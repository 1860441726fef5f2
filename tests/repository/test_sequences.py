"""Sequences at a running model: a running sum, whose state the server keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_sums import STATE, SUM, write_sums

from tidemill.batching import BatchRecord
from tidemill.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ModelNotReady,
    QueueFull,
    Unavailable,
)
from tidemill.protocol import InferRequest
from tidemill.repository import Events, ModelState, Repository


class Clock:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Sums:
    """One model of running sums, asked by number of sequence."""

    def __init__(self, repository: Repository, clock: Clock, batches: list[BatchRecord]) -> None:
        self.repository, self.clock, self.batches = repository, clock, batches

    def take(self, sequence: Any, x: float, *, version: str = "", within: float | None = None, **flags: Any) -> Any:
        """Have a request taken; what comes of it can be awaited."""
        parameters: dict[str, Any] = {"sequence_id": sequence} | {
            f"sequence_{flag}": value for flag, value in flags.items()
        }
        array = np.full((1, 1), x, np.float32)
        request = InferRequest("sums", {"x": array}, model_version=version, parameters=parameters)
        deadline = None if within is None else self.clock.now + within
        return asyncio.ensure_future(self._answer(self.repository.get("sums", version).start(request, deadline)))

    async def _answer(self, started: Any) -> tuple[float, str]:
        await started.outputs
        response = started.response()
        assert "next_sum" not in response.outputs
        return float(response.outputs["y"][0, 0]), response.model_version

    async def add(self, sequence: Any, x: float, **options: Any) -> float:
        total, _ = await self.take(sequence, x, **options)
        return float(total)


Open = Callable[..., Awaitable[Sums]]


@pytest.fixture
async def open_sums(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the model with a section `sequence`."""
    opened: list[Repository] = []

    async def open_model(**fields: Any) -> Sums:
        config = {"sequence": STATE | fields, "max_batch_size": 8, "batching": {"policy": "fixed"}}
        controls = tuple(control["input"] for control in fields.get("controls", ()))
        write_sums(tmp_path / "sums" / "1", config, controls=controls)
        clock = Clock()
        batches: list[BatchRecord] = []
        events = Events(observer=lambda _: batches.append)
        opened.append(Repository.open([tmp_path], events, clock))
        await opened[-1].load_all()
        assert not opened[-1].not_ready_reason()
        return Sums(opened[-1], clock, batches)

    yield open_model
    for repository in opened:
        repository.close()


@pytest.mark.parametrize("strategy", ["oldest", "direct"])
async def test_each_sequence_has_a_sum_of_its_own(open_sums: Open, strategy: str) -> None:
    sums = await open_sums(strategy=strategy)
    assert [str(spec) for spec in sums.repository.get("sums").inputs] == ["x: FP32[n, 1]"]
    assert await sums.add(1, 5, start=True) == 5
    assert await sums.add("1", 70, start=True) == 70
    assert await sums.add(1, 2) == 7
    assert await sums.add("1", 1, end=True) == 71
    assert await sums.add(1, 1, end=True) == 8
    with pytest.raises(InvalidArgument, match="there is no sequence 1"):
        await sums.add(1, 1)
    assert await sums.add(1, 3, start=True) == 3


async def test_requests_of_a_sequence_run_in_order_and_those_of_several_together(open_sums: Open) -> None:
    sums = await open_sums()
    steps = [sums.take(number, 10**place, start=not place) for place in range(5) for number in range(1, 7)]
    totals = [total for total, _ in await asyncio.gather(*steps)]
    assert totals == [int("1" * (place + 1)) for place in range(5) for _ in range(6)]
    assert max(batch.requests for batch in sums.batches) == 6


async def test_a_new_start_begins_anew_and_answers_what_was_taken(open_sums: Open) -> None:
    sums = await open_sums()
    steps = [sums.take(1, 1, start=True), sums.take(1, 1), sums.take(1, 50, start=True), sums.take(1, 1)]
    assert [total for total, _ in await asyncio.gather(*steps)] == [1, 2, 50, 51]


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({}, "must name the sequence"),
        ({"sequence_id": 0, "sequence_start": True}, "must name the sequence"),
        ({"sequence_id": ""}, "must name the sequence"),
        ({"sequence_id": 7}, "there is no sequence 7: it was not begun"),
        ({"sequence_id": 1.5, "sequence_start": True}, "expected a whole number or a string"),
        ({"sequence_id": True, "sequence_start": True}, "expected a whole number or a string"),
        ({"sequence_id": -1, "sequence_start": True}, "expected a number from 1 to"),
    ],
)
async def test_requests_that_belong_nowhere_are_refused(
    open_sums: Open, parameters: dict[str, Any], fault: str
) -> None:
    sums = await open_sums()
    x = np.ones((1, 1), np.float32)
    with pytest.raises(InvalidArgument, match=fault):
        await sums.repository.get("sums").infer(InferRequest("sums", {"x": x}, parameters=parameters))


async def test_whoever_brings_the_state_needs_no_sequence(open_sums: Open) -> None:
    sums = await open_sums()
    inputs = {"x": np.ones((2, 1), np.float32), "sum": np.array([[3], [4]], np.float32)}
    outputs = (await sums.repository.get("sums").infer(InferRequest("sums", inputs))).outputs
    assert outputs["next_sum"].tolist() == [[4], [5]]


async def test_one_that_is_idle_for_too_long_is_forgotten(open_sums: Open) -> None:
    sums = await open_sums(idle_timeout_microseconds=2_000_000)
    await sums.add(1, 1, start=True)
    await sums.add(2, 1, start=True)
    sums.clock.now = 1.5
    assert await sums.add(2, 1) == 2
    sums.clock.now = 2.5
    with pytest.raises(InvalidArgument, match="idle for more than 2 s"):
        await sums.add(1, 1)
    assert await sums.add(2, 1) == 3


async def test_there_are_only_so_many(open_sums: Open) -> None:
    sums = await open_sums(max_candidate_sequences=2)
    await sums.add(1, 1, start=True)
    await sums.add(2, 1, start=True)
    with pytest.raises(QueueFull, match="2 sequences go on and 0 wait"):
        await sums.add(3, 1, start=True)
    await sums.add(1, 1, end=True)
    assert await sums.add(3, 1, start=True) == 1


async def test_more_may_wait_for_a_place(open_sums: Open) -> None:
    sums = await open_sums(strategy="direct", max_waiting_sequences=2)
    for number in range(1, 9):  # as many as a batch has rows
        await sums.add(number, number, start=True)
    waiting = [sums.take(9, 1, start=True), sums.take(9, 1)]
    late = sums.take(10, 1, start=True, within=0.01)
    with pytest.raises(DeadlineExceeded, match="sequence 10 was not served before"):
        await late
    assert not any(step.done() for step in waiting)
    await sums.add(1, 1, end=True)
    assert [total for total, _ in await asyncio.gather(*waiting)] == [1, 2]


async def test_a_failed_request_leaves_the_sequence_as_it_was(open_sums: Open) -> None:
    sums = await open_sums()
    await sums.add(1, 5, start=True)
    wrong = InferRequest("sums", {"x": np.ones((2, 1), np.float32)}, parameters={"sequence_id": 1})
    failing = asyncio.ensure_future(sums.repository.get("sums").infer(wrong))
    await asyncio.sleep(0)
    behind = sums.take(1, 1)
    with pytest.raises(InvalidArgument, match="they must agree"):
        await failing
    with pytest.raises(Unavailable, match="came before this one failed"):
        await behind
    assert await sums.add(1, 1) == 6


async def test_a_cancelled_request_leaves_the_sequence_as_it_was(open_sums: Open) -> None:
    sums = await open_sums()
    await sums.add(1, 5, start=True)
    served = sums.repository.get("sums")
    x = np.ones((1, 1), np.float32)
    started = served.start(InferRequest("sums", {"x": x}, parameters={"sequence_id": 1, "sequence_end": True}))
    with pytest.raises(InvalidArgument, match="has ended"):
        sums.repository.get("sums").start(InferRequest("sums", {"x": x}, parameters={"sequence_id": 1}))
    started.outputs.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started.outputs
    assert await sums.add(1, 1) == 6


async def test_a_start_that_fails_leaves_nothing(open_sums: Open) -> None:
    sums = await open_sums(max_candidate_sequences=1)
    late = sums.take(1, 1, start=True, within=-1)
    with pytest.raises(DeadlineExceeded):
        await late
    assert await sums.add(2, 1, start=True) == 1


async def test_the_model_is_told_where_in_its_sequence_it_is(open_sums: Open) -> None:
    controls: list[dict[str, Any]] = [
        {"input": "start_in", "kind": "start"},
        {"input": "end_in", "kind": "end", "values": [5, 6]},
        {"input": "ready_in", "kind": "ready"},
        {"input": "id_in", "kind": "id"},
    ]
    names = tuple(str(control["input"]) for control in controls)
    sums = await open_sums(controls=controls)
    served, x = sums.repository.get("sums"), np.ones((1, 1), np.float32)

    async def told(**flags: bool) -> list[Any]:
        parameters: dict[str, Any] = {
            "sequence_id": "abc",
            **{f"sequence_{flag}": value for flag, value in flags.items()},
        }
        outputs = (await served.infer(InferRequest("sums", {"x": x}, parameters=parameters))).outputs
        return [outputs[f"{name}_told"][0, 0] for name in names]

    assert await told(start=True) == [1, 5, 1, b"abc"]
    assert await told() == [0, 5, 1, b"abc"]
    assert await told(end=True) == [0, 6, 1, b"abc"]


async def test_a_sequence_ends_at_the_version_where_it_began(open_sums: Open, tmp_path: Path) -> None:
    sums = await open_sums()
    await sums.add(1, 1, start=True)
    write_sums(tmp_path / "sums" / "2", {"sequence": STATE}, factor=100)
    await sums.repository.load("sums")
    old = sums.repository.leaving[0]
    assert old.state is ModelState.DRAINING
    assert await sums.take(2, 1, start=True) == (100, "2")
    assert await sums.take(1, 1) == (2, "1")
    with pytest.raises(InvalidArgument, match="goes on at version 1, not at version 2"):
        await sums.take(1, 1, version="2")
    with pytest.raises(ModelNotReady, match="takes no new sequence"):
        await sums.take(3, 1, start=True, version="1")
    assert await sums.take(1, 1, version="1", end=True) == (3, "1")
    await asyncio.wait_for(_until(lambda: old.state is ModelState.UNAVAILABLE), 10)
    with pytest.raises(InvalidArgument, match="there is no sequence 1"):
        await sums.take(1, 1)


async def test_a_sequence_that_starts_again_after_a_reload_is_at_the_new_version(
    open_sums: Open, tmp_path: Path
) -> None:
    sums = await open_sums()
    await sums.add(1, 1, start=True)
    write_sums(tmp_path / "sums" / "2", {"sequence": STATE}, factor=100)
    await sums.repository.load("sums")
    assert await sums.take(1, 1, start=True) == (100, "2")
    await asyncio.wait_for(_until(lambda: not sums.repository.leaving), 10)


async def test_unloading_answers_what_was_taken_and_ends_all_sequences(open_sums: Open) -> None:
    sums = await open_sums()
    await sums.add(1, 1, start=True)
    steps = [sums.take(1, 1) for _ in range(3)]
    await sums.repository.unload("sums")
    assert [total for total, _ in await asyncio.gather(*steps)] == [2, 3, 4]
    with pytest.raises(ModelNotReady):
        await sums.add(1, 1)


@pytest.mark.parametrize(
    ("sequence", "faults"),
    [
        (
            {"state": [{"input": "some", "output": "next"}], "controls": [{"input": "go", "kind": "start"}]},
            ["no input 'some'", "no output 'next'", "no input 'go'"],
        ),
        ({"state": [SUM, SUM]}, ["input 'sum' stands there 2 times"]),
        ({"state": [SUM | {"initial": "../model.yaml"}]}, ["no file initial_state/../model.yaml"]),
        ({"state": [SUM | {"shape": [1, 1]}]}, ["must have 1 sizes"]),
    ],
)
async def test_a_section_that_does_not_fit_the_graph_says_all_that_is_wrong(
    tmp_path: Path, sequence: dict[str, Any], faults: list[str]
) -> None:
    write_sums(tmp_path / "sums" / "1", {"sequence": sequence})
    repository = Repository.open([tmp_path])
    await repository.load_all()
    for fault in faults:
        assert fault in repository.find("sums").reason
    repository.close()


@pytest.mark.parametrize(("initial", "first"), [(2.5, 3.5), ("start.bin", 8.0)])
async def test_initial_values(tmp_path: Path, initial: object, first: float) -> None:
    write_sums(tmp_path / "sums" / "1", {"sequence": {"state": [SUM | {"initial": initial}]}})
    (tmp_path / "sums" / "initial_state").mkdir()
    (tmp_path / "sums" / "initial_state" / "start.bin").write_bytes(np.float32(7).tobytes())
    repository = Repository.open([tmp_path])
    await repository.load_all()
    sums = Sums(repository, Clock(), [])
    assert await sums.add(1, 1, start=True) == first
    repository.close()


_STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["start", "", "", "end", "both"]), st.booleans()), max_size=30
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_STEPS)
def test_any_interleaving_is_what_a_dictionary_would_do(tmp_path: Path, steps: list[tuple[int, str, bool]]) -> None:
    """Requests sent without waiting for answers, against sums kept in a dictionary; some turns of the loop between."""

    async def run() -> None:
        if not (tmp_path / "sums").exists():
            write_sums(
                tmp_path / "sums" / "1", {"sequence": STATE, "max_batch_size": 8, "batching": {"policy": "fixed"}}
            )
        repository = Repository.open([tmp_path])
        await repository.load_all()
        sums, waiting = Sums(repository, Clock(), []), []
        kept: dict[int, float] = {}
        for number, (name, flag, pauses) in enumerate(steps):
            start, end, x = flag in ("start", "both"), flag in ("end", "both"), 2.0 ** (number % 20)
            if not start and name not in kept:
                with pytest.raises(InvalidArgument):
                    sums.take(name, x, end=end)
                continue
            kept[name] = x if start else kept[name] + x
            waiting.append((sums.take(name, x, start=start, end=end), kept[name]))
            if end:
                del kept[name]
            if pauses:
                await asyncio.sleep(0)
        answers = await asyncio.gather(*(step for step, _ in waiting))
        assert [total for total, _ in answers] == [expected for _, expected in waiting]
        repository.close()

    asyncio.run(run())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)

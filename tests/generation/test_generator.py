"""The thread that gives every text a token a step, driven through the loop that waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from byte_tokenizer import END, SIZE, byte_tokenizer
from counting_stepper import CountingStepper, logits_after

from tidemill.errors import InferenceFailed, QueueFull, ShuttingDown
from tidemill.generation import (
    Delta,
    Finish,
    GenerationRequest,
    Generator,
    GeneratorOptions,
    Observers,
    SamplingOptions,
    StepRecord,
    TextRecord,
)

TOKENIZER = byte_tokenizer()
GREEDY = SamplingOptions(temperature=0.0)


def wanted(text: str, count: int, **more: Any) -> GenerationRequest:
    return GenerationRequest(TOKENIZER.encode(text), count, sampling=GREEDY, **more)


def alone(request: GenerationRequest, ends: Sequence[int] = ()) -> list[int]:
    tokens = list(request.prompt)
    for _ in range(request.max_tokens):
        tokens.append(int(logits_after(tokens, SIZE).argmax()))
        if tokens[-1] in ends:
            break
    return tokens[len(request.prompt) :]


class Watched:
    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.texts: list[TextRecord] = []
        self.stepper = CountingStepper(4, 256, SIZE)
        observers = Observers(self.steps.append, self.texts.append)
        options = GeneratorOptions(chunk=8, lonely_chunk=16, max_waiting=6, ends=frozenset({END}))
        self.generator = Generator(self.stepper, TOKENIZER, options, observers)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    yield made
    made.generator.close()
    await made.generator.drain()


async def test_many_texts_at_once_are_each_as_alone(watched: Watched) -> None:
    requests = [wanted(f"{number} says " * (number % 4 + 1), 5 + 7 * (number % 5)) for number in range(10)]
    wholes = await asyncio.gather(*(watched.generator.submit(request).whole() for request in requests))
    for request, whole in zip(requests, wholes, strict=True):
        expected = alone(request, [END])
        assert [choice.token for choice in whole.choices] == expected
        assert whole.finish is (Finish.STOP if expected[-1] == END else Finish.LENGTH)
        assert whole.text == TOKENIZER.decode(expected)
    assert watched.stepper.most_rows == 4
    assert len(watched.texts) == 10
    assert sum(record.tokens for record in watched.texts) == sum(len(whole.choices) for whole in wholes)
    assert all(record.queue_seconds <= record.first_seconds <= record.seconds for record in watched.texts)


async def test_pieces_come_one_by_one(watched: Watched) -> None:
    request = wanted("count", 12)
    pieces = [piece async for piece in watched.generator.submit(request)]
    assert len(pieces) > 1
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert [choice.token for piece in pieces for choice in piece.choices] == alone(request, [END])


async def test_stop_texts_and_tokens_end_a_text(watched: Watched) -> None:
    made = alone(wanted("abc", 30))
    text = TOKENIZER.decode(made)
    stop = text[6:9]
    whole = await watched.generator.submit(wanted("abc", 30, stop=(stop,))).whole()
    assert (whole.text, whole.finish) == (text[: text.find(stop)], Finish.STOP)
    first = made[4]
    cut = await watched.generator.submit(wanted("abc", 30, stop_tokens=frozenset({first}))).whole()
    assert [choice.token for choice in cut.choices] == made[: made.index(first) + 1]
    assert cut.text == TOKENIZER.decode(made[: made.index(first)])
    later = await watched.generator.submit(
        wanted("abc", 30, stop_tokens=frozenset({first}), min_tokens=made.index(first) + 5)
    ).whole()
    assert len(later.choices) >= made.index(first) + 5


async def test_who_leaves_frees_the_slot(watched: Watched) -> None:
    streams = [watched.generator.submit(wanted(f"long {number}", 200, ignore_eos=True)) for number in range(4)]
    quick = watched.generator.submit(wanted("quick", 3))
    for stream in streams[:2]:
        async for _ in stream:
            break
        stream.cancel()
    assert len((await quick.whole()).choices) == 3
    rest = await asyncio.gather(*(stream.whole() for stream in streams[2:]))
    assert [len(whole.choices) for whole in rest] == [200, 200]
    await watched.generator.drain()
    assert watched.generator.open == 0
    assert len(watched.texts) == 5


async def test_a_task_that_is_cancelled_leaves(watched: Watched) -> None:
    task = asyncio.create_task(watched.generator.submit(wanted("x", 240, ignore_eos=True)).whole())
    while not watched.steps:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await watched.generator.drain()
    assert watched.texts[0].tokens < 240


async def test_too_many_are_refused(watched: Watched) -> None:
    streams = [watched.generator.submit(wanted("x", 100, ignore_eos=True)) for _ in range(10)]
    with pytest.raises(QueueFull, match="max_waiting"):
        watched.generator.submit(wanted("x", 1))
    for stream in streams:
        stream.cancel()


async def test_closing_fails_what_is_under_way() -> None:
    made = Watched()
    streams = [made.generator.submit(wanted(f"{number}", 200, ignore_eos=True)) for number in range(6)]
    made.generator.close()
    results = await asyncio.gather(*(stream.whole() for stream in streams), return_exceptions=True)
    assert all(isinstance(result, ShuttingDown) for result in results)
    with pytest.raises(ShuttingDown):
        made.generator.submit(wanted("x", 1))
    await made.generator.drain()


class Breaking(CountingStepper):
    """Fails once, when it is told to."""

    breaks = False

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Any:
        if self.breaks:
            self.breaks = False
            raise RuntimeError("the secret of /etc")
        return super().decode(tokens, lengths)


async def test_a_step_that_fails_ends_the_texts_of_that_time_only(caplog: pytest.LogCaptureFixture) -> None:
    stepper = Breaking(2, 256, SIZE)
    generator = Generator(stepper, TOKENIZER, GeneratorOptions())
    stepper.breaks = True
    with pytest.raises(InferenceFailed, match="a step of the generation failed") as raised:
        await generator.submit(wanted("x", 5, ignore_eos=True)).whole()
    assert "secret" not in str(raised.value)
    request = wanted("x", 5, ignore_eos=True)
    whole = await generator.submit(request).whole()
    assert [choice.token for choice in whole.choices] == alone(request)
    generator.close()
    assert isinstance(whole, Delta)

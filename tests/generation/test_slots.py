"""Whatever joins, leaves and is moved: every text is what it would be alone."""

from __future__ import annotations

from functools import cache
from typing import Any

from byte_tokenizer import byte_tokenizer
from counting_stepper import CountingStepper, logits_after
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidemill.generation.request import GenerationRequest, SamplingOptions
from tidemill.generation.row import Row
from tidemill.generation.slots import Slots

SLOTS, CAPACITY, VOCABULARY = 3, 48, 17
GREEDY = SamplingOptions(temperature=0.0)
WRITER = byte_tokenizer()
COMMON = (*tuple(range(16)), 3, 1, 4, 1, 5, 9, 2, 6)


def alone(request: GenerationRequest) -> list[int]:
    """The tokens of a text that has the model to itself."""
    return list(_alone(request.prompt, request.max_tokens))


@cache
def _alone(prompt: tuple[int, ...], count: int) -> tuple[int, ...]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_after(tokens, VOCABULARY).argmax()))
    return tuple(tokens[len(prompt) :])


def made(row: Row) -> list[int]:
    return row.tokens[len(row.request.prompt) :]


prompts = st.one_of(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12).map(tuple),
    st.tuples(st.integers(1, len(COMMON)), st.lists(st.integers(0, 3), min_size=1, max_size=4)).map(
        lambda pair: COMMON[: pair[0]] + tuple(pair[1])
    ),
)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stepper = CountingStepper(SLOTS, CAPACITY, VOCABULARY)
        self.slots = Slots(SLOTS, chunk=3, lonely_chunk=7)
        self.open: list[Row] = []
        self.saved = 0

    @rule(prompt=prompts, count=st.integers(1, 8))
    def submit(self, prompt: tuple[int, ...], count: int) -> None:
        row = Row(GenerationRequest(prompt, count, sampling=GREEDY), WRITER.writer(), frozenset())
        self.open.append(row)
        self.slots.submit(row)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        row = data.draw(st.sampled_from(self.open))
        row.gone = True
        self.open.remove(row)

    @rule(steps=st.integers(1, 6))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        step = self.slots.plan()
        if step is None:
            assert not self.open
            return
        for move in step.moves:
            (self.stepper.swap if move.swaps else self.stepper.copy)(move.first, move.second, move.length)
        if step.rows:
            pending = [row.pending for row in step.rows]
            assert all(len(tokens) == 1 for tokens in pending)
            logits = self.stepper.decode([one[0] for one in pending], [row.cached for row in step.rows])
            self.slots.decoded(step)
            for row, own in zip(step.rows, logits, strict=True):
                self.take(row, own)
        if step.chunk:
            row = step.chunk.row
            assert len(step.chunk.tokens) <= (3 if step.rows else 7)
            logits = self.stepper.prefill(step.chunk.slot, step.chunk.tokens, row.cached)
            if self.slots.read(step.chunk) and not self.take(row, logits):
                self.slots.join()

    def take(self, row: Row, logits: Any) -> bool:
        if row.take(logits).finish is None:
            return False
        assert made(row) == alone(row.request)
        self.open.remove(row)
        self.slots.leave(row)
        return True

    @invariant()
    def what_is_made_is_right(self) -> None:
        for row in self.open:
            assert made(row) == alone(row.request)[: row.made]
            assert row.reused < len(row.request.prompt)

    @invariant()
    def no_more_run_than_there_is_room_for(self) -> None:
        assert self.slots.running <= SLOTS
        assert self.slots.waiting + self.slots.running >= len(self.open)

    def teardown(self) -> None:
        # Everybody comes to an end: what waits is never forgotten.
        for _ in range(400):
            if not self.open:
                break
            self.step()
        assert not self.open


TestSlots = Machine.TestCase
TestSlots.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)


def run_alone(slots: Slots, stepper: CountingStepper, prompt: tuple[int, ...], count: int = 2) -> Row:
    row = Row(GenerationRequest(prompt, count, sampling=GREEDY), WRITER.writer(), frozenset())
    slots.submit(row)
    while step := slots.plan():
        for move in step.moves:
            (stepper.swap if move.swaps else stepper.copy)(move.first, move.second, move.length)
        if step.rows:
            (logits,) = stepper.decode([row.tokens[-1]], [row.cached])
            slots.decoded(step)
            if row.take(logits).finish:
                slots.leave(row)
        if step.chunk:
            logits = stepper.prefill(step.chunk.slot, step.chunk.tokens, row.cached)
            if slots.read(step.chunk):
                row.take(logits)
                slots.join()
    return row


def test_a_talk_that_goes_on_is_not_read_again() -> None:
    stepper, slots = CountingStepper(2, 64, VOCABULARY), Slots(2, 8, 8)
    first = run_alone(slots, stepper, COMMON)
    read = stepper.read
    second = run_alone(slots, stepper, (*first.tokens, 7, 7))
    assert second.reused == len(COMMON) + 1
    assert stepper.read - read == len(second.request.prompt) - second.reused
    assert made(second) == alone(second.request)


def test_the_same_prompt_again_reads_one_token() -> None:
    stepper, slots = CountingStepper(1, 64, VOCABULARY), Slots(1, 8, 8)
    run_alone(slots, stepper, COMMON)
    again = run_alone(slots, stepper, COMMON)
    assert again.reused == len(COMMON) - 1


def test_other_texts_do_not_wait_for_a_long_prompt() -> None:
    stepper, slots = CountingStepper(2, 64, VOCABULARY), Slots(2, 4, 8)
    quick = Row(GenerationRequest((1,), 20, sampling=GREEDY), WRITER.writer(), frozenset())
    slots.submit(quick)
    step = slots.plan()
    assert step
    assert step.chunk
    slots.read(step.chunk)
    quick.take(stepper.prefill(step.chunk.slot, step.chunk.tokens, 0))
    slots.join()
    slots.submit(Row(GenerationRequest(COMMON, 1, sampling=GREEDY), WRITER.writer(), frozenset()))
    for _ in range(len(COMMON) // 4):
        step = slots.plan()
        assert step
        assert step.rows == (quick,)
        assert step.chunk
        assert len(step.chunk.tokens) == 4
        slots.decoded(step)
        quick.tokens.append(0)
        slots.read(step.chunk)

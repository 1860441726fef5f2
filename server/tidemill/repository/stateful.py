"""A model whose requests go on where the one before stopped; knows no wire and not how runs are joined.

A request that fails leaves its sequence as it was: the caller can send it again. Those of the same sequence that wait
behind it fail with it, as they would be run on a state that they were not meant for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tidemill.batching.urgency import Urgency
from tidemill.bundle.config import ModelConfig
from tidemill.bundle.sequence_config import SequenceConfig
from tidemill.errors import ConfigError, DeadlineExceeded, InvalidArgument, ModelNotReady, Unavailable
from tidemill.protocol.signature import Signature
from tidemill.protocol.types import Array, Parameter
from tidemill.repository.running import RunningModel
from tidemill.repository.sequences import Id, Limits, Sequence, Sequences, Step
from tidemill.repository.states import States, declare_states

if TYPE_CHECKING:
    from tidemill.repository.served import ServedModel

__all__ = ["Owners", "StatefulModel", "keep_states", "sequence_id"]

Owners: TypeAlias = dict[Id, "StatefulModel"]
"""Which version of a model has which sequence; the versions of a model share one."""

_LARGEST_ID = 2**64 - 1


class StatefulModel:
    """Runs the requests of each sequence one after the other, and those of different sequences together.

    Attributes:
        inputs: What callers send.
        outputs: What callers get.
    """

    def __init__(
        self, running: RunningModel, states: States, limits: Limits, clock: Callable[[], float], owners: Owners
    ) -> None:
        """Put what is kept before what runs.

        Args:
            running: What runs the requests.
            states: What is kept.
            limits: How many sequences there may be.
            clock: Seconds; deadlines are given in it.
            owners: Which version has which sequence.
        """
        self.inputs, self.outputs = states.inputs, states.outputs
        self._running = running
        self._states = states
        self._clock = clock
        self._owners = owners
        self._sequences = Sequences(limits, clock, self._disown)
        self._signature, self._whole = Signature(states.inputs), Signature(running.inputs)
        self._served: ServedModel | None = None
        self._closed = ""
        self._lingers = False

    def belong(self, served: ServedModel) -> None:
        """Say which model this is, for those who look for a sequence."""
        self._served = served

    def owner(self, parameters: Mapping[str, Parameter], version: str) -> ServedModel | None:
        """The version that a request's sequence goes on at; None if it is this one, or nobody has it.

        Raises:
            InvalidArgument: The request names another.
        """
        if parameters.get("sequence_start") or not parameters.get("sequence_id"):
            return None
        owner = self._owners.get(sequence_id(parameters))
        if owner is None or owner is self or owner._served is None:
            return None
        if version and owner._served.version != version:
            goes = f"sequence {parameters['sequence_id']!r} goes on at version {owner._served.version}"
            raise InvalidArgument(f"{goes}, not at version {version}")
        return owner._served

    def submit(
        self,
        inputs: Mapping[str, Array],
        parameters: Mapping[str, Parameter],
        deadline: float | None = None,
        urgency: Urgency | None = None,
    ) -> asyncio.Future[Mapping[str, Array]]:
        """Have one request of a sequence run; or of none, if it brings every input.

        Args:
            inputs: Arrays by input name.
            parameters: The request's; `sequence_id`, `sequence_start` and `sequence_end` count.
            deadline: When the answer stops being wanted.
            urgency: What the request asks of the queue.

        Raises:
            InvalidArgument: The inputs do not fit, or no such sequence goes on.
            QueueFull: No further sequence can start.
            ModelNotReady: The model is being let go.
        """
        if not parameters.get("sequence_id"):
            return self._submit_alone(inputs, deadline, urgency)
        name = sequence_id(parameters)
        start, end = bool(parameters.get("sequence_start")), bool(parameters.get("sequence_end"))
        sizes = self._signature.check(inputs)
        told = self._states.told(name, sizes, start=start, end=end)
        sequence = self._begin(name, sizes) if start else self._find(name)
        step = Step({**inputs, **told}, start, end, deadline, urgency)
        sequence.take(step)
        task = asyncio.ensure_future(self._run(sequence, step))
        task.add_done_callback(partial(self._drop, sequence, step))
        return task

    async def leave(self, reason: str, *, lingers: bool) -> None:
        """Take no new sequences, and return when the model is needed no more.

        Args:
            reason: What callers are told.
            lingers: Whether those that go on may go on to their end; if not, only what was taken is answered.
        """
        self._closed, self._lingers = reason or "it is being unloaded", lingers
        await (self._sequences.until_all_ended() if lingers else self._sequences.until_answered())
        self._sequences.close()

    def close(self) -> None:
        """Forget all sequences."""
        self._closed, self._lingers = self._closed or "it is being unloaded", False
        self._sequences.close()

    def _submit_alone(
        self, inputs: Mapping[str, Array], deadline: float | None, urgency: Urgency | None
    ) -> asyncio.Future[Mapping[str, Array]]:
        if not inputs.keys() - {spec.name for spec in self.inputs}:
            raise InvalidArgument(
                "the model keeps a state from request to request: the parameter 'sequence_id' must name the sequence, "
                "with sequence_start: true on its first request and sequence_end: true on its last"
            )
        return self._running.submit(inputs, self._whole.check(inputs), deadline, urgency)

    def _begin(self, name: Id, sizes: Mapping[str, int]) -> Sequence:
        if self._closed:
            raise ModelNotReady(f"the model takes no new sequence: {self._closed}")
        if before := self._owners.get(name):
            before.forget(name)
        sequence = self._sequences.begin(name, self._states.initial(sizes))
        self._owners[name] = self
        return sequence

    def _find(self, name: Id) -> Sequence:
        if self._closed and not self._lingers:
            raise ModelNotReady(f"sequence {name!r} cannot go on: {self._closed}")
        return self._sequences.find(name)

    def forget(self, name: Id) -> None:
        """End a sequence, if it goes on here."""
        self._sequences.forget(name)

    def _disown(self, name: Id) -> None:
        if self._owners.get(name) is self:
            del self._owners[name]

    async def _run(self, sequence: Sequence, step: Step) -> Mapping[str, Array]:
        with self._sequences.in_use(sequence, step), self._running.held():
            try:
                await self._wait_until_due(sequence, step)
                outputs = await self._run_in_turn(sequence, step)
            except BaseException:
                self._fail(sequence, step)
                raise
        if step.ends:
            self._sequences.end(sequence)
        return outputs

    def _fail(self, sequence: Sequence, step: Step) -> None:
        sequence.fail(step)
        if step.starts:
            self._sequences.end(sequence)

    def _drop(self, sequence: Sequence, step: Step, _: asyncio.Future[Mapping[str, Array]]) -> None:
        """Clear up after a request that was cancelled before `_run` began."""
        if step in sequence.steps:
            with self._sequences.in_use(sequence, step):
                self._fail(sequence, step)

    async def _run_in_turn(self, sequence: Sequence, step: Step) -> Mapping[str, Array]:
        try:
            if step.spoiled:
                raise Unavailable(
                    f"a request of sequence {sequence.id!r} that came before this one failed, so this one was not run; "
                    "send both again, in order"
                )
            feed = {**step.feed, **sequence.state}
            outputs = await self._running.submit(feed, self._whole.check(feed), step.deadline, step.urgency)
            sequence.state = self._states.kept(outputs)
            return outputs
        finally:
            sequence.turn.release()  # the next one has it in the loop's next turn, after `fail`

    async def _wait_until_due(self, sequence: Sequence, step: Step) -> None:
        limit = None if step.deadline is None else max(0.0, step.deadline - self._clock())
        try:
            async with asyncio.timeout(limit):
                await asyncio.shield(sequence.place)
                await sequence.turn.acquire()
        except TimeoutError:
            raise DeadlineExceeded(f"sequence {sequence.id!r} was not served before the deadline") from None


def keep_states(
    running: RunningModel, config: ModelConfig, folder: Path, clock: Callable[[], float], owners: Owners
) -> StatefulModel:
    """Put what `sequence` in model.yaml declares before a running model.

    Args:
        running: The model.
        config: Its configuration; has a section `sequence`.
        folder: Its folder.
        clock: Seconds; deadlines are given in it.
        owners: Which of the model's versions has which sequence.

    Raises:
        ConfigError: The section does not fit the model.
    """
    sequence = config.sequence or SequenceConfig()
    if config.adapter:
        raise ConfigError("sequence: a model with an adapter keeps no state; name it as `base` of one that adapts")
    options = running.plan.options
    states = declare_states(sequence, running.inputs, running.outputs, running.axis or "", folder)
    places = max(1, options.max_batch_size) if sequence.strategy == "direct" else sequence.max_candidate_sequences
    idle = sequence.idle_timeout_microseconds / 1e6
    limits = Limits(places * options.instances, sequence.max_waiting_sequences, idle)
    return StatefulModel(running, states, limits, clock, owners)


def sequence_id(parameters: Mapping[str, Parameter]) -> Id:
    """The name of a request's sequence: a whole number or a text.

    Raises:
        InvalidArgument: It is neither, or out of range.
    """
    given = parameters["sequence_id"]
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise InvalidArgument(f"parameter 'sequence_id' is {given!r}, expected a whole number or a string")
    if isinstance(given, int) and not 0 <= given <= _LARGEST_ID:
        raise InvalidArgument(f"parameter 'sequence_id' is {given}, expected a number from 1 to {_LARGEST_ID}")
    return given

"""A model that makes texts in the place of one that answers once: several answers to a request, if it wants them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tidemill.bundle.config import ModelConfig
from tidemill.dtype import DType
from tidemill.errors import DeadlineExceeded, InvalidArgument, ModelNotReady
from tidemill.generation.request import Delta, GenerationRequest
from tidemill.generation.stream import Stream
from tidemill.protocol.signature import Signature, check_names
from tidemill.protocol.types import Array, InferRequest, InferResponse, ModelMetadata, Parameter, TensorSpec
from tidemill.repository.described_generator import GENERATOR_PLATFORM, describe_generator
from tidemill.repository.hold import Hold
from tidemill.repository.sampling_parameters import read_parameters
from tidemill.repository.served import ModelState, ServedModel
from tidemill.repository.started import Started
from tidemill.repository.text_model import TextModel

__all__ = ["ServedGenerator"]

_INPUT = TensorSpec("text_input", DType.string, ("batch",))
_OUTPUT = TensorSpec("text_output", DType.string, ("batch",))


class ServedGenerator(ServedModel):
    """A generator of texts; what it is asked for comes as text, with how to draw tokens as parameters."""

    def __init__(self, name: str, version: str, on_state: Callable[[ServedModel], None]) -> None:
        super().__init__(name, version, on_state)
        self._model: TextModel | None = None
        self._hold = Hold()
        self._owned = True
        self._signature = Signature((_INPUT,))

    def connect(self, model: TextModel, config: ModelConfig) -> None:
        """Take over a loaded model."""
        self._model, self._config = model, config

    @property
    def model(self) -> TextModel:
        """What makes the texts.

        Raises:
            ModelNotReady: It is not loaded, or no longer.
        """
        if self._model is None or not self.takes:
            raise ModelNotReady(self.not_ready_reason())
        return self._model

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What callers send."""
        return (_INPUT,)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What callers get."""
        return (_OUTPUT,)

    @property
    def queued(self) -> int:
        """Texts that wait for a slot, as of the last step."""
        step = self._model.generator.last_step if self._model else None
        return step.waiting if step else 0

    @property
    def busy(self) -> int:
        """1 while a step is made."""
        return int(self.longest_run > 0)

    @property
    def longest_run(self) -> float:
        """Seconds that the step under way has taken by now; 0 if none is."""
        return self._model.generator.step_seconds if self._model else 0.0

    @property
    def placement(self) -> Mapping[str, int]:
        """How many nodes each provider executes."""
        return self._model.instance.placement.nodes if self._model else {}

    def is_run_by(self, base: ServedModel | None) -> bool:
        """A generator has no base."""
        return base is None

    def held(self) -> AbstractContextManager[None]:
        """Keep it from being let go meanwhile."""
        return self._hold.held()

    async def drain(self) -> None:
        """Return when every text is over."""
        await self._hold.released()
        if self._model:
            await self._model.generator.drain()

    def close(self) -> None:
        """Let go of the model; texts that are not over fail with ShuttingDown."""
        model, self._model = self._model, None
        if model:
            model.generator.close()
        if self._state is not ModelState.FAILED:
            self.advance(ModelState.UNAVAILABLE)

    def metadata(self, versions: Iterable[str]) -> ModelMetadata:
        """The signature; ModelNotReady before the model is loaded."""
        _ = self.model
        return ModelMetadata(self.name, tuple(versions), GENERATOR_PLATFORM, self.inputs, self.outputs)

    def config(self) -> dict[str, Any]:
        """As Triton's ModelConfig; ModelNotReady before the model is loaded."""
        return describe_generator(self.name, (self.inputs, self.outputs), self.model, self._config)

    def start(self, request: InferRequest, deadline: float | None = None) -> Started:
        """Check a request and have its texts made; see `ServedModel.start`.

        The deadline is kept by who waits: a text that is not whole by then is cancelled with its future.
        """
        model = self.model
        if request.outputs:
            check_names("output", [_OUTPUT.name], [output.name for output in request.outputs])
        self._signature.check(request.inputs)
        wanted = [self._wanted(model, text, request) for text in request.inputs[_INPUT.name]]
        work = asyncio.ensure_future(self._make(model, wanted, deadline))
        return Started(self, request, [_OUTPUT.name], work)

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The pieces of one text as they come, the last with the parameter `finish_reason`.

        Raises:
            InvalidArgument: The request does not fit, or holds several texts.
            TidemillError: The generation failed.
        """
        model = self.model
        self._signature.check(request.inputs)
        texts = request.inputs[_INPUT.name]
        if len(texts) != 1:
            raise InvalidArgument(f"input 'text_input' holds {len(texts)} texts; a stream is of one")
        with self.held():
            made = model.generator.submit(self._wanted(model, texts[0], request))
            try:
                async for piece in made:
                    yield self._response(request, piece)
            finally:
                made.cancel()

    def _wanted(self, model: TextModel, text: bytes, request: InferRequest) -> GenerationRequest:
        try:
            prompt = model.read_prompt(text.decode())
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"input 'text_input' is not UTF-8: {error}") from None
        return read_parameters(request.parameters, prompt, model)

    async def _make(
        self, model: TextModel, wanted: list[GenerationRequest], deadline: float | None
    ) -> Mapping[str, Array]:
        streams: list[Stream] = []
        try:
            with self.held():
                # One by one: what is asked for too much is refused before anything is waited for.
                streams += map(model.generator.submit, wanted)
                async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                    return {_OUTPUT.name: _texts([await stream.whole() for stream in streams])}
        except TimeoutError:
            raise DeadlineExceeded("the text was not whole when its deadline passed") from None
        finally:
            for stream in streams:
                stream.cancel()

    def _response(self, request: InferRequest, piece: Delta) -> InferResponse:
        parameters: dict[str, Parameter] = {"finish_reason": piece.finish.value} if piece.finish else {}
        outputs = {_OUTPUT.name: _texts([piece])}
        return InferResponse(self.name, self.version, outputs, request.id, parameters=parameters)


def _texts(pieces: list[Delta]) -> Array:
    array = np.empty(len(pieces), object)
    array[:] = [piece.text.encode() for piece in pieces]
    return array

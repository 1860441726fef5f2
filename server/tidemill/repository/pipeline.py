"""A model that is Python code of the operator's, which asks other served models; only where the operator allows it.

The file has `async def run(tensors, ask)`. `tensors` are the request's inputs by name; `await ask(model, tensors)`
gives another model's outputs by name, through its batches; what is returned are the outputs by name.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tidemill.batching.record import BatchRecord
from tidemill.bundle.config import ModelConfig
from tidemill.bundle.ensemble_config import TensorConfig
from tidemill.bundle.pipeline_config import PipelineConfig
from tidemill.dtype import DType
from tidemill.errors import ConfigError, DeadlineExceeded, InferenceFailed, LoadFailed, ModelNotReady, TidemillError
from tidemill.protocol.signature import Signature, check_names
from tidemill.protocol.types import Array, InferRequest, ModelMetadata, TensorSpec
from tidemill.repository.description import describe_tensors
from tidemill.repository.ensemble import Find, ServedEnsemble, Watchers
from tidemill.repository.served import ServedModel
from tidemill.repository.started import Started

__all__ = ["PIPELINE_PLATFORM", "Code", "ServedPipeline", "load_code"]

PIPELINE_PLATFORM = "python"
_LOG = logging.getLogger("tidemill.repository")

Ask: TypeAlias = Callable[[str, Mapping[str, Array]], Awaitable[Mapping[str, Array]]]
Code: TypeAlias = Callable[[Mapping[str, Array], Ask], Awaitable[Mapping[str, Array]]]


class ServedPipeline(ServedEnsemble):
    """Code in the place of a model; ready while the models that it asks are."""

    def __init__(self, name: str, version: str, on_state: Callable[[ServedModel], None]) -> None:
        super().__init__(name, version, on_state)
        self._code: Code | None = None
        self._given: tuple[TensorSpec, ...] = ()
        self._made: tuple[TensorSpec, ...] = ()
        self._results = Signature(())

    def use(self, code: Code, config: ModelConfig, find: Find, watchers: Watchers) -> None:
        """Take over loaded code.

        Args:
            code: The function `run` of the file.
            config: Has a section `pipeline`.
            find: Finds the models that it asks.
            watchers: Who is told of requests.

        Raises:
            ConfigError: A datatype is none.
            ModelNotReady: A model that it asks is not ready.
            NotFound: One does not exist.
        """
        assert config.pipeline is not None
        self._code, self._config, self._find, self._watchers = code, config, find, watchers
        self._given = tuple(map(_spec, config.pipeline.inputs))
        self._made = tuple(map(_spec, config.pipeline.outputs))
        self._signature, self._results = Signature(self._given), Signature(self._made)
        self._look()

    @property
    def member_names(self) -> list[str]:
        """The models that it asks."""
        return list(self._config.pipeline.models) if self._config.pipeline else []

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What callers send."""
        return self._given

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What callers get."""
        return self._made

    def metadata(self, versions: Iterable[str]) -> ModelMetadata:
        """The signature."""
        return ModelMetadata(self.name, tuple(versions), PIPELINE_PLATFORM, self._given, self._made)

    def config(self) -> dict[str, Any]:
        """As Triton's ModelConfig."""
        return {
            "name": self.name,
            "platform": PIPELINE_PLATFORM,
            "backend": "python",
            "max_batch_size": 0,
            **describe_tensors(self._given, self._made, batched=False, labels=self._config.labels),
            "parameters": {"tidemill.models": {"string_value": ", ".join(self.member_names)}},
        }

    def start(self, request: InferRequest, deadline: float | None = None) -> Started:
        """Check a request and have the code answer it; see `ServedModel.start`."""
        names = [spec.name for spec in self._made]
        if request.outputs:
            wanted = [output.name for output in request.outputs]
            check_names("output", names, wanted)
            names = wanted
        self._signature.check(request.inputs)
        return Started(self, request, names, asyncio.ensure_future(self._answer(request, deadline)))

    async def _answer(self, request: InferRequest, deadline: float | None) -> Mapping[str, Array]:
        begun, failures, code = time.perf_counter(), 1, self._code
        if code is None:
            raise ModelNotReady(self.not_ready_reason())
        try:
            with self.held():
                async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                    made = await code(request.inputs, self._asking(request, deadline))
                outputs = self._checked(made)
            failures = 0
            return outputs
        except TidemillError:
            raise
        except TimeoutError:
            raise DeadlineExceeded("the pipeline was not done when the deadline passed") from None
        except (Exception, SystemExit) as error:
            _LOG.error("the pipeline of model %r failed", self.name, exc_info=error)
            raise InferenceFailed(f"the pipeline of model {self.name!r} failed; the server's log has it") from None
        finally:
            if self._watchers.ensemble:
                seconds = time.perf_counter() - begun
                self._watchers.ensemble(BatchRecord(1, (0.0,), seconds, failures))

    def _asking(self, request: InferRequest, deadline: float | None) -> Ask:
        async def ask(model: str, tensors: Mapping[str, Array]) -> Mapping[str, Array]:
            if model not in self.member_names:
                raise InferenceFailed(f"the pipeline asks {model!r}, which `pipeline.models` does not name")
            assert self._find is not None
            member, begun, code = self._find(model, ""), time.perf_counter(), "cancelled"
            try:
                started = member.start(InferRequest(model, tensors, id=request.id), deadline)
                await started.outputs
                code = "ok"
                return started.response().outputs
            except TidemillError as error:
                code = error.code
                raise
            finally:
                self._watchers.member(member, code, time.perf_counter() - begun)

        return ask

    def _checked(self, made: Mapping[str, Any]) -> Mapping[str, Array]:
        """What the code returned, as arrays that are what was declared."""
        outputs = {name: np.asarray(value) for name, value in dict(made).items()}
        try:
            self._results.check(outputs)
        except TidemillError as error:
            raise InferenceFailed(f"the pipeline returned what was not declared: {error}") from None
        return outputs

    def _look(self) -> None:
        """Whether the models that it asks are there and ready; raises what they are not."""
        if self._find is not None:
            self._members = tuple(self._find(name, "") for name in self.member_names)


async def load_code(config: PipelineConfig, folder: Path, *, allowed: bool) -> Code:
    """Run the file, and find its function.

    Args:
        config: The section `pipeline`.
        folder: The model's folder; the file lies in it.
        allowed: Whether the operator lets code from repositories run.

    Raises:
        LoadFailed: It is not allowed, is missing, fails, or has no such function.
    """
    if not allowed:
        raise LoadFailed("it is Python code, which runs only on a server that was started with --allow-code")
    return await asyncio.to_thread(_load, config, folder)


def _load(config: PipelineConfig, folder: Path) -> Code:
    path = folder / config.file
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        raise LoadFailed(f"pipeline.file: there is no file {config.file!r} in the model's folder")
    spec = importlib.util.spec_from_file_location(f"tidemill_pipeline_{folder.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise LoadFailed(f"{config.file} fails: {type(error).__name__}: {error}") from error
    code = getattr(module, "run", None)
    if not inspect.iscoroutinefunction(code):
        raise LoadFailed(f"{config.file} has no `async def run(tensors, ask)`")
    return code


def _spec(tensor: TensorConfig) -> TensorSpec:
    found = next((dtype for dtype in DType if dtype.wire == tensor.datatype), None)
    if found is None:
        raise ConfigError(f"pipeline: tensor {tensor.name!r} has the datatype {tensor.datatype!r}, which is none")
    return TensorSpec(tensor.name, found, tuple("" if size < 0 else size for size in tensor.shape or ()))

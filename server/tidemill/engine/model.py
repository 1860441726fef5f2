"""A compiled graph with its weights, called from Python; knows how to be fed, not how it was traced."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any

from tidemill.driver.buffer import Buffer
from tidemill.driver.device import CPU, Device
from tidemill.engine.arguments import arrange_arguments, check_arguments
from tidemill.engine.registry import bind_weights
from tidemill.engine.session import OrtSession
from tidemill.engine.traced import TracedGraph
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["Model"]

_NO_CAPTURE = "a Model does not capture device graphs; call it, ONNX Runtime plans its own execution"


class Model:
    """What `InferenceSession.load` returns.

    Weights are not copied on the host: a change of an array of the registry shows in the next call. On an accelerator
    they are, once; `reload` brings others.

        (y,) = model(x)
    """

    def __init__(
        self, graph: TracedGraph, session: OrtSession, devices: tuple[Device, ...], weights: dict[str, Any]
    ) -> None:
        self.name = graph.name
        self.devices = devices
        self._session = session
        self._inputs = graph.input_specs
        self._updates = dict(graph.updates)
        self._outputs = tuple(spec for spec in graph.output_specs if spec.name not in self._updates)
        self._weight_specs = dict(graph.weight_specs)
        self._weights = weights
        self._released = False

    @property
    def input_metadata(self) -> list[TensorSpec]:
        """The inputs in positional order, without the weights."""
        return list(self._inputs)

    @property
    def output_metadata(self) -> list[TensorSpec]:
        """The outputs in the order in which they are returned."""
        return list(self._outputs)

    @property
    def signature(self) -> Signature:
        """What `__call__` takes, as Python writes it."""
        return Signature([Parameter(spec.name, Parameter.POSITIONAL_OR_KEYWORD) for spec in self._inputs])

    @property
    def input_devices(self) -> list[Device]:
        """Where each input is taken: any array is, so the host."""
        return [CPU() for _ in self._inputs]

    @property
    def output_devices(self) -> list[Device]:
        """Where each output is returned: on the host."""
        return [CPU() for _ in self._outputs]

    def execute(self, *args: Any) -> list[Buffer]:
        """Run the model.

        Args:
            *args: One numpy array, Buffer or DLPack tensor an input. What is not contiguous is copied. An input that
                the graph changes is changed in place, once the run is over.

        Returns:
            One Buffer on the host an output.

        Raises:
            ValueError: The arguments do not fit the signature, or one that the graph changes is read-only.
            UnprocessableInput: The model cannot compute with these values.
            InferenceFailed: The run broke; nothing was changed.
        """
        return self(*args)

    def __call__(self, *args: Any, **kwargs: Any) -> list[Buffer]:
        """Run the model as `execute` does; inputs may be given by name (or as `input0`, `input1`, ...)."""
        if self._released:
            raise ValueError(f"the weights of model {self.name!r} were released; reload(...) brings others")
        arrays = arrange_arguments(self._inputs, args, kwargs)
        feed = check_arguments(self._inputs, arrays)
        targets = {output: _writable(name, arrays[name]) for output, name in self._updates.items()}
        outputs = self._session.run(feed, self._weights)
        for output, target in targets.items():
            target[...] = outputs[output]
        return [Buffer.from_numpy(outputs[spec.name]) for spec in self._outputs]

    def reload(self, weights_registry: Mapping[str, Any]) -> None:
        """Take other weights without compiling anew; calls under way end with the old ones.

        Raises:
            ValueError: A weight is missing or does not fit; the old weights stay.
        """
        self._weights = bind_weights(self._weight_specs, weights_registry, self.devices[0])
        self._released = False

    def release_weights(self) -> None:
        """Let go of the weights; calls are an error until `reload` brings others."""
        self._weights = {}
        self._released = True

    def capture(self, *args: Any) -> list[Buffer]:
        """Refused: there are no device graphs here.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(_NO_CAPTURE)

    def replay(self, *args: Any) -> None:
        """Refused, as `capture` is."""
        raise NotImplementedError(_NO_CAPTURE)

    def debug_verify_replay(self, *args: Any) -> None:
        """Refused, as `capture` is."""
        raise NotImplementedError(_NO_CAPTURE)

    def release_captured_graph(self, *args: Any) -> None:
        """Nothing to do: nothing was captured."""

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, specs)) for specs in (self._inputs, self._outputs))
        return f"Model({self.name!r}: ({inputs}) -> ({outputs}))"


def _writable(name: str, array: Array) -> Array:
    if not array.flags.writeable:
        raise ValueError(f"the graph changes input {name!r}, and what was passed is read-only; pass a copy of it")
    return array

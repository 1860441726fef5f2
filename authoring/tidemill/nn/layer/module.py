"""Module: a tree of layers that own weights by name; it can be traced, compiled and bundled any number of times."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidemill.bundle import Bundle
from tidemill.driver import Buffer
from tidemill.dtype import DType
from tidemill.graph.graph import Graph
from tidemill.graph.module import Module as GraphModule
from tidemill.graph.type import Type
from tidemill.graph.weight import Weight
from tidemill.nn.layer import loading, tracing, tree_walk
from tidemill.nn.layer.layer import Layer
from tidemill.nn.layer.loading import LoadReport
from tidemill.nn.layer.packing import WeightValues, graph_parts, model_renames
from tidemill.nn.layer.summary import summarize

__all__ = ["Module"]

_Loaded = TypeVar("_Loaded")


@dataclass(slots=True)
class _State:
    """What a module has registered: children by attribute, weights by local name, and which it only shares."""

    sublayers: dict[str, Module] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    shared: dict[str, Weight] = field(default_factory=dict)


class Module(Layer, ABC):
    """The base of models and their parts.

    Weights and modules that are assigned to attributes become part of it. A weight's full name is the path of
    attributes to its owner, joined by dots, and its own name. Modules in plain lists, tuples or dicts are not found:
    use LayerList.
    """

    ignored_keys: tuple[str, ...] = ()
    """Local names that a checkpoint may hold for this module though no weight has them."""

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Append the module's computation to the graph being traced."""

    @property
    def _omit_module_attr_name(self) -> bool:
        """Whether the attribute that holds this module is left out of its weights' full names."""
        return False

    @property
    def _state(self) -> _State:
        # Made on first use, so that a subclass may forget super().__init__().
        state: _State | None = self.__dict__.get("_module_state")
        if state is None:
            state = self.__dict__["_module_state"] = _State()
        return state

    @property
    def layer_weights(self) -> dict[str, Weight]:
        """This module's own weights by local name."""
        return self._state.weights

    @property
    def sublayers(self) -> dict[str, Module]:
        """The modules that this one holds, by attribute."""
        return self._state.sublayers

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Weight):
            self._check_name(name, value.local_name, value)
        self._unregister(name)
        if isinstance(value, Module):
            self._state.sublayers[name] = value
        elif isinstance(value, Weight):
            self._register(name, value.local_name, value)
        elif tracing.holds_modules(value):
            warnings.warn(
                f"{type(self).__name__}.{name} is a plain {type(value).__name__} of modules: their weights are not "
                "part of the module. Use tidemill.nn.LayerList.",
                stacklevel=2,
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._unregister(name)
        super().__delattr__(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.sublayers)} layers, {len(self.layer_weights)} weights)"

    def summary(self, *input_types: Type) -> str:
        """The modules that own weights as a table, with totals.

        Args:
            *input_types: The type of each argument of `__call__`; if given, the module is traced to show which modules
                share a function.
        """
        return summarize(self, self.trace(*input_types) if input_types else None)

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """Every module of the tree once, breadth first from this one, with the prefix of its weights' full names."""
        yield from tree_walk.walk_modules(self)

    def raw_state_dict(self) -> dict[str, Weight]:
        """Every weight by full name, as Weight objects; none is renamed.

        Raises:
            ValueError: Two weights have one full name.
        """
        return tree_walk.owned_weights(self)

    def state_dict(self, auto_initialize: bool = True) -> dict[str, Any]:
        """The value of every weight by full name; weights take their full name.

        Args:
            auto_initialize: Fill weights that have no value with zeros; otherwise they are an error.

        Returns:
            Arrays as they were loaded, and Buffers of zeros.

        Raises:
            ValueError: A weight has no value and may not be, or cannot be, filled with zeros.
        """
        weights = self.raw_state_dict()
        for name, weight in weights.items():
            weight.give_full_name(name)
            if weight.value is None:
                weight.value = self._initial(name, weight, auto_initialize)
        return {name: weight.value for name, weight in weights.items()}

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        *,
        override_quantization_encoding: bool = False,
        weight_alignment: int | None = None,
        strict: bool = True,
    ) -> LoadReport:
        """Set the value of every weight; all or nothing.

        Args:
            state_dict: Numpy arrays, Buffers or WeightData by full name.
            override_quantization_encoding: Take the encoding of a WeightData over to its weight.
            weight_alignment: The alignment in bytes that values must have, and weights get.
            strict: Whether missing weights and unexpected keys are an error.

        Returns:
            The names that were missing and unexpected; both empty after a strict load.

        Raises:
            ValueError: Names or values do not fit; the message has every fault.
        """
        weights = self.raw_state_dict()
        found = {name: state_dict[name] for name in weights if state_dict.get(name) is not None}
        ignored = {prefix + key for prefix, module in self.named_modules() for key in module.ignored_keys}
        report = LoadReport(
            missing=tuple(name for name in weights if name not in found),
            unexpected=tuple(name for name in state_dict if name not in weights and name not in ignored),
        )
        fault = loading.strict_fault(report.missing, report.unexpected, state_dict) if strict else ""
        if fault:
            raise ValueError(f"load_state_dict() strict=True validation failed. {fault}")
        checks = (loading.check_value(name, weights[name], value, weight_alignment) for name, value in found.items())
        faults = [text for text in checks if text]
        if faults:
            raise ValueError("\n".join(faults))
        for name, value in found.items():
            self._load(name, weights[name], value, override_quantization_encoding)
            weights[name].align = weight_alignment or weights[name].align
        return report

    def set_shared_weight(self, name: str, weight: Weight) -> None:
        """Hold a weight that another module owns: it is used here and listed there.

        Args:
            name: The attribute.
            weight: The weight of the other module.

        Raises:
            ValueError: The module has a weight of that name already.
        """
        local = weight.name if weight.name not in self.layer_weights else name
        self._check_name(name, local, weight)
        self._unregister(name)
        self._state.shared[name] = weight
        self._register(name, local, weight)
        super().__setattr__(name, weight)

    def replace_module(self, name: str, module: Module) -> None:
        """Put another module in the place of a child.

        Raises:
            KeyError: There is no child of that name.
        """
        if name not in self.sublayers:
            raise KeyError(f"{type(self).__name__!r} has no child module {name!r}")
        order = list(self.sublayers)
        setattr(self, name, module)
        children = dict(self.sublayers)
        self._state.sublayers = {key: children[key] for key in order}

    def trace(
        self,
        *input_types: Type,
        name: str | None = None,
        module: GraphModule | None = None,
        custom_extensions: Iterable[Any] = (),
        is_device_graph: bool = False,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> Graph:
        """Run `__call__` with symbolic values and keep what it does as a graph.

        Args:
            *input_types: The type of each positional argument.
            name: The graph's name; the class's qualified name by default.
            module: The module of graphs to add it to, so that several are compiled over one set of weights.
            custom_extensions: Operator libraries that the graph uses.
            is_device_graph: Has no meaning here and must be False.
            input_names: What the inputs are called; the parameters of `__call__` by default.
            output_names: What the outputs are called; by default the keys of a dict or the fields of a dataclass or
                NamedTuple that `__call__` returns, else `output`, or `output_0`, `output_1`, ...

        Returns:
            The graph. Its weights have their full names, whatever was called before.

        Raises:
            TypeError: An input type is no TensorType or BufferType, or `__call__` returns something that is no value.
            ValueError: The module of graphs has one of this name.
            NotImplementedError: `is_device_graph` is set.
        """
        if is_device_graph:
            raise NotImplementedError("is_device_graph=True: the execution provider decides what runs on the device")
        options = tracing.TraceOptions(
            name=name or type(self).__qualname__,
            module=module,
            custom_extensions=tuple(custom_extensions),
            input_names=input_names,
            output_names=output_names,
        )
        return tracing.trace(self, input_types, options)

    def compile(
        self,
        *input_types: Type,
        session: tracing.Session[_Loaded],
        weights: Mapping[str, Any] | None = None,
        name: str | None = None,
        custom_extensions: Iterable[Any] = (),
        is_device_graph: bool = False,
    ) -> _Loaded:
        """Trace the module and load the graph into a session.

        Args:
            *input_types: The type of each positional argument.
            session: What loads it, such as `tidemill.engine.InferenceSession`.
            weights: Values by full name; `state_dict()` by default.
            name: The graph's name; the class's qualified name by default.
            custom_extensions: Operator libraries that the graph uses.
            is_device_graph: Has no meaning here and must be False.

        Returns:
            What the session makes of it: a `Model`.
        """
        registry = self.state_dict() if weights is None else weights
        graph = self.trace(
            *input_types, name=name, custom_extensions=custom_extensions, is_device_graph=is_device_graph
        )
        return session.load(graph, weights_registry=registry)

    def bundle(
        self,
        *input_types: Type,
        weights: WeightValues | None = None,
        name: str | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        dtype: DType | str | None = None,
    ) -> Bundle:
        """Trace the module and pack it with its weights, ready to be written and served.

        Args:
            *input_types: The type of each positional argument.
            weights: The path or URL of a checkpoint, or arrays by full name; by default the values that were loaded.
            name: The model's name; the class's qualified name by default.
            input_names: As in `trace`.
            output_names: As in `trace`.
            rename: Full weight name to the key in the checkpoint, where the two differ; patterns as in
                `tidemill.weights.rename`.
            dtype: What floats of a checkpoint are converted to where the module declares it; None never converts.

        Raises:
            ValueError: The module returns nothing, or `weights` is left out and a weight has no value.
        """
        graph = self.trace(*input_types, name=name, input_names=input_names, output_names=output_names)
        return Bundle(
            name=graph.name,
            graphs=graph_parts({"main": graph}),
            weights=self.state_dict(auto_initialize=False) if weights is None else weights,
            rename=model_renames({"main": graph}, rename or {}),
            tied=self._tied_names(),
            source=f"{type(self).__module__}.{type(self).__qualname__}",
            dtype=dtype,
        )

    def build_subgraph(self, name: str, inputs: Sequence[Any], weight_prefix: str = "") -> Graph:
        """Trace the module into a subgraph of the graph being traced; `ops.call` calls it.

        Args:
            name: Its name, unique in the graph.
            inputs: One entry per positional argument: a value, a tree of values, or static data.
            weight_prefix: Stripped from the names of weights that begin with it; each call puts its own prefix there.

        Raises:
            LookupError: No graph is being traced.
            TypeError: `inputs` is no sequence, or `__call__` returns no value.
            ValueError: The name is taken, or no weight begins with the prefix.
        """
        return tracing.build_subgraph(self, name, inputs, weight_prefix)

    def owned_weights(self) -> dict[str, Weight]:
        """This module's weights by local name without those that it only shares."""
        shared = {id(weight) for weight in self._state.shared.values()}
        return {local: weight for local, weight in self.layer_weights.items() if id(weight) not in shared}

    def _tied_names(self) -> dict[str, str]:
        owners = {id(weight): name for name, weight in self.raw_state_dict().items()}
        return {
            f"{prefix}{attribute}": owners[id(weight)]
            for prefix, module in self.named_modules()
            for attribute, weight in module._state.shared.items()
            if id(weight) in owners
        }

    def _check_name(self, attribute: str, local: str, weight: Weight) -> None:
        holder = self.layer_weights.get(local)
        if holder is not None and holder is not weight and self._state.attributes.get(attribute) != local:
            raise ValueError(
                f"{type(self).__name__} already has a weight named {local!r}; "
                f"give the one at {attribute!r} another name"
            )

    def _register(self, attribute: str, local: str, weight: Weight) -> None:
        self._state.weights[local] = weight
        self._state.attributes[attribute] = local

    def _unregister(self, attribute: str) -> None:
        state = self._state
        state.sublayers.pop(attribute, None)
        state.shared.pop(attribute, None)
        local = state.attributes.pop(attribute, None)
        if local is not None and local not in state.attributes.values():
            state.weights.pop(local, None)

    def _initial(self, name: str, weight: Weight, auto_initialize: bool) -> Buffer:
        if not auto_initialize:
            raise ValueError(f"Weight '{name}' was not initialized.")
        if not weight.shape.is_static:
            raise ValueError(
                f"Weight '{name}' has the symbolic shape {weight.shape}, so it can not be filled with zeros; load it"
            )
        return Buffer.zeros(weight.shape.static_dims, weight.dtype)

    def _load(self, name: str, weight: Weight, value: Any, override_encoding: bool) -> None:
        weight.give_full_name(name)
        weight.value = loading.stored_form(value)
        encoding = getattr(value, "quantization_encoding", None)
        if override_encoding and encoding is not None:
            weight.quantization_encoding = encoding

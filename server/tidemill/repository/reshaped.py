"""A graph whose callers see other shapes than it has, as Triton's `reshape` says; knows no config files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidemill.bundle.config import ReshapeConfig
from tidemill.engine.instance import Instance
from tidemill.engine.placement import Placement
from tidemill.engine.session import Cancel
from tidemill.errors import ConfigError
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["ReshapedInstance"]


class ReshapedInstance(Instance):
    """Another instance with some of its tensors in other shapes; no element moves."""

    def __init__(self, instance: Instance, shapes: Mapping[str, ReshapeConfig]) -> None:
        """Everything but shapes is the other instance's.

        Args:
            instance: The loaded graph.
            shapes: The shapes by the name of the tensor.

        Raises:
            ConfigError: A tensor does not exist, or has not the shape that it is said to have.
        """
        known = {spec.name for spec in (*instance.inputs, *instance.outputs)}
        if unknown := shapes.keys() - known:
            raise ConfigError(f"reshape: the model has no tensor {', '.join(map(repr, sorted(unknown)))}")
        self._instance = instance
        self._shapes = shapes
        self.inputs = tuple(_seen(spec, shapes.get(spec.name)) for spec in instance.inputs)
        self.outputs = tuple(_seen(spec, shapes.get(spec.name)) for spec in instance.outputs)
        self.providers, self.threads = instance.providers, instance.threads
        self.artifact, self.key = instance.artifact, instance.key

    @property
    def placement(self) -> Placement:
        """As the other's."""
        return self._instance.placement

    def run(self, feed: Mapping[str, Array], cancel: Cancel | None = None) -> dict[str, Array]:
        """Run the model on arrays in the shapes that callers see; answers are in such too."""
        given = {name: self._turn(name, array, inwards=True) for name, array in feed.items()}
        return {name: self._turn(name, array) for name, array in self._instance.run(given, cancel).items()}

    def _turn(self, name: str, array: Array, *, inwards: bool = False) -> Array:
        shape = self._shapes.get(name)
        if shape is None:
            return array
        ahead = int(shape.batched)
        before, after = (shape.seen, shape.model) if inwards else (shape.model, shape.seen)
        free = iter([size for size, dim in zip(array.shape[ahead:], before, strict=True) if dim == -1])
        return array.reshape(*array.shape[:ahead], *(next(free) if dim == -1 else dim for dim in after))


def _seen(spec: TensorSpec, shape: ReshapeConfig | None) -> TensorSpec:
    if shape is None:
        return spec
    ahead = int(shape.batched)
    inner = spec.shape[ahead:]
    if len(inner) != len(shape.model) or not all(map(_may_be, shape.model, inner)):
        raise ConfigError(f"reshape: {spec} has not the shape {list(shape.model)} that it is said to have")
    free = _free(shape.model, inner)
    return TensorSpec(spec.name, spec.dtype, (*spec.shape[:ahead], *(next(free) if d == -1 else d for d in shape.seen)))


def _may_be(declared: int, dim: int | str) -> bool:
    return declared == -1 or isinstance(dim, str) or declared == dim


def _free(declared: Sequence[int], dims: Sequence[int | str]) -> Iterator[int | str]:
    return iter([dim for size, dim in zip(declared, dims, strict=True) if size == -1])

"""Modules in a list: registered under "0", "1", ... and kept in step with every change of the list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, overload

from tidemill.nn.layer.module import Module

__all__ = ["LayerList", "MissingLayer", "Sequential"]


class LayerList(Module):
    """A list of modules; calling it calls them one after the other.

    Args:
        layers: The modules.
    """

    def __init__(self, layers: Iterable[Module]) -> None:
        super().__init__()
        self._place(list(layers))

    @property
    def layers(self) -> list[Module]:
        """The modules of the list, as a new list; other modules that a subclass holds are not among them."""
        return [module for name, module in self.sublayers.items() if name.isdecimal()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The first layer of the arguments, each other layer of what the one before returned."""
        result: Any = args
        for place, layer in enumerate(self.layers):
            result = layer(*args, **kwargs) if not place else layer(*_as_arguments(result))
        return result

    def append(self, layer: Module) -> None:
        """Put a module at the end."""
        self._add(len(self), layer)

    def insert(self, index: int, layer: Module) -> None:
        """Put a module before `index`; the later ones move up."""
        layers = self.layers
        layers.insert(index, layer)
        self._place(layers)

    def extend(self, layers: Module | Iterable[Module]) -> None:
        """Put a module, or several, at the end."""
        for layer in [layers] if isinstance(layers, Module) else layers:
            self.append(layer)

    def replace_module(self, name: str, module: Module) -> None:
        """Put another module in the place of a child."""
        if name not in self.sublayers:
            raise KeyError(f"{type(self).__name__!r} has no child module {name!r}")
        self[int(name)] = module

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> list[Module]: ...
    def __getitem__(self, index: int | slice) -> Module | list[Module]:
        return self.layers[index]

    def __setitem__(self, index: int, layer: Module) -> None:
        layers = self.layers
        layers[index] = layer
        self._place(layers)

    def __delitem__(self, index: int) -> None:
        layers = self.layers
        del layers[index]
        self._place(layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    def __str__(self) -> str:
        return str(self.layers)

    def _place(self, layers: list[Module]) -> None:
        for layer in layers:
            self._check(layer)
        for name in [name for name in self.sublayers if name.isdecimal()]:
            delattr(self, name)
        for place, layer in enumerate(layers):
            setattr(self, str(place), layer)

    def _add(self, place: int, layer: Module) -> None:
        self._check(layer)
        setattr(self, str(place), layer)

    def _check(self, layer: object) -> None:
        if not isinstance(layer, Module):
            raise TypeError(f"{type(self).__name__} holds modules, not {layer!r} ({type(layer).__name__})")


class Sequential(LayerList):
    """A LayerList under the name that says what calling it does."""


class MissingLayer(Module):
    """Keeps the number of a layer that another process has; calling it is an error.

    Args:
        layer_id: The number.
    """

    def __init__(self, layer_id: int) -> None:
        super().__init__()
        self.layer_id = layer_id

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Raise RuntimeError: the layer is not here."""
        raise RuntimeError(f"layer {self.layer_id} is missing in this process, so it can not be called")


def _as_arguments(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)

"""Whether requests of different lengths may be padded to run together: declared in model.yaml, proved by running."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tidemill.batching.batch import split
from tidemill.batching.ragged import Ragged
from tidemill.bundle.config import RaggedConfig
from tidemill.engine.batchability import close
from tidemill.engine.samples import sample_feed
from tidemill.errors import ConfigError, TidemillError
from tidemill.protocol.types import Array, TensorSpec

__all__ = ["declare_ragged", "prove_padding"]

_Runner: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_LENGTHS = ((5, 3), (16, 11), (64, 48))
"""Pairs of lengths tried in turn: some models do not take the short ones."""


def declare_ragged(
    config: RaggedConfig, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], batch: str
) -> tuple[str, Ragged]:
    """Which axes carry the varying dim.

    Args:
        config: The section `batching.ragged`.
        inputs: The graph's inputs.
        outputs: The graph's outputs.
        batch: The symbol of the batch axis.

    Returns:
        The dim, and how it is padded.

    Raises:
        ConfigError: An input is unknown, has no such dim, cannot hold the pad value, or has no pad value and needs one.
    """
    specs = {spec.name: spec for spec in inputs}
    for name in (*config.pad, *([config.mask] if config.mask else [])):
        if name not in specs:
            raise ConfigError(f"batching.ragged: the model has no input {name!r}; it has {', '.join(specs)}")
    dim = config.dim or _only_dim([specs[name] for name in config.pad], batch)
    carrying = {spec.name: _axes(spec, dim) for spec in inputs if dim in spec.shape}
    _check_pads(config, specs, carrying, dim)
    return dim, Ragged(
        inputs={name: axes for name, axes in carrying.items() if name != config.mask},
        outputs={spec.name: _axes(spec, dim) for spec in outputs if dim in spec.shape},
        pads=config.pad,
        mask=_mask(config, specs, batch, dim),
    )


def prove_padding(run: _Runner, ragged: Ragged, dim: str, specs: Mapping[str, Sequence[TensorSpec]]) -> str:
    """Run requests of two lengths alone and together, and compare.

    Args:
        run: Runs the model; arrays by name in and out.
        ragged: How they are padded.
        dim: The varying dim.
        specs: The graph's "inputs" and "outputs".

    Returns:
        Why they may not be padded: which output differs; "" if nothing does.
    """
    refusal = ""
    for lengths in _LENGTHS:
        try:
            return _difference(run, ragged, [_feed(ragged, specs["inputs"], dim, n) for n in lengths], specs["outputs"])
        except TidemillError as error:
            refusal = refusal or f"nothing could be proved: {error}"
    return refusal


def _feed(ragged: Ragged, inputs: Sequence[TensorSpec], dim: str, length: int) -> Mapping[str, Array]:
    feed = sample_feed(inputs, {dim: length}, size=1, seed=length)
    return {name: array for name, array in feed.items() if not ragged.mask or name != ragged.mask[0]}


def _difference(
    run: _Runner, ragged: Ragged, feeds: Sequence[Mapping[str, Array]], outputs: Sequence[TensorSpec]
) -> str:
    alone = [run(ragged.join([feed], [1])) for feed in feeds]
    together = ragged.cut(split(run(ragged.join(feeds, [1] * len(feeds))), [1] * len(feeds)), feeds)
    for spec in outputs:
        for one, joined in zip(alone, together, strict=True):
            if not close(joined[spec.name], one[spec.name], spec.dtype):
                return f"output {spec.name!r} is another when the request is padded"
    return ""


def _only_dim(padded: Sequence[TensorSpec], batch: str) -> str:
    dims = {dim for spec in padded for dim in spec.shape if isinstance(dim, str) and dim not in ("", batch)}
    if len(dims) != 1:
        listed = ", ".join(sorted(dims)) or "none"
        raise ConfigError(f"batching.ragged: the padded inputs have these dims: {listed}; say which one with `dim`")
    return dims.pop()


def _axes(spec: TensorSpec, dim: str) -> tuple[int, ...]:
    return tuple(axis for axis, size in enumerate(spec.shape) if size == dim)


def _check_pads(
    config: RaggedConfig, specs: Mapping[str, TensorSpec], carrying: Mapping[str, tuple[int, ...]], dim: str
) -> None:
    missing = [name for name in carrying if name not in config.pad and name != config.mask]
    if missing:
        raise ConfigError(f"batching.ragged.pad: input {missing[0]!r} has the dim {dim!r} too and needs a pad value")
    for name, value in config.pad.items():
        if name not in carrying:
            raise ConfigError(f"batching.ragged.pad: input {specs[name]} has no dim {dim!r}")
        dtype = specs[name].dtype
        if isinstance(value, str) or (isinstance(value, float) and not dtype.is_float()):
            raise ConfigError(f"batching.ragged.pad: input {specs[name]} cannot be filled up with {value!r}")


def _mask(
    config: RaggedConfig, specs: Mapping[str, TensorSpec], batch: str, dim: str
) -> tuple[str, np.dtype[Any]] | None:
    if config.mask is None:
        return None
    spec = specs[config.mask]
    if spec.shape != (batch, dim):
        raise ConfigError(f"batching.ragged.mask: input {spec} must have the shape [{batch}, {dim}]")
    return spec.name, spec.dtype.to_numpy()

"""Requests of different lengths as one batch and back: padded at the end, cut to their own length; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tidemill.batching.pending import Array, Feed

__all__ = ["Ragged"]


@dataclass(frozen=True, slots=True)
class Ragged:
    """How the tensors of a model carry its one symbol of varying size, such as `seq`.

    Attributes:
        inputs: The axes, by input name, whose size is the request's length.
        outputs: The same of the outputs, which are cut back there.
        pads: What an input is filled up with, by name; zero (or the empty string) if not given.
        mask: An input of shape [rows, length] that no caller sends, with its dtype: it is 1 where a row has a value
            of its own and 0 where it was filled up. None if the model has no such input or callers send it.
        joins: Whether different lengths are joined at all, or each only with its like.
    """

    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    pads: Mapping[str, Any] = field(default_factory=dict)
    mask: tuple[str, np.dtype[Any]] | None = None
    joins: bool = True

    def length(self, feed: Feed) -> int:
        """The request's size of the varying axis."""
        name, axes = next(iter(self.inputs.items()))
        return int(feed[name].shape[axes[0]])

    def join(self, feeds: Sequence[Feed], rows: Sequence[int]) -> Feed:
        """Put the rows of all feeds behind each other, each filled up to the longest.

        Args:
            feeds: Equal in names, dtypes and shapes but for axis 0 and the varying axes.
            rows: The rows of each.

        Returns:
            Fresh arrays by input name; a lone feed's own arrays. Beside them the mask, if there is one.
        """
        lengths = [self.length(feed) for feed in feeds]
        longest = max(lengths)
        joined = {name: self._join_input(name, [feed[name] for feed in feeds], longest) for name in feeds[0]}
        if self.mask:
            name, dtype = self.mask
            joined[name] = (np.arange(longest) < np.repeat(lengths, rows)[:, None]).astype(dtype)
        return joined

    def cut(self, parts: Sequence[Feed], feeds: Sequence[Feed]) -> list[Feed]:
        """Give each request's outputs its own length back.

        Args:
            parts: The outputs of each request, all of the longest length.
            feeds: What each request had sent.
        """
        return [self._cut_part(part, self.length(feed)) for part, feed in zip(parts, feeds, strict=True)]

    def _join_input(self, name: str, arrays: Sequence[Array], longest: int) -> Array:
        if len(arrays) == 1:
            return arrays[0]
        axes = self.inputs.get(name, ())
        if all(array.shape[axis] == longest for array in arrays for axis in axes):
            return np.concatenate(arrays)
        return _padded(arrays, axes, longest, self.pads.get(name, b"" if arrays[0].dtype == object else 0))

    def _cut_part(self, part: Feed, length: int) -> Feed:
        return {name: _cut(array, self.outputs.get(name, ()), length) for name, array in part.items()}


def _padded(arrays: Sequence[Array], axes: tuple[int, ...], longest: int, pad: Any) -> Array:
    shape = list(arrays[0].shape)
    for axis in axes:
        shape[axis] = longest
    shape[0] = sum(len(array) for array in arrays)
    joined: Array = np.full(shape, pad, arrays[0].dtype)
    start = 0
    for array in arrays:
        end = start + len(array)
        joined[(slice(start, end), *(slice(size) for size in array.shape[1:]))] = array
        start = end
    return joined


def _cut(array: Array, axes: tuple[int, ...], length: int) -> Array:
    if not axes or all(array.shape[axis] == length for axis in axes):
        return array
    return array[tuple(slice(length) if axis in axes else slice(None) for axis in range(array.ndim))]

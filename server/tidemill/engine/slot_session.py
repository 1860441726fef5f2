"""A decoder over a cache of slots that it writes where it lies; knows tokens by number only and nothing of texts.

The graph takes `input_ids` int64 [batch, seq], `ends` int32 [batch] (where each row's last new token stands) and for
each layer `past.N.key` and `past.N.value` [batch, kv_heads, capacity, head_dim]. It gives `logits` float32
[batch, vocabulary] after the last token, and `present.N.key` and `present.N.value` like the past ones. Both are bound
to the same memory, where rows lie one behind the other: a run over the first rows, or over one, copies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemill.engine.session import OrtSession
from tidemill.errors import ConfigError
from tidemill.protocol.types import TensorSpec

__all__ = ["SlotSession"]

_TOKENS, _ENDS, _LOGITS = "input_ids", "ends", "logits"


class SlotSession:
    """Runs such a graph; not for two threads at once.

    Attributes:
        slots: How many rows the cache has.
        capacity: How many tokens a row holds.
        vocabulary: How many logits there are.
    """

    def __init__(self, session: OrtSession, slots: int, capacity: int) -> None:
        """Make room for the cache; its memory is taken from the system as it is written to.

        Args:
            session: The loaded graph, on the CPU.
            slots: How many rows the cache has.
            capacity: How many tokens a row holds.

        Raises:
            ConfigError: The graph is none of this kind.
        """
        self._session = session
        self._layout = layout = _read_layout(session)
        self.slots, self.capacity, self.vocabulary = slots, capacity, layout.vocabulary
        self._cache = {name: np.zeros((slots, *layout.row(name, capacity)), np.float32) for name in layout.caches}
        self._logits = np.zeros((slots, self.vocabulary), np.float32)
        self._decoding: dict[int, _Bound] = {}
        self._reading: dict[int, Any] = {}

    @property
    def row_bytes(self) -> int:
        """What the cache of one full row takes."""
        return sum(array[0].nbytes for array in self._cache.values())

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> NDArray[np.float32]:
        """Put one token into each of the first slots; see `generation.Stepper`."""
        count = len(tokens)
        bound = self._decoding.get(count) or self._bind_decoding(count)
        bound.tokens[:, 0] = tokens
        bound.ends[:] = lengths
        self._session.run_bound(bound.binding)
        return self._logits[:count]

    def prefill(self, slot: int, tokens: Sequence[int], length: int) -> NDArray[np.float32]:
        """Put several tokens into one slot; see `generation.Stepper`."""
        binding = self._reading.get(slot)
        if binding is None:
            binding = self._reading[slot] = self._bind_caches(slot, 1)
            _bind_output(binding, _LOGITS, self._logits[slot : slot + 1])
        given = np.array([tokens], np.int64)
        ends = np.array([length + len(tokens) - 1], np.int32)
        _bind_input(binding, _TOKENS, given)
        _bind_input(binding, _ENDS, ends)
        self._session.run_bound(binding)
        row: NDArray[np.float32] = self._logits[slot]
        return row

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` tokens of a slot those of another."""
        for array in self._cache.values():
            array[target, :, :length] = array[source, :, :length]

    def swap(self, first: int, second: int, length: int) -> None:
        """Exchange the first `length` tokens of two slots."""
        for array in self._cache.values():
            kept = array[first, :, :length].copy()
            array[first, :, :length] = array[second, :, :length]
            array[second, :, :length] = kept

    def _bind_decoding(self, count: int) -> _Bound:
        binding = self._bind_caches(0, count)
        bound = _Bound(binding, np.zeros((count, 1), np.int64), np.zeros(count, np.int32))
        _bind_input(binding, _TOKENS, bound.tokens)
        _bind_input(binding, _ENDS, bound.ends)
        _bind_output(binding, _LOGITS, self._logits[:count])
        self._decoding[count] = bound
        return bound

    def _bind_caches(self, first: int, count: int) -> Any:
        binding = self._session.binding()
        for past, present in self._layout.caches.items():
            rows = self._cache[past][first : first + count]
            _bind_input(binding, past, rows)
            _bind_output(binding, present, rows)
        return binding


@dataclass(frozen=True, slots=True)
class _Bound:
    """A binding with the memory that its inputs are read from."""

    binding: Any
    tokens: NDArray[np.int64]
    ends: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Layout:
    """The names of past and present caches, their specs, and the number of logits."""

    caches: Mapping[str, str]
    specs: Mapping[str, TensorSpec]
    vocabulary: int

    def row(self, name: str, capacity: int) -> tuple[int, int, int]:
        """The shape of one row: kv_heads, capacity, head_dim."""
        _, heads, _, size = self.specs[name].shape
        return int(heads), capacity, int(size)


def _read_layout(session: OrtSession) -> _Layout:
    inputs = {spec.name: spec for spec in session.inputs}
    outputs = {spec.name: spec for spec in session.outputs}
    caches = {name: name.replace("past.", "present.", 1) for name in inputs if name.startswith("past.")}
    missing = [name for name in (_TOKENS, _ENDS) if name not in inputs]
    missing += [name for name in (_LOGITS, *caches.values()) if name not in outputs]
    if missing or not caches:
        raise ConfigError(
            f"generation needs a decoder over slots, with the inputs {_TOKENS}, {_ENDS} and past.0.key, ..., and the "
            f"outputs {_LOGITS} and present.0.key, ...; this graph lacks {', '.join(missing) or 'past.0.key'}"
        )
    odd = [spec for name in caches if len((spec := inputs[name]).shape) != 4 or spec.dtype.wire != "FP32"]
    width = outputs[_LOGITS].shape[-1]
    if odd or not isinstance(width, int):
        raise ConfigError(f"generation needs FP32 caches of rank 4 and a known number of logits, not {[*odd, width]}")
    return _Layout(caches, inputs, width)


def _bind_input(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _bind_output(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

"""Signals: the inverse Fourier transform of real signals, windows, and complex numbers as pairs."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from tidemill.dtype import DType
from tidemill.graph.context import as_tensor, current, emit
from tidemill.graph.dim import StaticDim
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.axes import check_axis
from tidemill.graph.ops.elementwise import mul
from tidemill.graph.ops.indexing import slice_tensor
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.shaping import broadcast_to, concat, reshape, transpose, unsqueeze
from tidemill.graph.type import DeviceRef

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["Normalization", "as_interleaved_complex", "hann_window", "irfft"]


class Normalization(Enum):
    """What an inverse transform over `n` elements is divided by: n, its square root, or nothing."""

    BACKWARD = "backward"
    ORTHO = "ortho"
    FORWARD = "forward"


def irfft(
    input_tensor: TensorLike,
    n: int | None = None,
    axis: int = -1,
    normalization: Normalization | str = Normalization.BACKWARD,
    input_is_complex: bool = False,
    buffer_size_mb: int = 512,  # noqa: ARG001  (the seed's kernel needs it)
) -> TensorValue:
    """The real signal of which `input_tensor` is the first half of the spectrum; numpy's `irfft`.

    Args:
        input_tensor: float32 or float64. Real parts alone, or pairs of real and imaginary parts along the last axis.
        n: The length of the signal; the spectrum is cut or filled with zeros to `n // 2 + 1`. By default the even
            length that the spectrum belongs to.
        axis: The axis of the spectrum, whose size must be static; the axis of pairs does not count.
        normalization: "backward" divides by n, "ortho" by its square root, "forward" not at all.
        input_is_complex: Whether the last axis holds (real, imaginary).
        buffer_size_mb: Not used: ONNX Runtime plans its own memory.

    Raises:
        ValueError: The dtype, the last axis or the normalization is not as above, or the axis is symbolic.
    """
    value, scaling = as_tensor(input_tensor), Normalization(normalization)
    if value.dtype not in (DType.float32, DType.float64) or (input_is_complex and value.shape[-1] != 2):
        raise op_fault(
            "irfft", {"input_tensor": value}, "takes float32 or float64, with a last axis of 2 if input_is_complex"
        )
    pairs = value if input_is_complex else _with_zeros(value)
    place, last = check_axis("irfft", axis, pairs.rank - 1), pairs.rank - 2
    turned = pairs if place == last else transpose(pairs, place, last)
    half, length = _half_spectrum(turned, n)
    spectrum = concat([half, _mirrored(half, length)], last)
    signal = slice_tensor(emit("DFT", [spectrum], spectrum.type, inverse=1), (..., 0))
    factor = {Normalization.BACKWARD: 1.0, Normalization.ORTHO: length**0.5, Normalization.FORWARD: float(length)}
    scaled = signal if factor[scaling] == 1 else mul(signal, factor[scaling])
    return scaled if place == last else transpose(scaled, place, last)


def hann_window(
    window_length: int, device: DeviceRef, periodic: bool = True, dtype: DType = DType.float32
) -> TensorValue:
    """A Hann window, `0.5 - 0.5 cos(2 pi i / (length - 1))`; periodic ones are one longer and lose the last element.

    Args:
        window_length: How many elements it has.
        device: Where it lives.
        periodic: Whether the window is meant to be repeated, as in spectral analysis.
        dtype: A floating point type.

    Raises:
        TypeError: `window_length` is no whole number.
        ValueError: It is negative.
    """
    if not isinstance(window_length, int):
        raise TypeError(f"window_length must be an integer, got {type(window_length).__name__}")
    if window_length < 0:
        raise ValueError(f"window_length must be non-negative, got {window_length}")
    steps = max(1, window_length if periodic else window_length - 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window_length) / steps)
    values = window if window_length > 1 else np.ones(window_length)
    return current().constant(values.astype(dtype.to_numpy()), device)


def as_interleaved_complex(x: TensorLike) -> TensorValue:
    """[..., 2 * n] of alternating real and imaginary parts as [..., n, 2].

    Raises:
        TypeError: The last dim is symbolic.
        ValueError: It is odd.
    """
    value = as_tensor(x)
    last = value.shape[-1]
    if not isinstance(last, StaticDim):
        raise TypeError(f"The last dimension must be static, not {last}.")
    if last.dim % 2:
        raise ValueError(f"The last dimension must be divisible by 2, not {last}.")
    return reshape(value, (*value.shape[:-1], last.dim // 2, 2))


def _with_zeros(value: TensorValue) -> TensorValue:
    real = unsqueeze(value, -1)
    zero = current().constant(np.zeros([1] * real.rank, value.dtype.to_numpy()), value.device)
    return concat([real, broadcast_to(zero, real.shape)], -1)


def _half_spectrum(pairs: TensorValue, n: int | None) -> tuple[TensorValue, int]:
    """[..., n // 2 + 1, 2], and n."""
    size = pairs.shape[-2]
    if not isinstance(size, StaticDim):
        raise op_fault("irfft", {"input_tensor": pairs}, f"Axis dimension must be static, got {size}.")
    length = n or 2 * (size.dim - 1)
    if length < 1:
        raise op_fault("irfft", {"input_tensor": pairs}, f"a signal of {length} elements; give n >= 1")
    needed = length // 2 + 1
    if size.dim >= needed:
        return slice_tensor(pairs, (..., slice(0, needed), slice(None))), length
    zero = current().constant(np.zeros([1] * pairs.rank, pairs.dtype.to_numpy()), pairs.device)
    rest = broadcast_to(zero, (*pairs.shape[:-2], needed - size.dim, 2))
    return concat([pairs, rest], pairs.rank - 2), length


def _mirrored(half: TensorValue, length: int) -> TensorValue:
    """The second half of a real signal's spectrum: the first one backwards, conjugated."""
    back = slice_tensor(half, (..., slice((length - 1) // 2, 0, -1), slice(None)))
    return mul(back, current().constant(np.array([1, -1], half.dtype.to_numpy()), half.device))

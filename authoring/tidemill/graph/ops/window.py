"""The arithmetic of sliding windows: how many steps a window takes along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.graph.dim import Dim, StaticDim
from tidemill.graph.ir import Attribute

__all__ = ["Window", "make_window", "per_axis"]


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the spatial axes of an image; every field has one entry per axis.

    Attributes:
        kernel: How many points it has.
        stride: How far one step goes.
        dilation: How far its points are apart.
        before: What is padded at the start.
        after: What is padded at the end.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """How many elements the window spans, gaps included."""
        return tuple(gap * (size - 1) + 1 for size, gap in zip(self.kernel, self.dilation, strict=True))

    def attributes(self) -> dict[str, Attribute]:
        """As the attributes of an ONNX node."""
        pads = (*self.before, *self.after)
        return {"kernel_shape": self.kernel, "strides": self.stride, "dilations": self.dilation, "pads": pads}

    def steps(self, axis: int, size: Dim) -> Dim:
        """How many places the window takes along spatial axis `axis`, which has `size` elements.

        Raises:
            ValueError: The window is longer than the padded axis.
        """
        room = size + self.before[axis] + self.after[axis] - self.reach[axis]
        if isinstance(room, StaticDim) and room.dim < 0:
            raise ValueError(
                f"a window that spans {self.reach[axis]} elements does not fit spatial axis {axis}, which has {size} "
                f"and {self.before[axis]} + {self.after[axis]} of padding"
            )
        return room // self.stride[axis] + 1


def make_window(
    kernel: Sequence[int],
    stride: int | Sequence[int],
    dilation: int | Sequence[int],
    padding: Sequence[int],
) -> Window:
    """A window from what users write; `padding` is (before, after) of each axis in turn.

    Raises:
        ValueError: The number of entries is wrong, a stride or dilation is below 1, or a padding negative.
    """
    rank = len(kernel)
    if len(padding) != 2 * rank or any(size < 0 for size in padding):
        raise ValueError(
            f"padding {tuple(padding)} must be {2 * rank} sizes: before and after each spatial axis in turn"
        )
    steps, gaps = per_axis("stride", stride, rank), per_axis("dilation", dilation, rank)
    return Window(tuple(kernel), steps, gaps, tuple(padding[0::2]), tuple(padding[1::2]))


def per_axis(name: str, value: int | Sequence[int], rank: int, least: int = 1) -> tuple[int, ...]:
    """One whole number for each of `rank` axes; a single number counts for all.

    Raises:
        ValueError: The number of entries differs from `rank`, or one is below `least`.
    """
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank or any(size < least for size in sizes):
        raise ValueError(f"{name} {value!r} must be {rank} whole numbers of at least {least}, or one for all")
    return sizes

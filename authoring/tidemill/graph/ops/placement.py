"""Where values live and what is seen of them: hints that the exported model does without."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.graph.context import as_tensor, emit
from tidemill.graph.fault import op_fault
from tidemill.graph.ops.promote import TensorLike
from tidemill.graph.ops.shaping import chunk, stack
from tidemill.graph.type import DeviceRef, TensorType

if TYPE_CHECKING:
    from tidemill.graph.value import TensorValue

__all__ = ["assert_same_device", "parallel", "print", "shard_and_stack", "side_stream", "transfer_to"]


def print(value: str | TensorValue, label: str = "debug_tensor") -> None:
    """Nothing but a warning: a served model prints nothing; return the value as an output to see it."""
    what = f"the text {value!r}" if isinstance(value, str) else repr(as_tensor(value))
    warnings.warn(f"ops.print({label}): {what} is not printed when the model runs; make it an output", stacklevel=2)


def transfer_to(x: TensorLike, device: Any) -> TensorValue:
    """The same tensor as if on another device; which device computes is up to the execution provider."""
    value, target = as_tensor(x), _device(device)
    if value.device == target:
        return value
    return emit("Identity", [value], TensorType(value.dtype, value.shape, target))


def assert_same_device(*values: TensorLike, **named_values: TensorLike) -> None:
    """ValueError if the values are not all on one device."""
    named = {str(place): value for place, value in enumerate(values)} | named_values
    if len({value.device for value in named.values()}) > 1:
        lines = "".join(f"\n    {name}: {value.type}" for name, value in named.items())
        raise ValueError(f"Input values must be on the same device{lines}")


def shard_and_stack(inputs: Sequence[TensorLike], devices: Sequence[Any], axis: int = 0) -> list[TensorValue]:
    """Each input cut along `axis` into one piece for each device; the pieces of a device on a new first axis.

    Args:
        inputs: Tensors of one dtype and shape.
        devices: As many as there are pieces.
        axis: The axis that is cut; its size must be a multiple of the number of devices.
    """
    if not inputs or not devices:
        raise ValueError(
            f"shard_and_stack: {len(inputs)} inputs and {len(devices)} devices; takes at least one of each"
        )
    pieces = [chunk(value, len(devices), axis) for value in inputs]
    return [transfer_to(stack(parts), device) for parts, device in zip(zip(*pieces, strict=True), devices, strict=True)]


def side_stream(
    inputs: Sequence[TensorLike],
    body_fn: Callable[..., Any],
    *,
    result_types: Sequence[TensorType],
    stream_id: int = 1,
) -> list[TensorValue]:
    """What `body_fn` gives for the inputs; the runtime orders work by itself, so `stream_id` means nothing here."""
    del stream_id
    results = _as_list(body_fn(*map(as_tensor, inputs)))
    _check_types("side_stream", results, result_types)
    return results


def parallel(
    inputs: Sequence[Sequence[TensorLike]],
    body_fn: Callable[..., Any],
    *,
    buffers: Iterable[Any] | None = None,
    chain: Any = None,
    result_types: Sequence[Sequence[TensorType]],
) -> list[list[TensorValue]]:
    """What `body_fn` gives for each launch; independent nodes, which the runtime may run at the same time.

    Args:
        inputs: For each argument of `body_fn` its value in each launch.
        body_fn: Takes one tensor for each of `inputs`, returns one tensor or several.
        buffers: Refused: only collectives between devices take them.
        chain: Refused, likewise.
        result_types: For each result of `body_fn` its type in each launch.

    Returns:
        For each result of `body_fn` its value in each launch.
    """
    if buffers is not None or chain is not None:
        raise NotImplementedError("ops.parallel: buffers and chain serve collectives, which tidemill has not")
    if not inputs or len({len(bundle) for bundle in inputs}) != 1:
        raise ValueError("parallel: takes at least one argument, and each with the same number of launches")
    launches = [_as_list(body_fn(*map(as_tensor, bundle))) for bundle in zip(*inputs, strict=True)]
    bundles = [list(bundle) for bundle in zip(*launches, strict=True)]
    for bundle, types in zip(bundles, result_types, strict=True):
        _check_types("parallel", bundle, types)
    return bundles


def _as_list(results: Any) -> list[TensorValue]:
    single = hasattr(results, "__tensorvalue__")
    return [as_tensor(one) for one in ([results] if single else results)]


def _check_types(op: str, results: Sequence[TensorValue], types: Sequence[TensorType]) -> None:
    if [result.type for result in results] != list(types):
        shown = {f"result {place}": result for place, result in enumerate(results)}
        raise op_fault(op, shown, f"the body must give {list(types)}")


def _device(device: Any) -> DeviceRef:
    """A DeviceRef, or that of a driver's device."""
    if isinstance(device, DeviceRef):
        return device
    return DeviceRef("cpu" if device.label == "cpu" else "gpu", device.id)

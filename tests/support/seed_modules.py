"""The modules that the conformance cases speak of."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidemill import nn
from tidemill.dtype import DType
from tidemill.graph import DeviceRef, TensorType, Weight, ops

__all__ = [
    "CPU",
    "F32",
    "MLP",
    "Holder",
    "Linear",
    "NoSuper",
    "Omit",
    "P",
    "keys",
    "load",
    "mlp_values",
    "named",
    "traced_weights",
    "unaligned",
    "weight",
]

CPU = DeviceRef.CPU()
F32 = DType.float32


def weight(name: str = "weight", shape: Any = (2, 3), dtype: DType = F32, **options: Any) -> Weight:
    return Weight(name, dtype, shape, CPU, **options)


class Linear(nn.Module):
    def __init__(self, in_dims: int = 2, out_dims: int = 3) -> None:
        super().__init__()
        self.weight = weight(shape=(in_dims, out_dims))

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.T


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = Linear(5, 10)
        self.gate = Linear(5, 10)
        self.down = Linear(10, 5)

    def __call__(self, x: Any) -> Any:
        return self.down(ops.silu(self.gate(x)) + self.up(x))


class Holder(nn.Module):
    """A module that gets its attributes from outside."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)

    def __call__(self, x: Any) -> Any:
        return x


class P(Holder):
    pass


class Omit(Holder):
    @property
    def _omit_module_attr_name(self) -> bool:
        return True


class NoSuper(nn.Module):
    def __init__(self) -> None:
        self.w = weight("w")

    def __call__(self, x: Any) -> Any:
        return x


def keys(module: nn.Module) -> list[str]:
    return list(module.raw_state_dict())


def named(module: nn.Module) -> list[list[str]]:
    return [[prefix, type(part).__name__] for prefix, part in module.named_modules()]


def mlp_values() -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.ones(value.shape, np.float32) for name, value in MLP().state_dict().items()}


def load(module: nn.Module, **changes: Any) -> Any:
    return module.load_state_dict(
        {**mlp_values(), **{name.replace("_", "."): value for name, value in changes.items()}}
    )


def traced_weights(module: nn.Module, shape: Any = ("b", 2)) -> list[str]:
    return list(module.trace(TensorType(F32, shape, CPU)).weight_specs)


def unaligned(**options: Any) -> dict[str, Any]:
    module = Holder(weight=weight(shape=(4,)))
    array = np.frombuffer(bytes(17), np.float32, 4, offset=1)
    module.load_state_dict({"weight": array}, **options)
    return {"align": module.weight.align}

"""Files as torch.save writes them, made without PyTorch; and pickles that want to run something."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tidemill.weights.torch_file import read_torch

A = np.arange(12, dtype=np.float32).reshape(3, 4)


class Tensor:
    """Pickles itself as a torch tensor over a storage of its own does."""

    def __init__(self, array: Any, kind: str = "FloatStorage", **place: Any) -> None:
        self.storage = np.ascontiguousarray(place.get("storage", array))
        self.kind = kind
        strides = tuple(stride // array.itemsize for stride in array.strides)
        self.place = (place.get("offset", 0), place.get("shape", array.shape), place.get("strides", strides))

    def __reduce__(self) -> Any:
        import torch

        return torch._utils._rebuild_tensor_v2, (Stored(self), *self.place, False, OrderedDict())


class Stored:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Writer(pickle.Pickler):
    """Refers to storages by number, as torch.save does."""

    def __init__(self, file: io.BytesIO, legacy: bool) -> None:
        super().__init__(file, protocol=2)
        self.storages: dict[str, np.ndarray[Any, Any]] = {}
        self.legacy = legacy

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, Stored):
            return None
        storage, key = value.tensor.storage, str(len(self.storages))
        self.storages[key] = storage
        kind = getattr(sys.modules["torch"], value.tensor.kind)
        return ("storage", kind, key, "cpu", storage.size, *([None] if self.legacy else []))


@pytest.fixture(autouse=True)
def torch() -> Iterator[types.ModuleType]:
    """What pickles of PyTorch name; only for the one that writes them."""
    names = ["FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage", "ComplexFloatStorage"]
    torch = types.ModuleType("torch")
    for name in names:
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    torch._utils = types.ModuleType("torch._utils")  # type: ignore[attr-defined]

    def _rebuild_tensor_v2() -> None: ...

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    torch._utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    sys.modules |= {"torch": torch, "torch._utils": torch._utils}  # type: ignore[attr-defined]
    yield torch
    for name in ("torch", "torch._utils", "__torch__", "__torch__.net"):
        sys.modules.pop(name, None)


def write_zip(path: Path, value: Any, *, compress: bool = False, byteorder: bytes = b"little") -> None:
    text = io.BytesIO()
    writer = Writer(text, legacy=False)
    writer.dump(value)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", text.getvalue())
        archive.writestr("archive/byteorder", byteorder)
        for key, storage in writer.storages.items():
            archive.writestr(f"archive/data/{key}", storage.tobytes())


def write_legacy(path: Path, value: Any) -> None:
    text = io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}):
        pickle.dump(part, text, protocol=2)
    writer = Writer(text, legacy=True)
    writer.dump(value)
    pickle.dump(list(writer.storages), text, protocol=2)
    for storage in writer.storages.values():
        text.write(struct.pack("<q", storage.size) + storage.tobytes())
    path.write_bytes(text.getvalue())


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_both_formats(tmp_path: Path, write: Callable[..., None]) -> None:
    narrow = np.array([1, -2, 0.5], ml_dtypes.bfloat16)
    tree = OrderedDict(
        {
            "w": Tensor(A),
            "t": Tensor(A.T, storage=A),
            "row": Tensor(A, storage=A, offset=4, shape=(4,), strides=(1,)),
            "narrow": Tensor(narrow, "BFloat16Storage"),
            "count": Tensor(np.array(7), "LongStorage"),
            "empty": Tensor(np.empty((0, 3), np.float32)),
            "optimizer": {"lr": 0.1, "steps": [1, 2], "state": {0: Tensor(A)}, "none": None, "yes": True},
        }
    )
    write(tmp_path / "w.pt", tree)
    found = read_torch(tmp_path / "w.pt")
    assert list(found) == ["w", "t", "row", "narrow", "count", "empty", "optimizer.state.0"]
    np.testing.assert_array_equal(found["w"], A)
    np.testing.assert_array_equal(found["t"], A.T)
    np.testing.assert_array_equal(found["row"], A[1])
    assert (found["narrow"].dtype, found["narrow"].tobytes()) == (narrow.dtype, narrow.tobytes())
    assert (found["count"].shape, found["count"].item(), found["empty"].shape) == ((), 7, (0, 3))
    assert not found["w"].flags.writeable


class Canary:
    """What a pickle that runs code looks like."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_b34_code_is_never_run(tmp_path: Path, write: Callable[..., None]) -> None:
    write(tmp_path / "w.pt", {"w": Canary(tmp_path / "owned")})
    with pytest.raises(
        ValueError, match=r"w\.pt cannot be read .*: its pickle names posix\.mkdir, which is not allowed"
    ):
        read_torch(tmp_path / "w.pt")
    assert not (tmp_path / "owned").exists()


HOSTILE: dict[str, tuple[Any, str]] = {
    "past the end": (lambda: Tensor(A, shape=(4, 4)), r"shape \[4, 4\] leaves its storage"),
    "negative offset": (lambda: Tensor(A, offset=-1), "leaves its storage"),
    "negative stride": (lambda: Tensor(A, strides=(4, -1)), "leaves its storage"),
    "ranks differ": (lambda: Tensor(A, strides=(4,)), "zip"),
    "unknown elements": (lambda: Tensor(A, "ComplexFloatStorage"), r"names torch\.ComplexFloatStorage"),
    "deep": (lambda: nest(30), "nested over 8 deep"),
    "a step": (lambda: b"bytes", "names _codecs.encode"),
}


def nest(depth: int) -> Any:
    return {"x": nest(depth - 1)} if depth else 1


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_hostile_trees(tmp_path: Path, write: Callable[..., None], kind: str) -> None:
    make, text = HOSTILE[kind]
    write(tmp_path / "w.pt", {"w": make()})
    with pytest.raises(ValueError, match=text):
        read_torch(tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("options", "text"), [({"compress": True}, "parts are compressed"), ({"byteorder": b"big"}, "not little endian")]
)
def test_zips_of_another_kind(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    write_zip(tmp_path / "w.pt", {"w": Tensor(A)}, **options)
    with pytest.raises(ValueError, match=text):
        read_torch(tmp_path / "w.pt")


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x02", b"nothing", b"\x80\x02K\x01.", b"\x80\x02]q\x00(h\x00e.", b"S'\\w'\n."]
)
def test_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"w\.pt cannot be read as a PyTorch checkpoint"):
        read_torch(tmp_path / "w.pt")


@pytest.mark.parametrize("write", [write_zip, write_legacy])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, write: Callable[..., None]) -> None:
    write(tmp_path / "w.pt", {"w": Tensor(A), "v": Tensor(A)})
    whole = (tmp_path / "w.pt").read_bytes()
    for length in range(0, len(whole) - 1, 7):
        (tmp_path / "w.pt").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cannot be read as a PyTorch checkpoint"):
            read_torch(tmp_path / "w.pt")


def scripted(name: str, attributes: dict[str, Any]) -> Any:
    """An object of a class that only the archive knows, as torch.jit.save pickles a module."""
    module, _, kind = name.rpartition(".")
    made = type(kind, (), {"__module__": module})
    for package in ("__torch__", module):
        sys.modules.setdefault(package, types.ModuleType(package))
    setattr(sys.modules[module], kind, made)
    one = made()
    vars(one).update(attributes)
    return one


def test_a_scripted_models_tensors_have_the_names_of_its_state_dict(tmp_path: Path) -> None:
    inner = scripted("__torch__.net.Linear", {"weight": Tensor(A), "training": False})
    model = scripted("__torch__.net.Model", {"encoder": inner, "scale": Tensor(A[0]), "rates": [8000, 16000]})
    write_zip(tmp_path / "w.jit", model)
    found = read_torch(tmp_path / "w.jit")
    assert list(found) == ["encoder.weight", "scale"]
    np.testing.assert_array_equal(found["encoder.weight"], A)


def test_a_scripted_object_is_no_way_to_call_something(tmp_path: Path) -> None:
    model = scripted("__torch__.net.Model", {"code": Canary(tmp_path / "owned")})
    write_zip(tmp_path / "w.jit", model)
    with pytest.raises(ValueError, match=r"names posix\.mkdir, which is not allowed"):
        read_torch(tmp_path / "w.jit")
    assert not (tmp_path / "owned").exists()

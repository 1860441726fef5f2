from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest

from tidemill.driver import CPU, Accelerator, Buffer, accelerator_count
from tidemill.driver.device_memory import DeviceMemory
from tidemill.dtype import DType

NUMBERS = [dtype for dtype in DType if dtype is not DType.string]


class Exporter:
    """A foreign array: only DLPack, nothing of numpy."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def test_describes_itself() -> None:
    buffer = Buffer.zeros([5, 10], DType.float32)
    assert repr(buffer) == "Buffer([5, 10], DType.float32)"
    assert (buffer.shape, buffer.rank, buffer.num_elements, buffer.element_size) == ((5, 10), 2, 50, 4)
    assert buffer.device == CPU()
    assert str(buffer.device) == "Device(type=cpu,id=0)"
    assert buffer.is_host
    assert buffer.is_contiguous
    assert len(buffer) == 5
    assert not buffer.to_numpy().any()


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_dtype_goes_through_dlpack_without_a_copy(dtype: DType) -> None:
    buffer = Buffer.scalar(1, dtype)
    taken = Buffer.from_dlpack(Exporter(buffer))
    assert taken.dtype is dtype
    assert taken.item() == 1
    assert np.shares_memory(taken.to_numpy(), buffer.to_numpy())


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16, DType.float8_e5m2], ids=str)
def test_versioned_dlpack_exports_read_only_memory(dtype: DType) -> None:
    array = np.ones(3, dtype.to_numpy())
    array.flags.writeable = False
    buffer = Buffer.from_numpy(array)
    with pytest.raises(BufferError, match="readonly"):
        buffer.__dlpack__()
    taken = Buffer.from_dlpack(Exporter(buffer)).to_numpy()
    assert np.shares_memory(taken, array)
    assert not taken.flags.writeable


def test_numpy_takes_a_buffer() -> None:
    buffer = Buffer.from_numpy(np.arange(3, dtype=np.int32))
    assert np.shares_memory(np.from_dlpack(buffer), buffer.to_numpy())
    assert np.shares_memory(np.asarray(buffer), buffer.to_numpy())
    assert np.array(buffer, dtype=np.float32).dtype == np.float32


def test_onnxruntime_gives_and_takes_buffers() -> None:
    value = ort.OrtValue.ortvalue_from_numpy(np.arange(4, dtype=np.float32))
    assert Buffer.from_dlpack(value._ortvalue).to_numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3).T, np.arange(6)[::-1], np.broadcast_to(1.0, (2, 2))])
def test_from_numpy_aliases_any_layout(array: np.ndarray[Any, Any]) -> None:
    buffer = Buffer.from_numpy(array)
    assert buffer.to_numpy() is array
    assert not buffer.is_contiguous
    tidy = buffer.contiguous()
    assert tidy.is_contiguous
    np.testing.assert_array_equal(tidy, array)
    assert tidy.contiguous() is tidy


def test_a_change_shows_on_both_sides() -> None:
    array = np.zeros((2, 2), np.float32)
    buffer = Buffer.from_numpy(array)
    copied = buffer.copy()
    buffer[0, 1] = 5
    assert array[0, 1] == 5
    assert buffer[0].to_numpy().tolist() == [0, 5]
    assert copied[0, 1].item() == 0


def test_copies_only_what_fits() -> None:
    target, source = Buffer.zeros([2], DType.int64), Buffer.from_numpy(np.array([3, 4]))
    target.inplace_copy_from(source)
    assert target.to_numpy().tolist() == [3, 4]
    with pytest.raises(ValueError, match=r"cannot copy Buffer\(\[3\], DType.int64\) into Buffer\(\[2\], DType.int64\)"):
        target.inplace_copy_from(Buffer.zeros([3], DType.int64))


def test_view_reads_the_same_bytes() -> None:
    buffer = Buffer.from_numpy(np.array([1.0, 2.0], ml_dtypes.bfloat16))
    assert buffer.view(DType.uint16).to_numpy().tolist() == [0x3F80, 0x4000]
    assert buffer.view(DType.uint8, [2, 2]).shape == (2, 2)


@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        ([1, 2], TypeError, "given was list"),
        (np.array(["a"]), TypeError, "use an object array of bytes"),
        (np.array([1j]), TypeError, "complex128 has no tensor type"),
        (np.array([1], ">f4"), ValueError, "byte order"),
    ],
)
def test_from_numpy_refuses(array: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Buffer.from_numpy(array)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ([1, 2], TypeError, "list does not implement DLPack"),
        (Exporter(np.ones(1), (2, 0)), BufferError, "device type 2"),
    ],
)
def test_from_dlpack_refuses(value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Buffer.from_dlpack(value)


def test_item_and_len_refuse() -> None:
    with pytest.raises(ValueError, match=r"shape \[2\]"):
        Buffer.zeros([2], DType.float32).item()
    with pytest.raises(TypeError, match="rank 0"):
        len(Buffer.scalar(1, DType.float32))


def test_bytes_buffers() -> None:
    buffer = Buffer.from_numpy(np.array([b"a", b"bc"], object))
    assert buffer.dtype is DType.string
    assert buffer[1].item() == b"bc"


@pytest.mark.skipif(accelerator_count() > 0, reason="there is an accelerator")
def test_missing_accelerator_says_what_to_install() -> None:
    with pytest.raises(RuntimeError, match=r"no accelerator 0: .*pip install 'tidemill\[gpu\]'"):
        Accelerator()


def test_device_memory_copies_there_and_back() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory = DeviceMemory.copy_of(array.T, CPU())
    assert (memory.dtype, memory.shape) == (DType.float32, (3, 2))
    np.testing.assert_array_equal(memory.to_host(), array.T)
    with pytest.raises(TypeError, match=r"DType.bfloat16 cannot be copied"):
        DeviceMemory.copy_of(array.astype(ml_dtypes.bfloat16), CPU())


@pytest.mark.gpu
@pytest.mark.skipif(accelerator_count() == 0, reason="there is no accelerator")
def test_buffer_on_an_accelerator() -> None:
    buffer = Buffer.from_numpy(np.arange(3, dtype=np.float32))
    there = buffer.to(Accelerator())
    assert repr(there) == "Buffer([3], DType.float32, gpu:0)"
    np.testing.assert_array_equal(there.to(CPU()), buffer)
    with pytest.raises(BufferError, match="needs a buffer on the host"):
        there[0]

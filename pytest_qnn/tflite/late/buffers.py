"""Faults of a delegate that keeps its results in buffers with handles."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.late.conditions import KIB
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.device_buffers import DeviceBuffers, Values


@faulty_delegate(
    "late-copy-of-pages",
    "CopyFromBufferHandle leaves out the last, incomplete 4 KiB of a buffer above 4 KiB.",
)
class _CopyOfPages(DeviceBuffers):
    """A copy in whole pages. facts, BUF-02: all bytes of the tensor are filled."""

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        value = self.buffers.get(handle)
        if value is None or value.nbytes != tensor.bytes or value.nbytes <= 4 * KIB:
            return super().copy_from(context, handle, tensor)
        ctypes.memmove(tensor.data or 0, value.tobytes(), value.nbytes // (4 * KIB) * 4 * KIB)
        return layouts.OK


@faulty_delegate("late-third-copy", "The third CopyFromBufferHandle of one result gives zeros.")
class _ThirdCopy(DeviceBuffers):
    """What was read twice is given back. facts, BUF-04: CopyFromBufferHandle is repeatable."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._copies: dict[int, int] = {}

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        self._copies[self.tensor(context, index).buffer_handle] = 0

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        self._copies[handle] = self._copies.get(handle, 0) + 1
        if self._copies[handle] >= 3 and handle in self.buffers:
            self.buffers[handle] = np.zeros_like(self.buffers[handle])
        return super().copy_from(context, handle, tensor)


@faulty_delegate(
    "late-ninth-buffer", "The ninth handle, and each later one, shares its buffer with that of eight before."
)
class _NinthBuffer(DeviceBuffers):
    """Eight buffers in turn. facts, BUF-01: a handle is valid for its tensor."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        handle = self.tensor(context, index).buffer_handle
        shared = [one for one in self.buffers if one % 8 == handle % 8]
        for one in shared:
            if self.buffers[one].nbytes == value.nbytes:
                self.buffers[one] = self.buffers[handle]


@faulty_delegate(
    "late-unknown-after-free",
    "Once a handle was freed CopyFromBufferHandle of an unknown one reports success, and copies nothing.",
)
class _UnknownAfterFree(DeviceBuffers):
    """A handle that is not found is taken for one that was freed. facts, BUF-05: failure is reported."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._freed = False

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        if self._freed and handle not in self.buffers:
            return layouts.OK
        return super().copy_from(context, handle, tensor)

    def free_handle(self, handle: int) -> None:
        self._freed = True
        super().free_handle(handle)


@faulty_delegate(
    "late-reused-handle",
    "A handle that was freed and is given out again gives its former contents, if of one size, once.",
)
class _ReusedHandle(DeviceBuffers):
    """What was read is kept by handle. facts, BUF-01 and BUF-09: old handles are replaced."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._former: dict[int, Values] = {}

    def new_handle(self, context: int, index: int) -> int:
        return min(self._former.keys() - self.buffers.keys(), default=super().new_handle(context, index))

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        former, value = self._former.pop(handle, None), self.buffers.get(handle)
        if former is None or value is None or former.nbytes != value.nbytes:
            return super().copy_from(context, handle, tensor)
        self.buffers[handle] = former
        status = super().copy_from(context, handle, tensor)
        self.buffers[handle] = value
        return status

    def free_handle(self, handle: int) -> None:
        if handle in self.buffers:
            self._former[handle] = self.buffers[handle]
        super().free_handle(handle)


@faulty_delegate(
    "late-buffer-never-shrinks",
    "After a resize that makes a result smaller its buffer keeps its size, so that it cannot be copied.",
)
class _BufferNeverShrinks(DeviceBuffers):
    """Buffers grow only. facts, BUF-02, BUF-09 and RSZ-01."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        handle = self.tensor(context, index).buffer_handle
        before = self.buffers.get(handle)
        super().write_output(context, index, value)
        if before is not None and before.size > value.size:
            larger = before.ravel().copy()
            larger[: value.size] = value.ravel()
            self.buffers[handle] = larger

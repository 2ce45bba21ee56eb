"""A conforming reference delegate that keeps its results in buffers of a device, as GPU delegates do.

A result is a buffer with a handle: the kernel puts the handle into the tensor and marks its data as stale.
A reader of the data has the runtime call CopyFromBufferHandle; a kernel of the same delegate is not helped
so, and takes the buffer itself. Source: tflite/core/c/common.h, TfLiteTensor.data_is_stale, buffer_handle,
and TfLiteDelegate's functions; tflite/core/subgraph.cc, InvokeImpl and EnsureTensorDataIsReadable.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.reference import delegate as trampolines
from pytest_qnn.tflite.reference.delegate import DTYPES, ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import address_of

Values = npt.NDArray[Any]


class DeviceBuffers(ReferenceDelegate):
    """As the reference; every result that leaves a partition stays in a buffer until it is asked for."""

    FREED: ClassVar[int] = layouts.NO_BUFFER_HANDLE
    """What a handle becomes that was freed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.buffers: dict[int, Values] = {}
        """By handle: what the device holds."""
        self._handles = itertools.count(1)
        self._struct.CopyFromBufferHandle, self._struct.CopyToBufferHandle = _COPY_FROM, _COPY_TO
        self._struct.FreeBufferHandle = _FREE_HANDLE

    def read_input(self, context: int, index: int) -> Values | None:
        """A stale tensor of its own is read on the device; the runtime has made all others readable."""
        if index != layouts.OPTIONAL_TENSOR:
            tensor = self.tensor(context, index)
            if tensor.data_is_stale and tensor.delegate == self.address:
                return self.on_device(tensor)
        return super().read_input(context, index)

    def on_device(self, tensor: layouts.Tensor) -> Values:
        """What the device holds of a stale tensor.

        Raises:
            KeyError: its handle is none of this delegate's.
        """
        return self.buffers[tensor.buffer_handle]

    def write_output(self, context: int, index: int, value: Values) -> None:
        """Store a result in the tensor's buffer, which it keeps from invoke to invoke."""
        tensor = self.tensor(context, index)
        if tensor.buffer_handle not in self.buffers:
            tensor.buffer_handle = self.new_handle(context, index)
        shape = peek.integers(tensor.dims)
        # Of the tensor's type: numpy has float64 for the mean of more than 65,535 elements of float32.
        self.buffers[tensor.buffer_handle] = np.array(value, DTYPES[tensor.type]).reshape(shape)
        tensor.data_is_stale = True

    def new_handle(self, context: int, index: int) -> int:  # noqa: ARG002 - for overriding steps
        """A handle for the result ``index``."""
        return next(self._handles)

    def tensor(self, context: int, index: int) -> layouts.Tensor:
        """A tensor of the runtime, to read and to write."""
        return layouts.Tensor.from_address(address_of(context, index))

    # What the runtime calls.

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        """Copy a buffer into the tensor's data."""
        value = self.buffers.get(handle)
        if value is None or value.nbytes != tensor.bytes:
            self.explain(context, f"device-buffers: there is no buffer {handle} of {tensor.bytes} bytes")
            return layouts.ERROR
        ctypes.memmove(tensor.data or 0, value.tobytes(), value.nbytes)
        return layouts.OK

    def copy_to(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        """Copy the tensor's data into a buffer. No runtime asks for it."""
        value = self.buffers.get(handle)
        if value is None or value.nbytes != tensor.bytes:
            self.explain(context, f"device-buffers: there is no buffer {handle} of {tensor.bytes} bytes")
            return layouts.ERROR
        self.buffers[handle] = peek.array(tensor.data or 0, value.dtype, value.shape).copy()
        return layouts.OK

    def free_handle(self, handle: int) -> None:
        """Give a buffer back."""
        self.buffers.pop(handle, None)


def _device(address: int) -> DeviceBuffers | None:
    found = trampolines.delegate_at(address)
    return found if isinstance(found, DeviceBuffers) else None


def _copy_from(context: int, address: int, handle: int, tensor: int) -> int:
    delegate = _device(address)
    if delegate is None:
        return layouts.ERROR
    try:
        return delegate.copy_from(context, handle, layouts.Tensor.from_address(tensor))
    except BaseException as error:
        delegate.errors.append(error.with_traceback(None))
        return layouts.ERROR


def _copy_to(context: int, address: int, handle: int, tensor: int) -> int:
    delegate = _device(address)
    if delegate is None:
        return layouts.ERROR
    try:
        return delegate.copy_to(context, handle, layouts.Tensor.from_address(tensor))
    except BaseException as error:
        delegate.errors.append(error.with_traceback(None))
        return layouts.ERROR


def _free_handle(_context: int, address: int, handle: int) -> None:
    delegate = _device(address)
    if delegate is None:
        return
    try:
        slot = ctypes.c_int.from_address(handle)
        delegate.free_handle(slot.value)
        slot.value = delegate.FREED
    except BaseException as error:
        delegate.errors.append(error.with_traceback(None))


_keep: Final = (
    layouts.CopyBufferHandle(_copy_from),
    layouts.CopyBufferHandle(_copy_to),
    layouts.FreeBufferHandle(_free_handle),
)
_COPY_FROM, _COPY_TO, _FREE_HANDLE = (ctypes.cast(one, ctypes.c_void_p).value for one in _keep)

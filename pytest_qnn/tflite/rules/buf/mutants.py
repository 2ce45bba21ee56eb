"""Reference delegates with one fault each, for the rules of BUF."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.device_buffers import DeviceBuffers

Values = npt.NDArray[Any]
_EINVAL = 22
_LIBC = ctypes.CDLL(None)
_LIBC.free.restype, _LIBC.free.argtypes = None, (ctypes.c_void_p,)


@faulty_delegate("stale-without-handle", "Leaves tensors stale without a handle.", "BUF-01")
class _WithoutHandle(DeviceBuffers):
    """Marks a result as stale and tells nobody where it is."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        ReferenceDelegate.write_output(self, context, index, value)
        self.tensor(context, index).data_is_stale = True


@faulty_delegate("negative-handles", "Gives out handles below 0.", "BUF-01")
class _NegativeHandles(DeviceBuffers):
    """Counts its handles down."""

    def new_handle(self, context: int, index: int) -> int:
        return -1 - super().new_handle(context, index)


@faulty_delegate("disowns", "Leaves tensors stale with a delegate that is not it.", "BUF-01", deadly=True)
class _Disowns(DeviceBuffers):
    """Marks a result as stale, and gives the tensor to a delegate that is not there any more."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        self.tensor(context, index).delegate = self.former

    @property
    def former(self) -> int:
        """A copy of the delegate's struct, which the runtime does not know."""
        if not hasattr(self, "_former"):
            self._former = layouts.Delegate.from_buffer_copy(self._struct)
        return ctypes.addressof(self._former)


@faulty_delegate("renames-freed", "Leaves 0 in the place of a freed handle.", "BUF-06")
class _RenamesFreed(DeviceBuffers):
    """Takes 0 for what is no handle."""

    FREED = 0


@faulty_delegate("copies-half", "Copies the first half of a buffer.", "BUF-02")
class _CopiesHalf(DeviceBuffers):
    """Copies the first half of a tensor of more than four elements."""

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        value = self.buffers.get(handle)
        if value is None or value.nbytes != tensor.bytes or value.size <= 4:
            return super().copy_from(context, handle, tensor)
        ctypes.memmove(tensor.data or 0, value.tobytes(), value.size // 2 * value.itemsize)
        return layouts.OK


@faulty_delegate("no-copy", "Leaves tensors stale, and has no CopyFromBufferHandle.", "BUF-02")
class _NoCopy(DeviceBuffers):
    """Has no CopyFromBufferHandle."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._struct.CopyFromBufferHandle = None


@faulty_delegate("always-stale", "Marks data as stale that it has written.", "BUF-03")
class _AlwaysStale(DeviceBuffers):
    """Writes the data, and marks it as stale all the same; its buffer is as it was at the first invoke."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        ReferenceDelegate.write_output(self, context, index, value)
        tensor = self.tensor(context, index)
        if tensor.buffer_handle not in self.buffers:
            super().write_output(context, index, value)
        tensor.data_is_stale = True


@faulty_delegate("never-stale", "Marks no data as stale.", "BUF-03")
class _NeverStale(DeviceBuffers):
    """Keeps a result in its buffer without marking the data as stale."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        self.tensor(context, index).data_is_stale = False


@faulty_delegate("moves-out", "Gives a buffer away with the first copy.", "BUF-04")
class _MovesOut(DeviceBuffers):
    """Gives a buffer away with the first copy."""

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        status = super().copy_from(context, handle, tensor)
        if not status:
            self.buffers[handle] = np.empty(0, np.uint8)
        return status


@faulty_delegate("copies-more", "Writes to inputs while it copies an output.", "BUF-04")
class _CopiesMore(DeviceBuffers):
    """Clears the first input of the graph while it copies."""

    inputs: tuple[int, ...] = ()

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self.inputs = kernel.inputs
        return super().kernel_invoke(context, kernel)

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        for index in self.inputs:
            other = view.tensor(context, index)
            if other.allocation_type != layouts.ALLOCATION_MMAP_RO and other.data:
                peek.array(other.data, np.uint8, (other.bytes,))[:] = 0x3C
        return super().copy_from(context, handle, tensor)


@faulty_delegate("ignores-mistakes", "Answers a copy from no handle with success.", "BUF-05")
class _IgnoresMistakes(DeviceBuffers):
    """Answers every copy with success."""

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        super().copy_from(context, handle, tensor)
        return layouts.OK


@faulty_delegate("copy-returns-errno", "Answers a copy from no handle with an errno.", "BUF-05")
class _CopyReturnsErrno(DeviceBuffers):
    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        return -_EINVAL if super().copy_from(context, handle, tensor) else layouts.OK


@faulty_delegate("frees-all", "Frees every buffer with the first handle.", "BUF-06")
class _FreesAll(DeviceBuffers):
    """Gives all its buffers back with the first handle."""

    def free_handle(self, handle: int) -> None:
        super().free_handle(handle)
        self.buffers.clear()


@faulty_delegate(
    "frees-twice", "Frees memory with the kernel, and with the handle again.", "BUF-06", deadly=True
)
class _FreesTwice(DeviceBuffers):
    """Gives memory back when a kernel is freed, and when its handles are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._memory: dict[int, int] = {}

    def new_handle(self, context: int, index: int) -> int:
        handle = super().new_handle(context, index)
        self._memory[handle] = libc.malloc(64)
        return handle

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        for memory in self._memory.values():
            _LIBC.free(memory)

    def free_handle(self, handle: int) -> None:
        super().free_handle(handle)
        _LIBC.free(self._memory.get(handle, 0))


@faulty_delegate("reads-own-stale", "Reads the data of its own stale tensors.", "BUF-07")
class _ReadsOwnStale(DeviceBuffers):
    """Takes for readable what one of its own kernels has left stale."""

    def read_input(self, context: int, index: int) -> Values | None:
        return ReferenceDelegate.read_input(self, context, index)


@faulty_delegate("waits-for-upload", "Relies on CopyToBufferHandle.", "BUF-08")
class _WaitsForUpload(DeviceBuffers):
    """Reads its inputs from buffers that CopyToBufferHandle should have filled."""

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        constant = index >= 0 and view.tensor(context, index).allocation_type == layouts.ALLOCATION_MMAP_RO
        if values is None or constant or self.tensor(context, index).data_is_stale:
            return values
        return np.full_like(values, 3)


@faulty_delegate("frees-with-kernel", "Frees the buffers with the kernel only.", "BUF-09")
class _FreesWithKernel(DeviceBuffers):
    """Gives the buffers back with the kernel, and then takes the handles that tensors kept for valid."""

    gone: frozenset[int] = frozenset()

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self.gone |= self.buffers.keys()
        self.buffers.clear()

    def write_output(self, context: int, index: int, value: Values) -> None:
        handle = self.tensor(context, index).buffer_handle
        if handle in self.gone:
            self.tensor(context, index).data_is_stale = True
            return
        super().write_output(context, index, value)


@faulty_delegate("keeps-unfetched", "Writes no result over one not fetched.", "BUF-10")
class _KeepsUnfetched(DeviceBuffers):
    """Does not write to a buffer again before it was copied from."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._full: set[int] = set()

    def write_output(self, context: int, index: int, value: Values) -> None:
        tensor = self.tensor(context, index)
        if tensor.buffer_handle in self._full and tensor.data_is_stale:
            return
        super().write_output(context, index, value)
        self._full.add(tensor.buffer_handle)

    def copy_from(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        self._full.discard(handle)
        return super().copy_from(context, handle, tensor)


@faulty_delegate("frees-nothing", "Has no FreeBufferHandle.", "BUF-11")
class _FreesNothing(DeviceBuffers):
    """Keeps every buffer until the delegate is destroyed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._struct.FreeBufferHandle = None


@faulty_delegate("uploads-nothing", "CopyToBufferHandle reports success and copies nothing.", "BUF-12")
class _UploadsNothing(DeviceBuffers):
    """Takes results for what never has to be copied to the device."""

    def copy_to(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        held = self.buffers.get(handle)
        status = super().copy_to(context, handle, tensor)
        if held is not None:
            self.buffers[handle] = held
        return status


@faulty_delegate("uploads-half", "CopyToBufferHandle copies the first half.", "BUF-12")
class _UploadsHalf(DeviceBuffers):
    """Copies the first half of a tensor of more than four elements."""

    def copy_to(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        held = self.buffers.get(handle)
        status = super().copy_to(context, handle, tensor)
        if held is not None and held.size > 4:
            mixed = self.buffers[handle].reshape(-1)
            mixed[mixed.size // 2 :] = held.reshape(-1)[mixed.size // 2 :]
        return status


@faulty_delegate("uploads-elsewhere", "CopyToBufferHandle copies to the buffer made last.", "BUF-12")
class _UploadsElsewhere(DeviceBuffers):
    """Copies to the newest buffer of the same size, whatever handle it is given."""

    def copy_to(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        fitting = [each for each, value in self.buffers.items() if value.nbytes == tensor.bytes]
        return super().copy_to(context, max(fitting, default=handle), tensor)


@faulty_delegate("uploads-to-new", "CopyToBufferHandle copies to a buffer of no tensor.", "BUF-12")
class _UploadsToNew(DeviceBuffers):
    """Gives the tensor a new buffer, and leaves its handle that of the old one."""

    def copy_to(self, context: int, handle: int, tensor: layouts.Tensor) -> int:
        value = self.buffers.get(handle)
        if value is None:
            return super().copy_to(context, handle, tensor)
        new = next(self._handles)
        self.buffers[new] = value
        return super().copy_to(context, new, tensor)

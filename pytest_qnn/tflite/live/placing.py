"""Tensors of live interpreters in memory of the client's own, for authors' tests."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts, view
from pytest_qnn.tflite.cases.script import Guard
from pytest_qnn.tflite.live.life import Life
from pytest_qnn.tflite.observe.guard_pages import ALIGNMENT, Guarded
from pytest_qnn.tflite.runner.custom_buffers import CustomMemory
from pytest_qnn.tflite.runner.tensor_memory import SET, set_custom_allocation
from pytest_qnn.tflite.runtime.runtime import Runtime, runtime_of
from pytest_qnn.tflite.runtime.state import context_of
from pytest_qnn.tflite.trace import Access

_KEPT: Final = "_pytest_qnn_placed"
"""Attribute of an Interpreter: the memory of each tensor that was placed, which must outlive it."""


class ClientMemory(Protocol):
    """What `place_tensor` takes: a `SharedBuffer`, a `CustomTensorMemory` or a `GuardedMemory`."""

    @property
    def pointer(self) -> int:
        """Address of the first byte."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def freed(self) -> bool:
        """It was given back, and must not be used."""


def place_tensor(
    live: Any, tensor: int, memory: ClientMemory, *, offset: int = 0, allocate: bool = True
) -> None:
    """Assign memory of the client's to a tensor: SetCustomAllocationForTensor, then allocate_tensors.

    What the interpreter and its delegates then write to the tensor is in ``memory``, and what the client
    writes there they read: ``set_tensor`` and ``get_tensor`` go there as well. The interpreter keeps a
    reference to ``memory``. A tensor that was placed may be placed again, elsewhere.

    Args:
        live: an Interpreter of tflite_runtime or ai_edge_litert.
        tensor: index in the main subgraph; of an input, an output, or between two nodes.
        memory: at least ``offset`` bytes and those of the tensor at its present shape.
        offset: bytes from the start of ``memory`` to the tensor. Address and offset together are a multiple
            of 64 (kDefaultTensorAlignment).
        allocate: call allocate_tensors. Without, the caller does so before the next invoke.

    Raises:
        ValueError: the tensor does not exist, is a constant or has no fixed size, or the memory is too small,
            misaligned or freed.
        TypeError: ``memory`` is no such memory.
        RuntimeError: the runtime refuses.
        RuntimeMissing: the interpreter is neither tflite_runtime's nor ai_edge_litert's.
    """
    __tracebackhide__ = True
    if not all(hasattr(memory, name) for name in ("pointer", "size", "freed")):
        raise TypeError(f"memory is from shared_buffer, custom_memory or guarded_memory, not {memory!r:.80}")
    runtime = runtime_of(live)
    size = _size_of(runtime, live, tensor)
    address = _address_for(tensor, size, memory, offset)
    try:
        function = runtime.symbol(SET)
    except LookupError as error:
        raise RuntimeError(f"{error}, so no tensor can be placed") from None
    status = set_custom_allocation(function, live, tensor, (address, memory.size - offset))
    if status != layouts.OK:
        raise RuntimeError(f"SetCustomAllocationForTensor gave {status} for tensor {tensor}")
    live.__dict__.setdefault(_KEPT, {})[tensor] = memory
    if allocate:
        live.allocate_tensors()


def placed(live: Any) -> dict[int, ClientMemory]:
    """The memory of each tensor that was placed."""
    kept: dict[int, ClientMemory] = getattr(live, _KEPT, {})
    return kept


def _size_of(runtime: Runtime, live: Any, tensor: int) -> int:
    """Bytes of a tensor that can be placed."""
    __tracebackhide__ = True
    native = live._interpreter
    count = native.NumTensors(0)
    if not 0 <= tensor < count:
        raise ValueError(f"there is no tensor {tensor}: the model has 0 to {count - 1}")
    if runtime.observed:
        kind = view.tensor(context_of(live), tensor).allocation_type
        if kind == layouts.ALLOCATION_MMAP_RO:
            raise ValueError(f"tensor {tensor} is a constant, which the runtimes do not place")
    try:
        item = np.dtype(native.TensorType(tensor, 0)).itemsize
    except TypeError:
        item = 0
    if not item:
        raise ValueError(f"tensor {tensor} has a type without a fixed size, and cannot be placed")
    return item * math.prod(map(int, native.TensorSize(tensor, 0)))


def _address_for(tensor: int, size: int, memory: ClientMemory, offset: int) -> int:
    __tracebackhide__ = True
    if memory.freed:
        raise ValueError("the memory was freed already")
    if offset < 0 or offset + size > memory.size:
        raise ValueError(
            f"tensor {tensor} has {size} bytes, which are not within {memory.size} bytes of memory "
            f"from offset {offset} on"
        )
    address = memory.pointer + offset
    if address % ALIGNMENT:
        raise ValueError(
            f"the address {address:#x} is not a multiple of {ALIGNMENT}, as tensors of TensorFlow Lite are"
        )
    return address


def _bytes_of(owner: ClientMemory) -> npt.NDArray[np.uint8]:
    memory: Any = (ctypes.c_uint8 * owner.size).from_address(owner.pointer)
    memory.owner = owner  # whoever has the array keeps the memory
    return np.ctypeslib.as_array(memory)


class CustomTensorMemory:
    """Custom memory of a QNN delegate: TfLiteQnnDelegateAllocCustomMem of its library.

    It is given back by `free`, or with the last reference to it; an interpreter that has a tensor in it
    holds one.

    Args:
        memory: the delegate's two functions.
        size: bytes.
        alignment: of the address, a power of two.

    Raises:
        MemoryError: the delegate gave NULL.
    """

    def __init__(self, memory: CustomMemory, size: int, alignment: int = ALIGNMENT) -> None:
        __tracebackhide__ = True
        self.size = size
        self.pointer = memory.alloc(size, alignment)
        if not self.pointer:
            raise MemoryError(f"the delegate gave no custom memory of {size} bytes, aligned to {alignment}")
        self._life = Life(memory.free, self.pointer)

    @property
    def freed(self) -> bool:
        """`free` was called."""
        return self._life.is_over

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """All of it as bytes, without copying."""
        if self.freed:
            raise ValueError("the memory was freed already")
        return _bytes_of(self)

    def free(self) -> None:
        """TfLiteQnnDelegateFreeCustomMem, once. Arrays of it must not be touched afterwards."""
        self._life.end()


class MemoryTouch(NamedTuple):
    """An access beside the data of guarded memory."""

    access: Access
    """``read`` or ``write``; ``access`` where the processor does not say which."""
    offset: int
    """Bytes from the start of the data: below 0, or its size and more."""


class GuardedMemory:
    """Memory with a page beside it that must not be touched, and a pattern on the other side.

    A delegate that reads or writes beyond the data goes on undisturbed, and the access is recorded. 16 bytes
    behind the data may be read, which XNNPACK's kernels do. It is unmapped with the last reference to it.

    Args:
        size: bytes of the data.
        guard: ``after``: the page is as near behind the data as an address that is a multiple of 64 allows;
            ``before``: directly in front of it.

    Raises:
        TypeError: the size is no whole number.
        ValueError: there is no such guard, or no such size.
        MemoryError: there are no pages to be had.
    """

    def __init__(self, size: int, guard: Guard = "after") -> None:
        __tracebackhide__ = True
        if guard not in ("after", "before"):
            raise ValueError(f"guard is after or before, not {guard!r}")
        if not isinstance(size, int):
            raise TypeError(f"a size is a whole number of bytes, not {size!r:.80}")
        if size < 1:
            raise ValueError(f"guarded memory has 1 byte or more, not {size}")
        self.size = size
        self._pages = Guarded(size, guard)
        self._touches: list[MemoryTouch] = []
        # Not a method of this object: the recorder of SIGSEGV would keep it alive.
        touches = self._touches
        self._pages.on_touch = lambda _, access, offset: touches.append(MemoryTouch(access, offset))
        self._life = Life(self._pages.close)

    freed = False

    @property
    def pointer(self) -> int:
        """Address of the data."""
        return self._pages.address

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The data as bytes, without copying."""
        return _bytes_of(self)

    def touches(self) -> tuple[MemoryTouch, ...]:
        """The accesses beside the data since the last call, with bytes that have changed there."""
        offset = self._pages.changed()
        if offset is not None and MemoryTouch("write", offset) not in self._touches:
            self._touches.append(MemoryTouch("write", offset))
        found = tuple(self._touches)
        self._touches.clear()
        self._pages.arm()
        return found

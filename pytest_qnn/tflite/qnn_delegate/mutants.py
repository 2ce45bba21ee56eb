"""Reference QNN delegates that handle custom memory wrongly, one fault each."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from pytest_qnn.core.mutant import Mutant, enter
from pytest_qnn.qnn.abi.codes import TensorMemType, TensorType
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.tflite.abi import layouts, view
from pytest_qnn.tflite.mutants import QNN
from pytest_qnn.tflite.qnn_delegate.create import OwnInterface
from pytest_qnn.tflite.qnn_delegate.custom_tensors import Bound, CustomTensors, QnnParts
from pytest_qnn.tflite.qnn_delegate.report import Report
from pytest_qnn.tflite.qnn_delegate.shared_memory import Block, SharedMemory
from pytest_qnn.tflite.runner.qnn_interface import BACKENDS, UNDEFINED

_HEADER = 16
"""Bytes that some allocators keep before what they give."""


InterfaceT = TypeVar("InterfaceT", bound=OwnInterface)
MemoryT = TypeVar("MemoryT", bound=SharedMemory)
ReportT = TypeVar("ReportT", bound=Report)
TensorsT = TypeVar("TensorsT", bound=CustomTensors)


def _faulty_memory(name: str, fault: str, rule: str) -> Callable[[type[MemoryT]], type[MemoryT]]:
    """For a class of custom memories."""

    def take(memory: type[MemoryT]) -> type[MemoryT]:
        enter(Mutant(name, fault, (rule,), "delegate", QNN, QnnParts(memory=memory)))
        return memory

    return take


def _faulty_tensors(
    name: str, fault: str, rule: str, *, backend: str = "reference"
) -> Callable[[type[TensorsT]], type[TensorsT]]:
    """For a class of tensors in custom memory, over a QNN backend."""

    def take(tensors: type[TensorsT]) -> type[TensorsT]:
        enter(Mutant(name, fault, (rule,), "delegate", QNN, QnnParts(tensors=tensors, backend=backend)))
        return tensors

    return take


def _faulty_report(name: str, fault: str, rule: str) -> Callable[[type[ReportT]], type[ReportT]]:
    """For a class of what the delegate says."""

    def take(report: type[ReportT]) -> type[ReportT]:
        enter(Mutant(name, fault, (rule,), "delegate", QNN, QnnParts(report=report)))
        return report

    return take


def _faulty_interface(name: str, fault: str, rule: str) -> Callable[[type[InterfaceT]], type[InterfaceT]]:
    """For a class of the delegate's own interface."""

    def take(interface: type[InterfaceT]) -> type[InterfaceT]:
        enter(Mutant(name, fault, (rule,), "delegate", QNN, QnnParts(interface=interface)))
        return interface

    return take


class _PrivateRpcmem(EmulatedRpcmem):
    """Memory of the heap, which no device can be lent."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: dict[int, Any] = {}

    def alloc(self, heap: int, flags: int, size: int) -> int:  # noqa: ARG002 - rpcmem_alloc has them
        if not self._acceptable(size) or size > 1 << 24:
            return 0
        memory = ctypes.create_string_buffer(size)
        self._heap[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free(self, pointer: int) -> None:
        self._heap.pop(pointer, None)

    def to_fd(self, pointer: int) -> int:  # noqa: ARG002 - rpcmem_to_fd has it
        return -1


@_faulty_memory("custom-plain-malloc", "Gives memory of the heap.", "TFL-01")
class _PlainMalloc(SharedMemory):
    def __init__(self) -> None:
        super().__init__(_PrivateRpcmem())


@_faulty_memory("custom-counts-in-int", "Gives as many bytes as 31 bits hold.", "TFL-01")
class _CountsInInt(SharedMemory):
    """Asks for as many bytes as the lower 32 bits say."""

    def _total(self, size: int, alignment: int) -> int:
        return super()._total(size, alignment) & 0x7FFF_FFFF


@_faulty_memory("custom-ignores-alignment", "Gives pointers behind a header.", "TFL-02")
class _IgnoresAlignment(SharedMemory):
    """Gives what stands behind a header of its own."""

    def _align(self, base: int, alignment: int) -> int:  # noqa: ARG002 - that is the fault
        return base + _HEADER

    def _total(self, size: int, alignment: int) -> int:
        return super()._total(size, alignment) + _HEADER


@_faulty_memory("custom-frees-aligned", "Frees the aligned pointer.", "TFL-03")
class _FreesAligned(SharedMemory):
    """Has a header before the first multiple of the alignment, and gives rpcmem the client's pointer."""

    def _align(self, base: int, alignment: int) -> int:
        return super()._align(base + _HEADER, alignment)

    def _total(self, size: int, alignment: int) -> int:
        return super()._total(size, alignment) + _HEADER

    def _give_back(self, block: Block) -> None:
        self.rpcmem.free(block.pointer)


@_faulty_memory("custom-frees-last", "Frees the last memory for an unknown pointer.", "TFL-03")
class _FreesLast(SharedMemory):
    """Takes a pointer that it does not know for the last one that it gave."""

    def _find_to_free(self, pointer: int) -> Block | None:
        return super()._find_to_free(pointer) or next(reversed(self._blocks.values()), None)


@_faulty_memory("custom-ends-with-delegate", "Frees memory with the delegate.", "TFL-03")
class _EndsWithDelegate(SharedMemory):
    """Takes the client's memory back when a delegate is destroyed."""

    def retire(self) -> None:
        for pointer in list(self._blocks):
            self.free(pointer)


@_faulty_tensors(
    "custom-reports-anyway", "Reports what it has not registered.", "TFL-04", backend="reference:no-memory"
)
class _ReportsAnyway(CustomTensors):
    """Reports tensors as registered before it has asked the backend."""

    def register(self, kernel: Bound, v1: Any, block: Block, offset: int) -> int:
        self.log.append(self.report.registered(0))
        return super().register(kernel, v1, block, offset)


@_faulty_tensors("custom-looks-at-init", "Takes memory of before init only.", "TFL-06")
class _LooksAtInit(CustomTensors):
    """Knows custom memory that tensors had when the kernel was made, and fails with any other."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known: dict[int, set[int]] = {}

    def enter(self, kernel: Bound, tensors: tuple[tuple[int, int], ...]) -> None:
        super().enter(kernel, tensors)
        self._known[id(kernel)] = {address for address, _ in tensors}

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        tensor = view.tensor(context, index)
        if self.memory.find(tensor.data, tensor.bytes) and tensor.data not in self._known[id(kernel)]:
            return layouts.ERROR
        return super().bind(context, kernel, v1, index)


@_faulty_tensors("custom-copies-silently", "Registers nothing.", "TFL-09")
class _CopiesSilently(CustomTensors):
    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:  # noqa: ARG002
        return 0


@_faulty_tensors("custom-copies-late", "Delivers results an invoke late.", "TFL-10")
class _CopiesLate(CustomTensors):
    """Executes into memory of its own, and brings results to the client's when the next invoke begins."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._own: dict[tuple[int, int], Any] = {}

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        status = super().bind(context, kernel, v1, index)
        tensor = view.tensor(context, index)
        if v1.type != TensorType.APP_READ or self.memory.find(tensor.data, tensor.bytes) is None:
            return status
        own = self._own.get((id(kernel), index))
        if own is None:
            own = self._own[id(kernel), index] = ctypes.create_string_buffer(tensor.bytes)
        ctypes.memmove(tensor.data, own, tensor.bytes)
        v1.memType, v1.clientBuf.data = TensorMemType.RAW, ctypes.addressof(own)
        v1.clientBuf.dataSize = tensor.bytes
        return status


@_faulty_tensors("custom-wants-exact", "Fails with larger memory.", "TFL-11")
class _WantsExact(CustomTensors):
    """Fails where the memory is larger than the tensor."""

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        tensor = view.tensor(context, index)
        block = self.memory.find(tensor.data, tensor.bytes)
        if block is not None and block.size != tensor.bytes:
            return layouts.ERROR
        return super().bind(context, kernel, v1, index)


@_faulty_tensors("custom-keeps-handles", "Keeps a tensor's first handle.", "TFL-12")
class _KeepsHandles(CustomTensors):
    """Uses the handle that a tensor got first for as long as there is one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._first: dict[tuple[int, int], tuple[int, int]] = {}

    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:
        key = self._first.get((id(kernel), index), (address, size))
        if key not in kernel.handles:
            key = address, size
        handle = super().handle_of(kernel, index, v1, *key)
        if handle:
            self._first[id(kernel), index] = key
        return handle


@_faulty_tensors("custom-wants-all", "Wants all tensors in custom memory.", "TFL-13")
class _WantsAll(CustomTensors):
    """Fails where one tensor of a kernel is in custom memory and another is not."""

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        tensor = view.tensor(context, index)
        if kernel.handles and self.memory.find(tensor.data, tensor.bytes) is None:
            return layouts.ERROR
        return super().bind(context, kernel, v1, index)


@_faulty_tensors("custom-handle-of-first-kernel", "Kernels share one handle of a tensor.", "TFL-17")
class _HandleOfFirstKernel(CustomTensors):
    """Uses the handle that a tensor got in the context of the first kernel that has it."""

    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:
        for other in self._kernels:
            if (address, size) in other.handles:
                return other.handles[address, size][0]
        return super().handle_of(kernel, index, v1, address, size)


@_faulty_tensors("custom-prefetches", "Takes the inputs of all kernels when the first begins.", "TFL-17")
class _Prefetches(CustomTensors):
    """Copies what each kernel reads, as it is when the first kernel of an invoke begins."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._inputs: dict[tuple[int, int], tuple[int, int]] = {}
        self._copies: dict[tuple[int, int], Any] = {}

    def release(self, kernel: Bound) -> None:
        super().release(kernel)
        self._inputs.clear()
        self._copies.clear()

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        tensor, place = view.tensor(context, index), (id(kernel), index)
        if kernel is self._kernels[0]:
            self._copies = {
                known: ctypes.create_string_buffer(ctypes.string_at(address, size), size)
                for known, (address, size) in self._inputs.items()
                if self.memory.find(address, size)
            }
        elif v1.type == TensorType.APP_WRITE and self.memory.find(tensor.data, tensor.bytes):
            self._inputs[place] = (tensor.data, tensor.bytes)
            if place in self._copies:
                v1.memType, v1.clientBuf.data = TensorMemType.RAW, ctypes.addressof(self._copies[place])
                v1.clientBuf.dataSize = tensor.bytes
                return layouts.OK
        return super().bind(context, kernel, v1, index)


_MOST_HANDLES = 16
_MEBIBYTE = 1 << 20


@_faulty_tensors("custom-sixteen-handles", "Fails with more than 16 handles.", "TFL-18")
class _SixteenHandles(CustomTensors):
    """Has a table of sixteen registrations, and fails with the next one."""

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        status = super().bind(context, kernel, v1, index)
        return layouts.ERROR if sum(len(each.handles) for each in self._kernels) > _MOST_HANDLES else status


@_faulty_tensors("custom-first-mebibyte", "Reads the first mebibyte of a tensor.", "TFL-18")
class _FirstMebibyte(CustomTensors):
    """Hands the device a window of a mebibyte; what is behind it reads as zero."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._windows: dict[tuple[int, int], Any] = {}

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        tensor = view.tensor(context, index)
        inside = self.memory.find(tensor.data, tensor.bytes) is not None
        if not inside or tensor.bytes <= _MEBIBYTE or v1.type != TensorType.APP_WRITE:
            return super().bind(context, kernel, v1, index)
        window = self._windows.setdefault((id(kernel), index), ctypes.create_string_buffer(tensor.bytes))
        ctypes.memmove(window, tensor.data, _MEBIBYTE)
        v1.memType, v1.clientBuf.data = TensorMemType.RAW, ctypes.addressof(window)
        v1.clientBuf.dataSize = tensor.bytes
        return layouts.OK


_ALL: weakref.WeakSet[CustomTensors] = weakref.WeakSet()
"""The mutants of this process whose tensors know of one another."""


@_faulty_tensors("custom-ends-for-all", "A kernel's end deregisters the memory for every kernel.", "TFL-19")
class _EndsForAll(CustomTensors):
    """When a kernel ends, deregisters its blocks for the kernels of other delegates and interpreters too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        _ALL.add(self)

    def release(self, kernel: Bound) -> None:
        blocks = [block for _, block in kernel.handles.values()]
        super().release(kernel)
        for tensors in list(_ALL):
            for other in tensors._kernels if tensors.memory is self.memory else ():
                for handle, block in other.handles.values():
                    if block in blocks:
                        tensors.backend.deregister(handle)


@_faulty_tensors("custom-handle-of-first-user", "A memory has the handle of its first user.", "TFL-19")
class _HandleOfFirstUser(CustomTensors):
    """Uses the handle that any kernel of any delegate has for a place in custom memory."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        _ALL.add(self)

    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:
        others = [
            each for tensors in list(_ALL) if tensors.memory is self.memory for each in tensors._kernels
        ]
        for other in others:
            if other is not kernel and (address, size) in other.handles:
                return other.handles[address, size][0]
        return super().handle_of(kernel, index, v1, address, size)


@_faulty_report("reports-a-plan", "Says that 999 nodes of 1 became 7 partitions.", "TFL-14")
class _ReportsAPlan(Report):
    def delegated(self, nodes: int, total: int, partitions: int) -> str:  # noqa: ARG002 - that is the fault
        return super().delegated(999, 1, 7)


@_faulty_report("reports-everything", "Says that every node is delegated.", "TFL-14")
class _ReportsEverything(Report):
    def delegated(self, nodes: int, total: int, partitions: int) -> str:  # noqa: ARG002 - that is the fault
        return super().delegated(total, total, partitions)


@_faulty_report("reports-one-partition", "Says that whatever it claims is one partition.", "TFL-14")
class _ReportsOnePartition(Report):
    def delegated(self, nodes: int, total: int, partitions: int) -> str:
        return super().delegated(nodes, total, min(partitions, 1))


@_faulty_tensors("custom-prints-only", "Reports as registered what it does not register.", "TFL-15")
class _PrintsOnly(CustomTensors):
    """Executes everything raw."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._said: set[tuple[int, int]] = set()

    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:  # noqa: ARG002
        if self.memory.find(address, size) and (index, address) not in self._said:
            self._said.add((index, address))
            self.log.append(self.report.registered(index))
        return 0


@_faulty_tensors("custom-registers-for-show", "Registers custom memory and executes raw.", "TFL-15")
class _RegistersForShow(CustomTensors):
    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:
        super().handle_of(kernel, index, v1, address, size)
        return 0


@_faulty_tensors("custom-registers-first-only", "Reports each tensor, and registers the first.", "TFL-15")
class _RegistersFirstOnly(CustomTensors):
    """Of each kernel; the others are executed raw."""

    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:
        if not kernel.handles or (address, size) in kernel.handles:
            return super().handle_of(kernel, index, v1, address, size)
        line = self.report.registered(index)
        if self.memory.find(address, size) and line not in self.log:
            self.log.append(line)
        return 0


@_faulty_interface("own-fails-invokes", "Delegates of TfLiteQnnDelegateCreate fail to invoke.", "TFL-08")
class _FailsInvokes(OwnInterface):
    def made(self, make: Callable[[], Any]) -> Any:
        delegate = make()
        delegate.fault = "kernel-invoke"
        return delegate


@_faulty_interface("own-every-second", "Every second TfLiteQnnDelegateCreate gives NULL.", "TFL-08")
class _EverySecond(OwnInterface):
    def __init__(self) -> None:
        self._count = 0

    def made(self, make: Callable[[], Any]) -> Any:
        self._count += 1
        return make() if self._count % 2 else None


@_faulty_interface("own-default-is-htp", "The default options name the HTP.", "TFL-20")
class _DefaultIsHtp(OwnInterface):
    def default(self) -> int:
        return BACKENDS["htp"]


@_faulty_interface("own-takes-undefined", "Takes kUndefinedBackend for what it has.", "TFL-20")
class _TakesUndefined(OwnInterface):
    def accepts(self, backend_type: int) -> bool:
        return super().accepts(backend_type) or backend_type == UNDEFINED


@_faulty_interface("own-keeps-the-last", "Without a backend_type it uses that of the last create.", "TFL-20")
class _KeepsTheLast(OwnInterface):
    def __init__(self) -> None:
        self._last = UNDEFINED

    def accepts(self, backend_type: int) -> bool:
        accepted = super().accepts(backend_type or self._last)
        self._last = backend_type or self._last
        return accepted


@_faulty_interface("own-counts-in-bytes", "Reads the lower byte of the backend_type.", "TFL-21")
class _CountsInBytes(OwnInterface):
    def accepts(self, backend_type: int) -> bool:
        return super().accepts(backend_type & 0xFF)


@_faulty_interface(
    "own-takes-unknown", "Takes every number beyond the enumeration for its backend.", "TFL-21"
)
class _TakesUnknown(OwnInterface):
    def accepts(self, backend_type: int) -> bool:
        return super().accepts(backend_type) or backend_type > max(BACKENDS.values())

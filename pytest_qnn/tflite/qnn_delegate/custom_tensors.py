"""Which memory a QNN graph's IO tensors are executed in: the runtime's own, or handles of custom memory."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Protocol

from pytest_qnn.qnn.abi import layouts
from pytest_qnn.qnn.abi.codes import HtpMemType, MemType, TensorMemType
from pytest_qnn.tflite.abi import layouts as tflite
from pytest_qnn.tflite.abi import view
from pytest_qnn.tflite.qnn_delegate.create import OwnInterface
from pytest_qnn.tflite.qnn_delegate.report import Report
from pytest_qnn.tflite.qnn_delegate.shared_memory import Block, SharedMemory


@dataclasses.dataclass(eq=False)
class Bound:
    """A kernel as the QNN context of its partition, with what is registered in it."""

    context: int = 0
    handles: dict[tuple[int, int], tuple[int, Block]] = dataclasses.field(default_factory=dict)
    """(address, bytes) -> memory handle, and the block in which it lies."""


class Registrar(Protocol):
    """QnnMem of a backend."""

    def register(self, context: int, descriptor: layouts.MemDescriptor) -> int:
        """The handle; 0 where the backend refuses."""

    def deregister(self, handle: int) -> None:
        """Let go of a handle."""


class CustomTensors:
    """Tensors of one delegate that the client has placed in custom memory.

    Each method is one decision, and a mutant overrides one of them.

    Args:
        memory: the process's custom memory.
        backend: where blocks are registered.
        log: what the delegate says of itself.
        report: in which words.
    """

    def __init__(self, memory: SharedMemory, backend: Registrar, log: list[str], report: Report) -> None:
        self.memory = memory
        self.backend = backend
        self.log = log
        self.report = report
        self._kernels: list[Bound] = []
        memory.leaving.append(self.leave)

    def close(self) -> None:
        """The delegate is destroyed, and its kernels are."""
        self.memory.leaving.remove(self.leave)
        self.memory.retire()

    def enter(self, kernel: Bound, tensors: tuple[tuple[int, int], ...]) -> None:  # noqa: ARG002 - for overriding
        """A kernel is made; of each IO tensor of it: (address, bytes) at this time."""
        self._kernels.append(kernel)

    def bind(self, context: int, kernel: Bound, v1: Any, index: int) -> int:
        """Let an IO tensor be executed in the memory that the runtime has it in at this very invoke.

        The status for the invoke. ``v1`` is its Qnn_TensorV1_t.
        """
        tensor = view.tensor(context, index)
        handle = self.handle_of(kernel, index, v1, tensor.data, tensor.bytes)
        v1.memType = TensorMemType.MEMHANDLE if handle else TensorMemType.RAW
        v1.clientBuf.data, v1.clientBuf.dataSize = tensor.data, tensor.bytes
        if handle:
            v1.memHandle = handle
        return tflite.OK

    def handle_of(self, kernel: Bound, index: int, v1: Any, address: int, size: int) -> int:
        """The handle of a tensor in custom memory, registered at its first use; 0 for any other memory."""
        block = self.memory.find(address, size)
        if block is None:
            return 0
        known = kernel.handles.get((address, size))
        if known is not None:
            return known[0]
        handle = self.register(kernel, v1, block, address - block.base)
        if handle:
            kernel.handles[address, size] = handle, block
            self.log.append(self.report.registered(index))
        return handle

    def register(self, kernel: Bound, v1: Any, block: Block, offset: int) -> int:
        """QnnMem_register of a tensor in a shared buffer; 0 where the backend refuses."""
        shape = layouts.MemShape(numDim=v1.rank, dimSize=v1.dimensions)
        descriptor, _kept = shared_buffer(shape, v1.dataType, block, offset)
        return self.backend.register(kernel.context, descriptor)

    def release(self, kernel: Bound) -> None:
        """The kernel goes: deregister what it has registered."""
        if kernel in self._kernels:
            self._kernels.remove(kernel)
        for handle, _ in kernel.handles.values():
            self.backend.deregister(handle)
        kernel.handles.clear()

    def leave(self, block: Block) -> None:
        """The client gives a block back: deregister it first."""
        for kernel in self._kernels:
            for key in [key for key, (_, inside) in kernel.handles.items() if inside is block]:
                handle, _ = kernel.handles.pop(key)
                self.backend.deregister(handle)


def shared_buffer(
    shape: layouts.MemShape, data_type: int, block: Block, offset: int
) -> tuple[layouts.MemDescriptor, object]:
    """The descriptor of a tensor in a block, and what must live as long as it."""
    custom = layouts.HtpMemDescriptor(type=HtpMemType.SHARED_BUFFER, size=block.total)
    custom.sharedBufferConfig.fd, custom.sharedBufferConfig.offset = block.fd, offset
    descriptor = layouts.MemDescriptor(memShape=shape, dataType=data_type, memType=MemType.CUSTOM)
    descriptor.customInfo = ctypes.addressof(custom)
    return descriptor, custom


@dataclasses.dataclass(frozen=True)
class QnnParts:
    """What a QNN delegate is made of; a mutant has one of them replaced."""

    memory: type[SharedMemory] = SharedMemory
    tensors: type[CustomTensors] = CustomTensors
    report: type[Report] = Report
    interface: type[OwnInterface] = OwnInterface
    backend: str = ""
    """Where the QNN interface comes from; empty: as the option says."""

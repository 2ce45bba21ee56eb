"""Reference backends with one fault each, for the rules of DMA."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.qnn.abi.codes import MemType
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Request
from pytest_qnn.qnn.reference.personalities import PERSONALITIES


class _DmaBuf(ReferenceBackend):
    """No fault: the reference with DMA_BUF memory, for faults to stand on."""

    def __init__(self) -> None:
        super().__init__(PERSONALITIES["dma-buf"])


@faulty_backend("dma-no-pointer", "DMA_BUF works without a pointer.", "DMA-01")
class _DmaWithoutPointer(_DmaBuf):
    def read_descriptor(self, descriptor: Any) -> Request:
        if descriptor.memType == MemType.DMA_BUF and not descriptor.dmaBufInfo.data:
            own = type(descriptor).from_buffer_copy(descriptor)
            own.dmaBufInfo.data = ctypes.addressof(own)
            return super().read_descriptor(own)
        return super().read_descriptor(descriptor)


@faulty_backend("dma-through-pointer", "Results go to a foreign pointer.", "DMA-02")
class _DmaThroughPointer(_DmaBuf):
    """Results go to the pointer, whatever memory it leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.pointers: dict[int, int] = {}

    def read_descriptor(self, descriptor: Any) -> Request:
        request = super().read_descriptor(descriptor)
        if descriptor.memType == MemType.DMA_BUF:
            self.pointers[id(request)] = descriptor.dmaBufInfo.data
            self.requests = [*getattr(self, "requests", []), request]
        return request

    def write_output(self, graph: Any, binding: Any, stored: Any) -> None:
        pointer = self.pointers.get(id(binding.registration.request)) if binding.registration else None
        if pointer is None:
            super().write_output(graph, binding, stored)
        else:
            ctypes.memmove(pointer, stored.tobytes(), stored.size)


@faulty_backend("dma-takes-ion", "A backend without ION registers it.", "DMA-03", "ION-06")
class _GpuTakesIon(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["dma-buf-only"])

    def require_mem_type(self, kind: int) -> None:
        if kind != MemType.ION:
            super().require_mem_type(kind)


@faulty_backend("dma-twice", "DMA_BUF memory is registered twice.", "DMA-04")
class _DmaTwice(_DmaBuf):
    def same_memory(self, request: Request, other: Request) -> bool:
        return request.mem_type != MemType.DMA_BUF and super().same_memory(request, other)

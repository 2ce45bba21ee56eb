"""What becomes of memory that a client registers: when it is mapped, how long kept, used in place or not."""

from __future__ import annotations

import collections
import dataclasses
import mmap
import os
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.isolation import libc
from pytest_qnn.qnn.abi.codes import Error, MemType
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import Mapping, ReleasedError, at
from pytest_qnn.qnn.reference.objects import (
    Binding,
    Context,
    Graph,
    QnnError,
    Registration,
    Request,
    Shared,
)
from pytest_qnn.qnn.reference.personalities import DEFAULT
from pytest_qnn.qnn.reference.registrations import ROLES
from tests.gallery.qnn.oddity import Odd, odd

_PAGE = mmap.PAGESIZE


class _Window(Mapping):
    """Some pages of a file."""

    __slots__ = ()

    def __init__(self, fd: int, start: int, length: int, live: set[Mapping]) -> None:
        protection = libc.PROT_READ | libc.PROT_WRITE
        address = libc.mmap(None, length, protection, libc.MAP_SHARED, fd, start)
        if address in (None, libc.MAP_FAILED):
            raise OSError("mmap")
        self.address, self.length, self._live = address, length, live
        live.add(self)


class _OwnDescriptor(Mapping):
    """A file that is mapped while it is looked at, and kept by a descriptor of its own between."""

    __slots__ = ("_fd", "_now", "meet")

    def __init__(self, fd: int, length: int, live: set[Mapping], meet: Any) -> None:
        Mapping(fd, length, set()).release()  # what cannot be mapped is refused at once
        self.address, self.length, self._live, self.meet = 0, length, live, meet
        self._now: Mapping | None = None
        self._fd = os.dup(fd)
        live.add(self)

    def view(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        if self._fd < 0:
            raise ReleasedError("it was given back")
        if self._now is None:
            self.meet()
            self._now = Mapping(self._fd, self.length, set())
        return self._now.view(offset, size)

    def unmap(self) -> None:
        if self._now is not None:
            self._now.release()
            self._now = None

    def release(self) -> None:
        self.unmap()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._live.discard(self)


@odd(
    "offsets-of-pages",
    "a tensor begins at a page of its shared buffer, and is refused anywhere else",
    source="seed 002 places tensors one behind the other; no document says which offsets are taken (SHB-10)",
    seen="8004 for offsets that are no multiples of 4096",
    meant="SHB-10",
    tried_by="SHB-03 SHB-04 SHB-06 SHB-07 SHB-08 SHB-09 SHB-13 DRG-02",
)
class OffsetsOfPages(Odd):
    def check_fits(self, context: Context, request: Request) -> None:
        if request.role not in ROLES and request.offset % _PAGE:
            self.meet()
            raise QnnError(Error.MEM_ERROR_INVALID_SHAPE)
        super().check_fits(context, request)


@odd(
    "looks-for-repetitions-first",
    "whether the memory is registered already is asked before its size and place are looked at",
    source="facts 7.3: precedence; QnnMem.h gives a code to each fault, and none to a descriptor with two",
    seen="8002 for memory that is registered, whatever size the second descriptor says",
    tried_by="SHB-03 SHB-04 SHB-05 SHB-06 REG-15 REG-21",
)
class LooksForRepetitionsFirst(Odd):
    def check_fits(self, context: Context, request: Request) -> None:
        try:
            super().check_fits(context, request)
        except QnnError:
            if request.role not in ROLES:
                twice = self.find_duplicate(context, request, [])
                if twice is not None:
                    self.meet()
                    self.resolve_duplicate(twice)
            raise


@odd(
    "one-size-in-the-process",
    "a shared buffer has one size in the whole process, whichever contexts it is registered with",
    source="seed 002, note on size: the total size, the same for all registrations of a descriptor (SHB-03)",
    seen="8000 for another size than that of a registration of another context",
    tried_by="SHB-03 CTX-03 QTHR-03 QTHR-06",
)
class OneSizeInTheProcess(Odd):
    def check_declared(self, shared: Shared, request: Request) -> None:
        for other in self.registrations.values():
            known = other.request
            if known.identity == request.identity and known.mem_type == request.mem_type == MemType.CUSTOM:
                self.meet()
                if known.declared != request.declared and not {known.role, request.role} & {*ROLES}:
                    raise QnnError(Error.MEM_ERROR_INVALID_ARGUMENT)
        super().check_declared(shared, request)


@odd(
    "maps-while-it-executes",
    "a registration keeps a descriptor of its own, and the memory is mapped while a graph executes",
    source="seed 001: no copy; nothing says when a buffer is mapped, DRG-10 only when it must be gone",
    seen="no mapping of the buffer between calls, one more descriptor for each registered buffer",
    tried_by="EXE-01 ION-04 DRG-10 DRG-13",
)
class MapsWhileItExecutes(Odd):
    def map_memory(self, request: Request) -> Mapping:
        if request.role in ROLES:
            return super().map_memory(request)
        try:
            return _OwnDescriptor(request.fd, request.length, self.mappings, self.meet)
        except OSError:
            raise QnnError(Error.MEM_ERROR_MAPPING) from None

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        try:
            super().carry_out(graph, sources, sinks)
        finally:
            for each in (*sources, *sinks):
                held = each.registration.shared.mapping if each.registration else None
                if isinstance(held, _OwnDescriptor):
                    held.unmap()


@odd(
    "one-mapping-per-handle",
    "each handle has its own mapping, of no more pages than its tensor lies in",
    source="facts SHB-07, SHB-13: handles are independent; nothing says how many mappings there are",
    seen="as many mappings of a buffer as it has tensors, none from its beginning",
    tried_by="SHB-08 SHB-09 SHB-13",
)
class OneMappingPerHandle(Odd):
    def shared_for(self, context: Context, request: Request) -> Shared:
        if request.role in ROLES:
            return super().shared_for(context, request)
        for other in context.registrations.values():
            if other.request.identity == request.identity:
                self.check_declared(other.shared, request)
        begin = request.offset // _PAGE * _PAGE
        length = -(-(request.offset + request.size - begin) // _PAGE) * _PAGE
        try:
            window = _Window(request.fd, begin, length, self.mappings)
        except OSError:
            raise QnnError(Error.MEM_ERROR_MAPPING) from None
        self.meet()
        return Shared(window, request.declared)

    def undo_mapping(self, context: Context, request: Request, shared: Shared) -> None:
        if request.role in ROLES:
            super().undo_mapping(context, request, shared)
        else:
            self.give_back(shared.mapping)

    def locate(self, registration: Registration) -> int:
        return registration.request.offset % _PAGE

    def drop_user(self, registration: Registration) -> None:
        if registration.request.role in ROLES:
            super().drop_user(registration)
        else:
            self.give_back(registration.shared.mapping)


class _Reaper:
    """One thread, for as long as the process runs, gives back what is handed to it a while later."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left: collections.deque[tuple[float, Any, Any]] = collections.deque()
        self._begun = False
        self._lock = threading.Lock()

    def hand_over(self, memory: Mapping | _Closed | _Pages, lock: Any) -> None:
        with self._lock:
            self._left.append((time.monotonic() + self._seconds, memory, lock))
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._left:
                    self._begun = False
                    return
                due, memory, lock = self._left.popleft()
            time.sleep(max(0.0, due - time.monotonic()))
            with lock:
                memory.release()


_REAPER = _Reaper(0.2)


@odd(
    "gives-back-after-a-while",
    "mappings of registered memory and IO buffers are given back 0.2 s later, by one thread of the library's",
    source="legal-choices.md: given back within a second is given back; facts DRG-10, QMG-09: no deadline",
    seen="a mapping is still there when memDeRegister or contextFree returns",
    tried_by="DRG-10 CTX-01 QMG-09",
)
class GivesBackAfterAWhile(Odd):
    def give_back(self, memory: Mapping) -> None:
        self.meet()
        _REAPER.hand_over(memory, self.lock)

    def release_buffers(self, graph: Graph) -> None:
        for buffer in graph.buffers.values():
            self.give_back(buffer)
        graph.buffers.clear()
        super().release_buffers(graph)


@odd(
    "node-for-each-type",
    "opens a device file at a context's first registration of each type, and closes it with the context",
    source="no header says when a device is opened; legal-choices.md: what grows with every object is a leak",
    seen="a descriptor more from the first registration of a type to contextFree",
    tried_by="DRG-09 DRG-10 CTX-01",
)
class NodeForEachType(Odd):
    chosen = dataclasses.replace(DEFAULT, dma_buf=True)

    def __init__(self) -> None:
        self._nodes: dict[Context, dict[int, int]] = {}
        super().__init__()

    def shared_for(self, context: Context, request: Request) -> Shared:
        nodes = self._nodes.setdefault(context, {})
        if request.mem_type not in nodes:
            self.meet()
            nodes[request.mem_type] = os.open(os.devnull, os.O_RDONLY)
        return super().shared_for(context, request)

    def release_registrations(self, context: Context) -> None:
        super().release_registrations(context)
        for node in self._nodes.pop(context, {}).values():
            os.close(node)


class _Closed:
    """A descriptor that a thread closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


_SOON = _Reaper(0.02)


@odd(
    "descriptors-a-little-longer",
    "a registration keeps a descriptor of its own, which a thread closes 20 ms after deregistration",
    source="legal-choices.md: given back within a second is given back",
    seen="a descriptor more when memDeRegister returns, and one fewer while the client does something else",
    tried_by="DRG-09 DRG-10 REG-28",
)
class DescriptorsALittleLonger(Odd):
    def __init__(self) -> None:
        self._own: dict[Registration, int] = {}
        super().__init__()

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self._own[registration] = os.dup(registration.request.fd)

    def forget(self, registration: Registration) -> None:
        super().forget(registration)
        if registration in self._own:
            self.meet()
            _SOON.hand_over(_Closed(self._own.pop(registration)), self.lock)


class _Pages:
    """Pages that nobody else sees, of which each second one can only be read: so each is a mapping."""

    __slots__ = ("_address", "_length")

    def __init__(self, count: int) -> None:
        kind, access = libc.MAP_SHARED | libc.MAP_ANONYMOUS, libc.PROT_READ | libc.PROT_WRITE
        self._length = count * _PAGE
        self._address = libc.mmap(None, self._length, access, kind, -1, 0)
        for number in range(0, count, 2):
            libc.protect(self._address + number * _PAGE, _PAGE, libc.PROT_READ)

    def release(self) -> None:
        libc.munmap(self._address, self._length)


@odd(
    "pages-a-little-longer",
    "a context has twenty mappings of its own, which a thread unmaps 20 ms after contextFree",
    source="legal-choices.md: given back within a second is given back",
    seen="mappings are still there when contextFree returns",
    tried_by="CTX-01 CTX-10",
)
class PagesALittleLonger(Odd):
    def __init__(self) -> None:
        self._pages: list[_Pages] = []
        super().__init__()

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        super().context_create(backend, device, config, out)
        self._pages.append(_Pages(20))

    def free_context(self, context: Context) -> None:
        super().free_context(context)
        if self._pages:  # contexts out of binaries have none
            self.meet()
            _SOON.hand_over(self._pages.pop(), self.lock)


@odd(
    "copies-on-the-cpu",
    "a backend that is not HTP copies registered memory to buffers of its own and back, at each execute",
    source="seed 001 is about QNN HTP alone; facts 3.1: backendId 3 is the CPU's",
    seen="IO buffers are used with handles too; the memory holds the same in the end",
    tried_by="EXE-01 ION-04 ION-05 EXE-09",
)
class CopiesOnTheCpu(Odd):
    backend_id = 3
    chosen = dataclasses.replace(DEFAULT, custom=False, deferred=False)

    def read_input(self, graph: Graph, binding: Binding) -> Stored:
        if binding.registration is None:
            return super().read_input(graph, binding)
        self.meet()
        inside = self.buffer_of(graph, binding.tensor).view(0, binding.tensor.size)
        inside[:] = self.registered(binding, binding.registration)
        return inside

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if binding.registration is not None:
            inside = self.buffer_of(graph, binding.tensor).view(0, binding.tensor.size)
            inside[:] = stored
            self.registered(binding, binding.registration)[:] = inside
            return
        super().write_output(graph, binding, stored)


class _ClientMemory(Mapping):
    """The client's own mapping, which is used in place."""

    __slots__ = ("_inode",)

    def __init__(self, address: int, length: int, inode: int) -> None:
        self.address, self.length, self._inode, self._live = address, length, inode, set()
        self.require()

    def require(self) -> None:
        """It is still a mapping of the file."""
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                place, _, _, _, inode, *_ = line.split()
                begin, end = (int(each, 16) for each in place.split("-"))
                if begin <= self.address < end:
                    if int(inode) == self._inode and self.address + self.length <= end:
                        return
                    break
        raise ReleasedError("it is no mapping of the file")

    def view(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        self.require()
        return at(self.address + offset, size)

    def release(self) -> None:
        """It is the client's."""


@odd(
    "client-mapping-in-place",
    "DMA_BUF memory is used through the pointer that the client gives, and mapped by nobody else",
    source="facts DMA-01, DMA-02: the descriptor carries fd and the client's mapping, both are required",
    seen="no mapping of the backend's; a pointer that is none of the file's is refused (8003)",
    tried_by="DMA-01 DMA-02 DMA-04 EXE-01",
)
class ClientMappingInPlace(Odd):
    backend_id = 4
    chosen = dataclasses.replace(DEFAULT, ion=False, custom=False, deferred=False, dma_buf=True)
    _data = 0

    def read_descriptor(self, descriptor: Any) -> Request:
        found = super().read_descriptor(descriptor)
        if found.mem_type == MemType.DMA_BUF:
            self._data = descriptor.dmaBufInfo.data
        return found

    def shared_for(self, context: Context, request: Request) -> Shared:
        self.meet()
        try:
            memory = _ClientMemory(self._data, request.size, os.fstat(request.fd).st_ino)
        except ReleasedError:
            raise QnnError(Error.MEM_ERROR_MAPPING) from None
        return Shared(memory, None)

    def drop_user(self, registration: Registration) -> None:
        """Nothing is mapped."""


@odd(
    "again-with-another-shape",
    "memory may be registered once more as a tensor of another size, at the same place",
    source="facts 7.5: what already registered means is not specified, clients do this",
    seen="two handles for one ION descriptor, or for one offset, with different sizes",
    meant="ION-02 SHB-11",
    tried_by="ION-02 REG-21",
)
class AgainWithAnotherShape(Odd):
    def same_memory(self, request: Request, other: Request) -> bool:
        alike = super().same_memory(request, other)
        if alike and request.mem_type == other.mem_type and request.size != other.size:
            self.meet()
            return False
        return alike


@odd(
    "a-duplicate-is-another-memory",
    "a duplicate of a descriptor is another memory",
    source="facts REG-25, 7.5: devices know memory by the number of its descriptor",
    seen="dup(fd) registers where fd is registered",
    tried_by="REG-25 REG-26",
)
class DuplicateIsAnother(Odd):
    chosen = dataclasses.replace(DEFAULT, by_number=True)

    def examine_fd(self, fd: int) -> tuple[tuple[int, int], int]:
        self.meet()
        return super().examine_fd(fd)

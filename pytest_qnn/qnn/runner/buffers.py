"""Steps on the client's memory: alloc, free, to-fd, write, fill, read, observe."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from functools import lru_cache
from operator import add, gt

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe.process import (
    Snapshot,
    bytes_beyond,
    file_of,
    mappings_by_file,
    regions,
    small_blocks_in_reserve,
    snapshot,
    spans_of,
)
from pytest_qnn.qnn.cases.case import (
    MOST_NEEDED,
    Alloc,
    AllocNeeded,
    Fill,
    Free,
    Observe,
    PointerKind,
    QnnDType,
    Read,
    ToFd,
    Write,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.runner.client import array_of
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.rpcmem import own_memory
from pytest_qnn.qnn.runner.state import Buffer, Skip, State
from pytest_qnn.qnn.trace import AllocCounts, ProcessCounts, StepSeen

_PAGE = os.sysconf("SC_PAGE_SIZE")
_UNKNOWN = ctypes.create_string_buffer(_PAGE)
"""Memory that no rpcmem has handed out: the unknown pointer leads here."""
CLOSED_FD = 1 << 20
"""The number of a descriptor that is none: higher than any that can be open."""
_SMALL = 4096
_GIVEN_BACK, _PAUSE = 1.0, 0.01
"""Seconds after which what is still there counts as kept, and between two looks."""


@lru_cache(1024)
def _small_contents(dtype: QnnDType, seed: int, size: int) -> bytes:
    return contents(dtype, seed, size)


def data_of(dtype: QnnDType, seed: int, size: int) -> bytes:
    """`pytest_qnn.qnn.cases.contents.contents`, remembered where it is small."""
    return _small_contents(dtype, seed, size) if size <= _SMALL else contents(dtype, seed, size)


def mapped(address: int, size: int) -> bool:
    """Every page of [address, address + size) is mapped into this process."""
    start = address & -_PAGE
    pages = (address + size - start + _PAGE - 1) // _PAGE
    seen = array_of(ctypes.c_ubyte, pages)()
    return int(libc.mincore(start, address + size - start, seen)) == 0


def usable(state: State, name: str, offset: int = 0, size: int | None = None) -> Buffer:
    """The live buffer, if the client may touch ``size`` bytes of it from ``offset`` on (None: to the end).

    Of a buffer of gigabytes to ask for every page takes longer than all else in a case.

    Raises:
        Skip: it was never made or is freed, or its memory is gone (a mistaken rpcmem took it away).
    """
    buffer = state.buffer(name)
    if not buffer.live:
        raise Skip(f"buffer {name} is freed")
    if not buffer.usable:
        raise Skip(f"buffer {name} is not writable from its first to its last byte")
    begin = min(max(offset, 0), buffer.size)
    end = buffer.size if size is None else min(begin + size, buffer.size)
    if not mapped(buffer.pointer + begin, end - begin):
        raise Skip(f"buffer {name} is no longer mapped")
    return buffer


def descriptor_of(state: State, buffer: Buffer) -> int:
    """The buffer's fd; of a freed one, the number the client remembers (-1 if it never asked)."""
    if buffer.live:
        if not buffer.own:
            buffer.fd = state.rpcmem.to_fd(buffer.pointer)
        if buffer.fd >= 0:
            file = file_of(buffer.fd)
            if file is not None:
                state.inodes.add(file)
    return buffer.fd


@handles(Alloc)
def alloc(state: State, step: Alloc) -> StepSeen:
    """rpcmem_alloc, and a write to the first and the last byte; ``values``: (pointer,), 0 for NULL."""
    pointer, fd = _allocate(state, step)
    if not pointer:
        return StepSeen(values=(0,))
    first = _writable(pointer)
    last = _writable(pointer + max(step.size, 1) - 1)
    previous = state.buffers.get(step.buffer)
    if previous is not None and previous.live:
        state.retired.append(previous)
    made = Buffer(pointer, step.size, usable=first and last, own=step.own, fd=fd)
    state.buffers[step.buffer] = made
    return StepSeen(values=(pointer,), counts=AllocCounts(first, last))


def _allocate(state: State, step: Alloc) -> tuple[int, int]:
    """(pointer, descriptor of memory of the client's own or -1)."""
    if step.own:
        return own_memory(step.size)
    if not step.wide:
        return state.rpcmem.alloc(step.heap, step.flags, step.size), -1
    pointer = state.rpcmem.alloc2(step.heap, step.flags, step.size)
    if pointer is None:
        raise Skip("rpcmem_alloc2 is not exported")
    return pointer, -1


def give_back(state: State, buffer: Buffer) -> None:
    """Release a buffer as it was made."""
    if buffer.own:
        libc.munmap(buffer.pointer, buffer.size)
        libc.close_given(buffer.fd)
    else:
        state.rpcmem.free(buffer.pointer)


@handles(AllocNeeded)
def alloc_needed(state: State, step: AllocNeeded) -> StepSeen:
    """rpcmem_alloc of what a context needs, as it has said; ``values``: (pointer, size)."""
    context = state.contexts.get(step.context)
    needed = context.said.get(step.option, 0) if context is not None else 0
    if not needed:
        raise Skip(f"context {step.context} has not said that it needs any")
    if needed + step.extra > MOST_NEEDED:
        raise Skip(f"context {step.context} needs {needed} bytes, more than this suite gives")
    size = needed + step.extra
    seen = alloc(state, Alloc(step.buffer, size, own=step.own))
    return StepSeen(values=(*seen.values, size), counts=seen.counts)


@handles(Free)
def free(state: State, step: Free) -> StepSeen:
    """rpcmem_free; ``values``: (pointer passed,)."""
    pointer = _pointer(state, step.buffer, step.pointer)
    made = state.buffers.get(step.buffer)
    if made is not None and made.own and made.live and step.pointer == "base":
        give_back(state, made)
    else:
        state.rpcmem.free(pointer)
    if step.pointer == "base":
        state.buffers[step.buffer].live = False
    return StepSeen(values=(pointer,))


@handles(ToFd)
def to_fd(state: State, step: ToFd) -> StepSeen:
    """rpcmem_to_fd."""
    if step.pointer == "base" and state.buffer(step.buffer).live:
        return StepSeen(values=(descriptor_of(state, state.buffer(step.buffer)),))
    return StepSeen(values=(state.rpcmem.to_fd(_pointer(state, step.buffer, step.pointer)),))


@handles(Write)
def write(state: State, step: Write) -> StepSeen:
    """The client writes."""
    buffer = usable(state, step.buffer, step.offset, step.size)
    if step.offset < 0 or step.size < 0 or step.offset + step.size > buffer.size:
        raise Skip(f"{step.size} bytes at {step.offset} are not within buffer {step.buffer}")
    ctypes.memmove(buffer.pointer + step.offset, data_of(step.dtype, step.seed, step.size), step.size)
    return StepSeen()


@handles(Fill)
def fill(state: State, step: Fill) -> StepSeen:
    """The client fills."""
    buffer = usable(state, step.buffer)
    ctypes.memset(buffer.pointer, step.byte, buffer.size)
    return StepSeen()


@handles(Read)
def read(state: State, step: Read) -> StepSeen:
    """The client reads, through its pointer or a second mapping; ``data``: (the buffer's bytes,)."""
    buffer = usable(state, step.buffer)
    data = (
        ctypes.string_at(buffer.pointer, buffer.size) if step.via == "client" else _through_fd(state, buffer)
    )
    return StepSeen(data=(state.keep(data),))


_OVERHEAD = 2 * ctypes.sizeof(ctypes.c_size_t)
"""Bytes before a block that malloc has mapped."""


def _mapped(data: bytes) -> int:
    """Bytes of the mapping that glibc makes for a large piece of the trace (`large_blocks_visible`)."""
    return -(-(sys.getsizeof(data) + _OVERHEAD) // _PAGE) * _PAGE


_SPARE = (0, 0, 9)
"""So many more of each are none for which a patient look waits."""


@handles(Observe)
def observe(state: State, step: Observe) -> StepSeen:
    """Count from outside; ``regions``, where asked for: (address, resident bytes) of each."""
    if step.region and state.reserve is None:
        state.reserve = small_blocks_in_reserve()
    seen = _patient_snapshot(state, step) if step.patient and not step.buffers else snapshot()
    if not step.buffers:
        state.first_look = state.first_look or _held(seen)
    found = _regions(state, step, seen)
    state.first_regions.setdefault(step.region, len(found))
    counts = ProcessCounts(
        mapped=_mapped_patiently(state, step) if step.buffers else (),
        kept=sum(map(_mapped, state.kept)) if step.region else 0,
        fds=seen.fds,
        mappings=len(seen.lines),
        memfds=seen.counts()["memfds"],
        vm=_mapped_so_far(state, seen) if step.region else 0,
        rss=seen.resident,
        regions=len(found),
    )
    return StepSeen(counts=counts, regions=found)


def _mapped_so_far(state: State, seen: Snapshot) -> int:
    """Bytes that were mapped at a look for regions and not at the one before, of all such looks so far.

    Not the size of the process: Python, or a thread that ends, gives memory back at any time, and that would
    hide as much that the target has mapped in the place of another mapping, which is one with it then.
    """
    spans = spans_of(seen.lines)
    state.mapped += bytes_beyond(state.spans, spans)
    state.spans = spans
    return state.mapped


def _regions(state: State, step: Observe, seen: Snapshot) -> tuple[tuple[int, int], ...]:
    """(address, resident bytes) of each region of the size that is asked for, but for the client's own.

    Where a buffer was that is freed, something of the backend's may be now.
    """
    if not step.region:
        return ()
    pointers = (each.pointer for each in state.buffers.values() if each.live)
    return regions(
        seen.lines,
        step.region,
        own_inodes=state.inodes,
        # In CPython an object's id is its address.
        own_addresses=[*map(id, state.kept), *pointers],
    )


def _patient_snapshot(state: State, step: Observe) -> Snapshot:
    """The first look at which no more is open or mapped than at the case's first one, or the last one.

    Of mappings that are not shared a few more may be there, as in CTX-01: allocators have some. Nor more
    regions of the size that is asked for: at the first look, what ordinary life has freed before may still be
    there.
    """
    seen, first = snapshot(), state.first_look
    most = state.first_regions.get(step.region)
    end = time.monotonic() + _GIVEN_BACK
    while first is not None and time.monotonic() < end:
        is_more = most is not None and len(_regions(state, step, seen)) > most
        if not is_more and not any(map(gt, _held(seen), map(add, first, _SPARE))):
            break
        time.sleep(_PAUSE)
        seen = snapshot()
    return seen


def _mapped_patiently(state: State, step: Observe) -> tuple[int, ...]:
    """How often each buffer is mapped; a patient look comes again while all are more often than at first."""
    files = [_file_of(state, name) for name in step.buffers]
    end = time.monotonic() + _GIVEN_BACK
    while True:
        mappings = mappings_by_file()
        found = tuple(-1 if file is None else mappings[file] for file in files)
        first = [
            state.first_mapped.setdefault(name, now) for name, now in zip(step.buffers, found, strict=True)
        ]
        if not (step.patient and all(map(gt, found, first)) and time.monotonic() < end):
            return found
        time.sleep(_PAUSE)


def _file_of(state: State, name: str) -> tuple[int, int] | None:
    buffer = state.buffers.get(name)
    return None if buffer is None or not buffer.live else file_of(descriptor_of(state, buffer))


def _held(seen: Snapshot) -> tuple[int, int, int]:
    """Descriptors, mappings of shared memory, and all mappings."""
    return seen.fds, seen.counts()["memfds"], len(seen.lines)


def _pointer(state: State, name: str, kind: PointerKind) -> int:
    if kind == "null":
        return 0
    if kind == "unknown":
        return ctypes.addressof(_UNKNOWN)
    buffer = state.buffer(name)
    if kind == "base":
        return buffer.pointer
    return buffer.pointer + (64 if buffer.size > 64 else 1)


def _writable(address: int) -> bool:
    # The kernel writes the byte for us (mincore's answer about a page that is there), and says EFAULT where
    # we would get SIGSEGV or SIGBUS.
    here = ctypes.addressof(_UNKNOWN) & -_PAGE
    if int(libc.mincore(here, _PAGE, address)) != 0:
        return False
    ctypes.memset(address, 0, 1)
    return True


def _through_fd(state: State, buffer: Buffer) -> bytes:
    fd = descriptor_of(state, buffer)
    address = libc.mmap(None, buffer.size, libc.PROT_READ, libc.MAP_SHARED, fd, 0)
    if address in (None, libc.MAP_FAILED):
        raise Skip(f"descriptor {fd} cannot be mapped")
    try:
        if os.fstat(fd).st_size < buffer.size:
            raise Skip(f"the file behind descriptor {fd} is shorter than the buffer")
        return ctypes.string_at(address, buffer.size)
    finally:
        libc.munmap(address, buffer.size)

"""Steps on contexts and registrations: context-create, context-free, register, deregister."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import socket
from collections.abc import Iterator
from typing import Any

from pytest_qnn.isolation import libc
from pytest_qnn.isolation.host.shared_memory import shared_memory
from pytest_qnn.qnn.abi.codes import Error, MemType, low
from pytest_qnn.qnn.abi.layouts import HtpMemDescriptor, MemDescriptor
from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    FdKind,
    FreeParent,
    Register,
)
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES
from pytest_qnn.qnn.runner.binaries import configuration
from pytest_qnn.qnn.runner.buffers import CLOSED_FD, descriptor_of
from pytest_qnn.qnn.runner.client import UNTOUCHED, array_of, data_type
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.state import Buffer, Context, MemHandle, Skip, State
from pytest_qnn.qnn.trace import ArrayCounts, StepSeen

_UNION = MemDescriptor.ionInfo.offset
_FD_SETSIZE = 1024
"""Numbers of descriptors below it fit into an fd_set of select(2)."""


@handles(ContextCreate)
def context_create(state: State, step: ContextCreate) -> StepSeen:
    """QnnContext_create on the session's backend and device; ``values``: (handle,)."""
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    session = state.session
    config, kept = configuration(step.defer, step.beside)
    code, value = state.client.create("contextCreate", session.backend, session.device, config)
    del kept
    if code == 0:
        state.take_context(step.context, Context(value))
    return StepSeen(code=code, values=(value,))


@handles(ContextFree)
def context_free(state: State, step: ContextFree) -> StepSeen:
    """QnnContext_free without a profile."""
    state.session.open()
    return StepSeen(code=state.free_context(step.context))


@handles(FreeParent)
def free_parent(state: State, step: FreeParent) -> StepSeen:
    """QnnDevice_free or QnnBackend_free; where it succeeds, the contexts are taken to be gone with it."""
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    code = state.session.end(step.what)
    if code == 0:
        for context in state.contexts.values():
            context.live = False
        for handle in state.known_handles():
            handle.live = False
    return StepSeen(code=code)


@handles(Register)
def register(state: State, step: Register) -> StepSeen:
    """QnnMem_register; ``values``: the handle array after the call, full of 0x55 before it."""
    state.session.open()
    context = state.context_value(step.context)
    count = len(step.descriptors) if step.count is None else step.count
    length = max(count, len(step.descriptors), len(step.handles), 1)
    handles = array_of(ctypes.c_void_p, length)(*[UNTOUCHED] * length)
    with contextlib.ExitStack() as opened:
        described, kept = _describe(state, step.descriptors, length, opened)
        before = _bytes(described, kept)
        code = state.client.call(
            "memRegister",
            context,
            None if step.null_descriptors else described,
            count,
            None if step.null_handles else handles,
        )
        changed = _bytes(described, kept) != before
        if step.scribble:
            _scribble(described, kept)
        if step.scribble or step.keep:
            state.held.append((described, kept))
        del kept
    values = tuple(value or 0 for value in handles)
    if code == 0 and not step.null_handles:
        for name, descriptor, value in zip(step.handles, step.descriptors, values, strict=False):
            _retire(state, state.handles.get(name))
            buffer = state.buffers.get(descriptor.buffer)
            # A target may give one value for two registrations; names keep them apart for the rules.
            state.handles[name] = MemHandle(value, buffer, _offset(descriptor), context)
    return StepSeen(code=code, values=values, counts=ArrayCounts(changed))


@handles(Deregister)
def deregister(state: State, step: Deregister) -> StepSeen:
    """QnnMem_deRegister; ``values``: the handle array after the call."""
    state.session.open()
    wanted = [state.handle_value(name) for name in step.handles]
    count = len(wanted) if step.count is None else step.count
    length = max(count, len(wanted), 1)
    handles = array_of(ctypes.c_void_p, length)(*wanted)
    before = bytes(handles)
    code = state.client.call("memDeRegister", None if step.null_handles else handles, count)
    changed = bytes(handles) != before
    # Handles that are refused (8001) do not keep the valid ones of the call from being deregistered.
    if not step.null_handles and low(code) in (Error.SUCCESS, Error.MEM_ERROR_INVALID_HANDLE):
        for name in step.handles[:count]:
            if name in state.handles:
                state.handles[name].live = False
    return StepSeen(code=code, values=tuple(value or 0 for value in handles), counts=ArrayCounts(changed))


def _scribble(described: Any, kept: list[Any]) -> None:
    """Overwrite what the call was given: dimensions with 0, all else with 0xA5.

    A shape that is read again must be too small. Of rank 1 and 2, 0xA5A5A5A5 is more than any tensor has.
    """
    for each in (described, *kept):
        is_dimensions = getattr(each, "_type_", None) is ctypes.c_uint32
        ctypes.memset(ctypes.addressof(each), 0 if is_dimensions else 0xA5, ctypes.sizeof(each))


def _bytes(described: Any, kept: list[Any]) -> bytes:
    """The descriptors and all that they point to."""
    return b"".join(map(bytes, (described, *kept)))


def _retire(state: State, previous: MemHandle | None) -> None:
    if previous is not None and previous.live:
        state.retired.append(previous)


def _offset(descriptor: Descriptor) -> int:
    return descriptor.offset if descriptor.mem_type == MemType.CUSTOM else 0


def _describe(
    state: State, descriptors: tuple[Descriptor, ...], length: int, opened: contextlib.ExitStack
) -> tuple[Any, list[Any]]:
    """The C array (of ``length`` elements, the surplus zero), and what its pointers lead to."""
    array = array_of(MemDescriptor, length)()
    kept: list[Any] = []
    for slot, descriptor in zip(array, descriptors, strict=False):
        buffer = _buffer(state, descriptor.buffer)
        dimensions = array_of(ctypes.c_uint32, len(descriptor.shape))(*descriptor.shape)
        kept.append(dimensions)
        slot.memShape.numDim = len(descriptor.shape)
        slot.memShape.dimSize = None if descriptor.null == "dimensions" else dimensions
        if descriptor.shape_config is not None:
            text = ctypes.create_string_buffer(descriptor.shape_config.encode())
            kept.append(text)
            slot.memShape.shapeConfig = ctypes.addressof(text)
        slot.dataType = data_type(descriptor.dtype) if descriptor.data_type is None else descriptor.data_type
        slot.memType = descriptor.mem_type & 0xFFFFFFFF
        size = _true_size(buffer, descriptor)
        fd = _fd(state, descriptor, buffer, size, opened)
        if descriptor.mem_type == MemType.CUSTOM:
            custom = HtpMemDescriptor(type=descriptor.htp_type & 0xFFFFFFFF)
            custom.size = size if descriptor.size is None else descriptor.size
            custom.sharedBufferConfig.fd = fd
            custom.sharedBufferConfig.offset = descriptor.offset
            kept.append(custom)
            slot.customInfo = None if descriptor.null == "custom" else ctypes.addressof(custom)
        else:
            if descriptor.junk:
                ctypes.memset(ctypes.addressof(slot) + _UNION, 0xA5, ctypes.sizeof(slot) - _UNION)
            # ionInfo.fd and dmaBufInfo.fd are the same bytes.
            slot.dmaBufInfo.fd = fd
            if descriptor.mem_type == MemType.DMA_BUF and buffer is not None:
                slot.dmaBufInfo.data = _data(state, descriptor, buffer)
    return array, kept


def _data(state: State, descriptor: Descriptor, buffer: Buffer) -> int | None:
    """The pointer that a DMA_BUF descriptor carries beside its fd."""
    if descriptor.pointer == "foreign":
        other = ctypes.create_string_buffer(buffer.size)
        state.held.append(other)
        return ctypes.addressof(other)
    return buffer.pointer if descriptor.pointer == "own" else None


def _buffer(state: State, name: str) -> Buffer | None:
    return None if name in (NULL, BOGUS) else state.buffer(name)


def _true_size(buffer: Buffer | None, descriptor: Descriptor) -> int:
    if buffer is not None:
        return buffer.size
    return descriptor.offset + math.prod(descriptor.shape) * ELEMENT_BYTES[descriptor.dtype]


def _fd(
    state: State, descriptor: Descriptor, buffer: Buffer | None, size: int, opened: contextlib.ExitStack
) -> int:
    if descriptor.fd not in ("buffer", "dup"):
        return -1 if descriptor.fd == "minus-one" else opened.enter_context(_odd_fd(descriptor.fd, size))
    if buffer is None:
        return -1 if descriptor.buffer == NULL else CLOSED_FD
    number = descriptor_of(state, buffer)
    if descriptor.fd == "dup":
        with contextlib.suppress(OSError):
            number = os.dup(number)
            opened.callback(libc.close_given, number)
    return number


def _closed() -> int:
    """The number of no open descriptor, the highest that fits into an fd_set.

    The next one that is opened does not get it: a library that opens one for an earlier entry of the same
    batch would make it a descriptor of that one's memory.
    """
    highest = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _FD_SETSIZE) - 1
    return next(number for number in range(highest, -1, -1) if not os.path.lexists(f"/proc/self/fd/{number}"))


@contextlib.contextmanager
def _odd_fd(kind: FdKind, size: int) -> Iterator[int]:
    """A descriptor of something else than a mappable buffer, open while the call lasts."""
    if kind == "closed":
        yield _closed()
        return
    fds: list[int] = []
    if kind == "pipe":
        fds += os.pipe()
    elif kind == "socket":
        fds += [end.detach() for end in socket.socketpair()]
    elif kind == "file":
        # Without `tempfile`, which children would have to load for this alone.
        path = f"{os.environ.get('TMPDIR') or '/tmp'}/pytest-qnn-{os.getpid()}-{size}"
        fds.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.unlink(path)
        os.ftruncate(fds[0], size)
    elif kind == "readonly":
        whole = shared_memory("readonly", size)
        fds.append(os.open(f"/proc/self/fd/{whole}", os.O_RDONLY | os.O_CLOEXEC))
        os.close(whole)
    else:
        fds.append(os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        yield fds[0]
    finally:
        for fd in fds:
            libc.close_given(fd)

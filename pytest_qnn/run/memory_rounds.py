"""The step `Churn`: the same calls many times, with a look at the process before and after."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

from pytest_qnn.abi.qnn import HtpMemDescriptor, MemDescriptor
from pytest_qnn.abi.qnn_codes import HtpMemType, MemType
from pytest_qnn.cases.memory_probes import TENSOR, Churn
from pytest_qnn.isolation import libc
from pytest_qnn.isolation.observe import snapshot
from pytest_qnn.run.memory_buffers import descriptor_of, usable
from pytest_qnn.run.memory_state import Skip, State
from pytest_qnn.run.qnn_client import array_of, data_type
from pytest_qnn.trace import StepSeen

_CLOSED_FD = 1 << 20
_WARMING = 20
"""Rounds before the first look: what is made once is made by then."""


def churn(state: State, step: Churn) -> StepSeen:
    """The growth of the process; the first call with another code than it had to give."""
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    batch = Batch(state, step)
    once = _ONCE[step.what]
    for _ in range(_WARMING):
        found = once(state, step, batch)
        if found is not None:
            return StepSeen(code=found[1], calls=(found,))
    gc.collect()
    before, heap = snapshot(), libc.malloc_in_use()
    for number in range(step.rounds):
        found = once(state, step, batch)
        if found is not None:
            return StepSeen(code=found[1], calls=(found,), counts={"rounds": number})
    gc.collect()
    after, heap_after = snapshot(), libc.malloc_in_use()
    counts = {
        "rounds": step.rounds,
        "fds": after.fds - before.fds,
        "mappings": len(after.lines) - len(before.lines),
        "vm": after.virtual - before.virtual,
        "rss": after.resident - before.resident,
    }
    if heap is not None and heap_after is not None:
        counts["heap"] = heap_after - heap
    return StepSeen(code=batch.refusal, counts=counts)


class Batch:
    """Descriptors of tensors that lie one behind the other in a buffer, and room for their handles."""

    def __init__(self, state: State, step: Churn) -> None:
        buffer = usable(state, step.buffer)
        shared = step.mem_type == MemType.CUSTOM
        self.count = step.tensors if shared else 1
        fd = descriptor_of(state, buffer)
        self._lengths = array_of(ctypes.c_uint32, 1)(TENSOR)
        self._custom = [HtpMemDescriptor(type=HtpMemType.SHARED_BUFFER) for _ in range(self.count)]
        self.descriptors = array_of(MemDescriptor, self.count)()
        for position, (slot, custom) in enumerate(zip(self.descriptors, self._custom, strict=True)):
            slot.memShape.numDim = 1
            slot.memShape.dimSize = self._lengths
            slot.dataType = data_type("UFIXED_POINT_8")
            slot.memType = step.mem_type
            custom.size = buffer.size
            custom.sharedBufferConfig.fd = fd
            custom.sharedBufferConfig.offset = position * TENSOR
            slot.dmaBufInfo.fd = fd
            if shared:
                slot.customInfo = ctypes.addressof(custom)
            elif step.mem_type == MemType.DMA_BUF:
                slot.dmaBufInfo.data = buffer.pointer
        if step.what == "refused":
            self._spoil(shared=shared)
        self.handles = array_of(ctypes.c_void_p, self.count)()
        self.refusal = 0
        """The code of the last call that was to be refused."""

    def _spoil(self, *, shared: bool) -> None:
        """The last descriptor has a closed file."""
        if shared:
            self._custom[-1].sharedBufferConfig.fd = _CLOSED_FD
        else:
            self.descriptors[self.count - 1].dmaBufInfo.fd = _CLOSED_FD


Found = tuple[str, int]


def _register(state: State, step: Churn, batch: Batch) -> Found | None:
    context = state.context_value(step.context)
    return _call(state, "memRegister", context, batch.descriptors, batch.count, batch.handles) or _call(
        state, "memDeRegister", batch.handles, batch.count
    )


def _refused(state: State, step: Churn, batch: Batch) -> Found | None:
    context = state.context_value(step.context)
    code = state.client.call("memRegister", context, batch.descriptors, batch.count, batch.handles)
    batch.refusal = code
    return ("memRegister", code) if code == 0 else None


def _unread(state: State, step: Churn, batch: Batch) -> Found | None:
    del step
    data = next(reversed(state.binaries.values()), b"")
    if not data:
        raise Skip("there is no binary to cut in two")
    size = len(data) // 2
    held = ctypes.create_string_buffer(data[:size], size)
    out = ctypes.c_void_p()
    place = (None, ctypes.addressof(held), size, ctypes.byref(out), None)
    session = state.session
    code = state.client.call("contextCreateFromBinary", session.backend, session.device, *place)
    batch.refusal = code
    return ("contextCreateFromBinary", code) if code == 0 else None


def _context(state: State, step: Churn, batch: Batch) -> Found | None:
    del step
    session = state.session
    code, context = state.client.create("contextCreate", session.backend, session.device, None)
    if code != 0:
        return "contextCreate", code
    failed = _call(state, "memRegister", context, batch.descriptors, batch.count, batch.handles)
    ended = _call(state, "contextFree", context, None)
    return failed or ended


def _call(state: State, name: str, *arguments: Any) -> Found | None:
    code = state.client.call(name, *arguments)
    return (name, code) if code != 0 else None


_ONCE: dict[str, Callable[[State, Churn, Batch], Found | None]] = {
    "register": _register,
    "context": _context,
    "refused": _refused,
    "unread": _unread,
}
"""One round: None, or the call that gave another code than it had to."""

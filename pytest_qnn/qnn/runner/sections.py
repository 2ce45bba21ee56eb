"""Steps on sections of context binaries: update the weights, take a section, apply one.

The memory behind a handle is a buffer of the runner's own, registered for the one call.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

from pytest_qnn.qnn.abi.codes import DataType, HtpMemType, MemType
from pytest_qnn.qnn.abi.layouts import (
    ContextBuffer,
    ContextMemType,
    HtpMemDescriptor,
    MemDescriptor,
    SectionType,
)
from pytest_qnn.qnn.abi.rpcmem import DEFAULT_FLAGS, HEAP_ID_SYSTEM
from pytest_qnn.qnn.cases.case import ApplySection, GetSection, SectionMemory, UpdateWeights
from pytest_qnn.qnn.runner.buffers import data_of
from pytest_qnn.qnn.runner.client import UNTOUCHED, array_of
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.state import BOGUS_HANDLE, NeverMade, Skip, State
from pytest_qnn.qnn.trace import StepSeen, WrittenCounts

_FILL = 0xEE
_BEHIND = 64
"""Bytes behind a section's memory that must keep `_FILL`."""
_MOST = 1 << 24
"""Bytes of the largest section that is fetched."""


class _Place:
    """Memory for one section: ``size`` bytes, and `_BEHIND` more that the target must not touch."""

    def __init__(self, address: int, size: int, buffer: ContextBuffer) -> None:
        self.address = address
        self.size = size
        self.buffer = buffer
        """What the target is given."""
        ctypes.memset(address, _FILL, size + _BEHIND)

    def holds(self, size: int) -> bytes:
        """The first bytes."""
        return ctypes.string_at(self.address, min(size, self.size))

    def overrun(self, offered: int) -> int:
        """Bytes that differ from what was there before, behind the first ``offered`` ones."""
        behind = self.size + _BEHIND - offered
        return behind - ctypes.string_at(self.address + offered, behind).count(_FILL)


@handles(UpdateWeights)
def update_weights(state: State, step: UpdateWeights) -> StepSeen:
    """QnnTensor_updateGraphTensors of the weights, and where that succeeds QnnGraph_finalize.

    ``calls``, ``code``: as for `Prepare`, here and below.
    """
    state.session.open()
    graph = state.graph_value(step.graph)
    made = state.graphs.get(step.graph)
    if made is None or made.step.weights is None:
        raise Skip(f"graph {step.graph} has no weights")
    tensor = made.operator.again().inputs[made.operator.io_inputs]
    size = tensor.v1.clientBuf.dataSize
    held = ctypes.create_string_buffer(data_of(made.step.dtype, step.weights, size), size)
    tensor.v1.clientBuf.data = ctypes.addressof(held)
    listed = array_of(ctypes.c_void_p, 1)(ctypes.addressof(tensor))
    calls = [("tensorUpdateGraphTensors", state.client.call("tensorUpdateGraphTensors", graph, listed, 1))]
    if calls[0][1] == 0:
        calls.append(("graphFinalize", state.client.call("graphFinalize", graph, None, None)))
    return StepSeen(code=calls[-1][1], calls=tuple(calls))


@handles(GetSection)
def get_section(state: State, step: GetSection) -> StepSeen:
    """QnnContext_getBinarySectionSize, then QnnContext_getBinarySection into memory of that size.

    ``values``: (size that was answered, bytes written), 0x5555555555555555 where untouched; ``data``: the
    section as it lies in the memory, where the call succeeded.
    """
    state.session.open()
    context = state.context_value(step.context)
    size = ctypes.c_uint64(UNTOUCHED)
    sized = (context, state.graph_value(step.size_of or step.graph), SectionType.UPDATABLE)
    asked = (context, state.graph_value(step.graph), SectionType.UPDATABLE)
    code = state.client.call("contextGetBinarySectionSize", *sized, ctypes.byref(size))
    calls = [("contextGetBinarySectionSize", code)]
    if code or not 0 < size.value <= _MOST:
        return StepSeen(code=code, calls=tuple(calls), values=(size.value, UNTOUCHED))
    written = ctypes.c_uint64(UNTOUCHED)
    with _place(state, step, size.value) as place:
        given = (ctypes.addressof(place.buffer), ctypes.byref(written), None, None)
        code = state.client.call("contextGetBinarySection", *asked, *given)
        offered = {"raw": size.value, "handle": size.value, "short": size.value - 1}.get(step.memory, 0)
        overrun = place.overrun(offered)
        data = place.holds(written.value) if code == 0 else b""
    calls.append(("contextGetBinarySection", code))
    if code == 0:
        state.sections[step.section] = data
    return StepSeen(
        code=code,
        calls=tuple(calls),
        values=(size.value, written.value),
        data=(data,) if code == 0 else (),
        counts=WrittenCounts(overrun),
    )


@handles(ApplySection)
def apply_section(state: State, step: ApplySection) -> StepSeen:
    """QnnContext_applyBinarySection of bytes that a `GetSection` gave."""
    state.session.open()
    owners = state.context_value(step.context), state.graph_value(step.graph)
    data = state.sections.get(step.section)
    if not data:
        raise NeverMade(f"section {step.section} was never made")
    with _place(state, step, len(data)) as place:
        ctypes.memmove(place.address, data, len(data))
        given = (SectionType.UPDATABLE, ctypes.addressof(place.buffer), None, None)
        code = state.client.call("contextApplyBinarySection", *owners, *given)
    return StepSeen(code=code, calls=(("contextApplyBinarySection", code),))


@contextlib.contextmanager
def _place(state: State, step: GetSection | ApplySection, size: int) -> Iterator[_Place]:
    """Memory as the step wants it.

    Raises:
        Skip: there is none, or it cannot be registered.
    """
    if step.memory == "raw":
        room = ctypes.create_string_buffer(size + _BEHIND)
        yield _Place(ctypes.addressof(room), size, raw_buffer(ctypes.addressof(room), size))
        return
    address = state.rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, size + _BEHIND)
    if not address:
        raise Skip("rpcmem_alloc gave NULL")
    try:
        with _handle(state, step, address, size) as value:
            # Whoever does not look at memType finds a plausible size behind what it takes for a pointer.
            buffer = raw_buffer(0, size)
            buffer.v1.memType = ContextMemType.MEMHANDLE
            buffer.v1.memHandle = value
            yield _Place(address, size, buffer)
    finally:
        state.rpcmem.free(address)


def raw_buffer(address: int, size: int) -> ContextBuffer:
    """What a call on sections is given for raw memory."""
    buffer = ContextBuffer(version=1)
    buffer.v1.memType = ContextMemType.RAW
    buffer.v1.binaryBuf.data, buffer.v1.binaryBuf.dataSize = address, size
    return buffer


@contextlib.contextmanager
def _handle(state: State, step: GetSection | ApplySection, address: int, size: int) -> Iterator[int | None]:
    """The value of a memory handle of the wanted kind."""
    fixed: dict[SectionMemory, int | None] = {"null": None, "unknown": BOGUS_HANDLE}
    if step.memory in fixed:
        yield fixed[step.memory]
        return
    handles = _register(state, step, address, size - (step.memory == "short"), size + _BEHIND)
    live = True
    if step.memory == "dead":
        live = state.client.call("memDeRegister", handles, 1) != 0
        if live:
            raise Skip("memDeRegister of a section's memory failed")
    try:
        yield handles[0]
    finally:
        if live:
            state.client.call("memDeRegister", handles, 1)


def _register(
    state: State, step: GetSection | ApplySection, address: int, size: int, whole: int
) -> ctypes.Array[ctypes.c_void_p]:
    """Register the first ``size`` bytes of a buffer of ``whole`` bytes as a tensor of bytes."""
    fd = state.rpcmem.to_fd(address)
    lengths = (ctypes.c_uint32 * 1)(size)
    described = MemDescriptor(dataType=DataType.UINT_8, memType=step.mem_type)
    described.memShape.numDim, described.memShape.dimSize = 1, lengths
    described.dmaBufInfo.fd = fd
    custom = HtpMemDescriptor(type=HtpMemType.SHARED_BUFFER, size=whole)
    custom.sharedBufferConfig.fd = fd
    if step.mem_type == MemType.DMA_BUF:
        described.dmaBufInfo.data = address
    elif step.mem_type == MemType.CUSTOM:
        described.customInfo = ctypes.addressof(custom)
    handles: ctypes.Array[ctypes.c_void_p] = array_of(ctypes.c_void_p, 1)()
    context = state.context_value(step.context)
    code = state.client.call("memRegister", context, ctypes.byref(described), 1, handles)
    if code:
        raise Skip(f"memRegister of a section's memory gave {code}")
    return handles

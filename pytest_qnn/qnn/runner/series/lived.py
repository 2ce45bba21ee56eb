"""The steps `Lived` and `Logged`: ordinary life before what a case is about.

``calls`` of a `Lived`: the first call with another answer than it had to give ("wrong output": none had),
and its code; ``counts``: `LivedCounts`.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

from pytest_qnn.core.time_limit import TimeLimit
from pytest_qnn.qnn.abi.codes import HtpMemType, LogLevel, MemType
from pytest_qnn.qnn.abi.layouts import HtpMemDescriptor, MemDescriptor
from pytest_qnn.qnn.abi.rpcmem import DEFAULT_FLAGS, HEAP_ID_SYSTEM
from pytest_qnn.qnn.cases.case import TENSOR, Lived, Logged, Parallel
from pytest_qnn.qnn.runner.buffers import CLOSED_FD
from pytest_qnn.qnn.runner.client import array_of, data_type
from pytest_qnn.qnn.runner.handlers import handles
from pytest_qnn.qnn.runner.series.logs import Listener
from pytest_qnn.qnn.runner.series.threads import Failed, call, create, of_session
from pytest_qnn.qnn.runner.state import Buffer, Skip, State
from pytest_qnn.qnn.trace import LivedCounts, StepSeen

_ENOUGH = 0.5
"""Seconds of processor time after which no further round begins."""
_SIZES = (64, 4096, 8192 + 64, 65536, 100)
"""Of a buffer, in bytes, in turns: the next one often takes the address and the number of the last."""

Round = Callable[[int], None]
"""One round, by its number. Raises Failed."""


@handles(Logged)
def logged(state: State, step: Logged) -> StepSeen:
    """Nothing is called: the session opens with the log when it is needed."""
    if state.session.opened:
        raise Skip("the session is open already")
    if step.beside:
        state.session.accompany((Listener(int(LogLevel.DEBUG), patient=False).address, int(LogLevel.DEBUG)))
    if step.log == "none":
        state.session.listen(None, profile=step.profile)
        return StepSeen()
    address = Listener(step.level, patient=False).address if step.log == "callback" else None
    state.session.listen((address, step.level), profile=step.profile)
    return StepSeen()


@handles(Lived)
def lived(state: State, step: Lived) -> StepSeen:
    """Round after round, until one has a surprise."""
    if step.what != "buffers" and not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    done = 0
    limit = TimeLimit(_ENOUGH)
    try:
        with _LIVES[step.what](state, step) as once:
            while done < step.rounds and not limit.is_over:
                once(done)
                done += 1
    except Failed as failed:
        found, wrong = failed.found, failed.wrong
        return StepSeen(code=found[1], calls=(found,), counts=LivedCounts(done), wrong=wrong)
    return StepSeen(code=0, counts=LivedCounts(done))


class _Memory:
    """Buffers, one after the other, each with a descriptor of one tensor that lies at its beginning."""

    def __init__(self, state: State, step: Lived) -> None:
        self.state = state
        self.step = step
        self._length = array_of(ctypes.c_uint32, 1)(TENSOR)
        self.custom = HtpMemDescriptor(type=HtpMemType.SHARED_BUFFER)
        self.described = array_of(MemDescriptor, 1)()
        self.handle = array_of(ctypes.c_void_p, 1)()
        slot = self.described[0]
        slot.memShape.numDim, slot.memShape.dimSize = 1, self._length
        slot.dataType, slot.memType = data_type("UFIXED_POINT_8"), step.mem_type

    def alloc(self, number: int) -> Buffer:
        """The next buffer; its descriptor is that of the array from now on."""
        size = _SIZES[number % len(_SIZES)]
        pointer = self.state.rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, size)
        if not pointer:
            raise Failed("rpcmem_alloc", 0)
        slot, fd = self.described[0], self.state.rpcmem.to_fd(pointer)
        if self.step.mem_type == MemType.CUSTOM:
            self.custom.size, self.custom.sharedBufferConfig.fd = size, fd
            slot.customInfo = ctypes.addressof(self.custom)
        else:
            slot.dmaBufInfo.fd = fd
            slot.dmaBufInfo.data = pointer if self.step.mem_type == MemType.DMA_BUF else None
        return Buffer(pointer, size, usable=True, fd=fd)

    def spoil(self) -> None:
        """The descriptor has a closed file."""
        self.custom.sharedBufferConfig.fd = CLOSED_FD
        if self.step.mem_type != MemType.CUSTOM:
            self.described[0].dmaBufInfo.fd = CLOSED_FD

    def free(self, buffer: Buffer) -> None:
        """Free a buffer."""
        self.state.rpcmem.free(buffer.pointer)

    def keeps(self, number: int) -> bool:
        """What this round makes stays."""
        return number >= self.step.rounds - self.step.kept

    def register(self, context: int | None) -> int:
        """Register what was allocated last; gives the code."""
        if not self.step.mem_type:
            return 0
        return self.state.client.call("memRegister", context, self.described, 1, self.handle)

    def refused(self, context: int | None) -> None:
        """The same where it must be refused: what is taken nevertheless is another rule's, and given back."""
        if self.register(context) == 0:
            self.state.client.call("memDeRegister", self.handle, 1)

    def deregister(self) -> None:
        """Deregister what was registered last."""
        if self.step.mem_type:
            call(self.state, "memDeRegister", self.handle, 1)


def _demand(name: str, code: int) -> None:
    if code:
        raise Failed(name, code)


@contextlib.contextmanager
def _buffers(state: State, step: Lived) -> Iterator[Round]:
    memory = _Memory(state, step)

    def once(number: int) -> None:
        buffer = memory.alloc(number)
        if memory.keeps(number):
            state.retired.append(buffer)
        else:
            memory.free(buffer)

    yield once


@contextlib.contextmanager
def _registrations(state: State, step: Lived) -> Iterator[Round]:
    memory, context = _Memory(state, step), state.context_value(step.context)

    def once(number: int) -> None:
        buffer = memory.alloc(number)
        state.retired.append(buffer)
        _demand("memRegister", memory.register(context))
        memory.deregister()
        memory.free(state.retired.pop())  # type: ignore[arg-type] # the buffer of this round

    yield once


@contextlib.contextmanager
def _contexts(state: State, step: Lived) -> Iterator[Round]:
    memory, session = _Memory(state, step), state.session
    buffer = memory.alloc(0)
    state.retired.append(buffer)

    def once(number: int) -> None:
        context = create(state, "contextCreate", session.backend, session.device, None)
        _demand("memRegister", memory.register(context))
        if number % 2 == 0:
            memory.deregister()
        call(state, "contextFree", context, None)

    yield once


@contextlib.contextmanager
def _refused(state: State, step: Lived) -> Iterator[Round]:
    memory, context = _Memory(state, step), state.context_value(step.context)
    nothing = array_of(ctypes.c_void_p, 1)()

    def once(number: int) -> None:
        state.client.call("graphExecute", None, None, 0, None, 0, None, None)
        buffer = memory.alloc(number)
        state.retired.append(buffer)
        if step.mem_type:
            _demand("memRegister", memory.register(context))
            handle = memory.handle[0]
            memory.refused(context)
            state.client.call("memDeRegister", nothing, 1)
            memory.handle[0] = handle
            memory.deregister()
            memory.spoil()
            memory.refused(context)
        memory.free(state.retired.pop())  # type: ignore[arg-type] # the buffer of this round

    yield once


@contextlib.contextmanager
def _turns(state: State, step: Lived) -> Iterator[Round]:
    work = Parallel("contexts", mem_type=step.mem_type, op=step.op, dtype=step.dtype)
    clients = [of_session(state, work, number) for number in range(2)]
    buffers = [
        [state.rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, client.nbytes) for _ in client.operator.io]
        for client in clients
    ]

    def once(number: int) -> None:
        for client, own in zip(clients, buffers, strict=True):
            client.once(own, number)

    try:
        yield once
    finally:
        for client in clients:
            state.client.call("contextFree", client.context, None)
        for own in buffers:
            for buffer in own:
                state.rpcmem.free(buffer)


_LIVES: dict[str, Callable[[State, Lived], contextlib.AbstractContextManager[Round]]] = {
    "buffers": _buffers,
    "registrations": _registrations,
    "contexts": _contexts,
    "refused": _refused,
    "turns": _turns,
}

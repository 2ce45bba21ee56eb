"""The step `Parallel`: threads that call the target at the same time, started together and paced."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping

from pytest_qnn.qnn.abi.codes import HtpMemType, MemType, TensorMemType
from pytest_qnn.qnn.abi.layouts import HtpMemDescriptor, MemDescriptor
from pytest_qnn.qnn.abi.rpcmem import DEFAULT_FLAGS, HEAP_ID_SYSTEM
from pytest_qnn.qnn.cases.case import Parallel, Prepare
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES
from pytest_qnn.qnn.model.operators import beyond, expected
from pytest_qnn.qnn.runner.buffers import data_of
from pytest_qnn.qnn.runner.client import NullFunction, Operator, array_of, data_type
from pytest_qnn.qnn.runner.graphs import bind_raw, compose, operator_of
from pytest_qnn.qnn.runner.plain import carry_out
from pytest_qnn.qnn.runner.state import Buffer, Skip, State
from pytest_qnn.qnn.trace import LogCounts, PlainRun, StepSeen, ThreadCounts, WrongBytes

Work = Callable[[], None]
"""What one thread does."""


class Failed(Exception):  # noqa: N818 - a finding, not an error of ours
    """A call that had to succeed did not; or the output was wrong (code 0)."""

    def __init__(self, call: str, code: int, wrong: WrongBytes | None = None) -> None:
        super().__init__(call, code)
        self.found = (call, code)
        self.wrong = wrong


def in_threads(works: list[Work]) -> list[Failed]:
    """Carry out each in a thread of its own, all at once: what went wrong, in the order in which it did.

    Raises:
        NullFunction: a thread needed a function that the table does not have.
    """
    found: list[Failed] = []
    missing: list[NullFunction] = []
    gate = threading.Barrier(len(works))
    threads = [
        threading.Thread(target=_run, args=(work, gate, found, missing), daemon=True) for work in works
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if missing:
        raise missing[0]
    return found


def _run(work: Work, gate: threading.Barrier, found: list[Failed], missing: list[NullFunction]) -> None:
    gate.wait()
    try:
        work()
    except Failed as failed:
        found.append(failed)
    except NullFunction as error:
        missing.append(error)


def call(state: State, name: str, *arguments: object) -> None:
    """Raise Failed unless the call succeeds."""
    code = state.client.call(name, *arguments)
    if code:
        raise Failed(name, code)


def create(state: State, name: str, *arguments: int | None) -> int:
    """The handle that the call gives. Raises Failed unless it succeeds."""
    code, value = state.client.create(name, *arguments)
    if code:
        raise Failed(name, code)
    return value


class Pace:
    """Lets threads begin each round together, so that every round is a race and not the first alone."""

    def __init__(self, threads: int, begins: Callable[[], None]) -> None:
        """``begins`` is called in each thread, before it waits for the others."""
        self._gate = threading.Barrier(threads)
        self._begins = begins

    def together(self) -> None:
        """Wait for the others, unless one of them has failed."""
        self._begins()
        with contextlib.suppress(threading.BrokenBarrierError):
            self._gate.wait()

    def leave(self) -> None:
        """Nobody waits for anybody any more."""
        self._gate.abort()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """What fails here keeps nobody waiting."""
        try:
            yield
        except BaseException:
            self._gate.abort()
            raise


def seen_of(found: list[Failed], counts: ThreadCounts | LogCounts) -> StepSeen:
    """The calls that went wrong, the first of them as the code, and the first wrong output."""
    return StepSeen(
        code=found[0].found[1] if found else 0,
        calls=tuple(sorted(failed.found for failed in found)),
        counts=counts,
        wrong=next((failed.wrong for failed in found if failed.wrong is not None), None),
    )


SHAPE = (1, 4, 8, 8)
_LONG = (1, 16, 64, 64)
"""Of what is ended while it executes: so many elements that the time is spent in the execute, and not in our
own code between two of them."""
_RACES = 10_000
"""Executes after which the thread of a race gives up."""
_EXECUTES = 200
"""Executes while a handle is deregistered, if all of them succeed."""


def parallel(state: State, step: Parallel) -> StepSeen:
    """``calls``: the call that failed in each thread ("wrong output": none did), and its code.

    Of a race: the execute that ended it.
    """
    if step.what != "rpcmem" and not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    works, contexts = _WORKS[step.what](state, step)
    try:
        found = in_threads(works)
    finally:
        for context in contexts:
            state.client.call("contextFree", context, None)
    return seen_of(found, ThreadCounts(len(works), step.rounds))


Works = tuple[list[Work], list[int]]
"""What each thread does, and the contexts to free when all have ended."""


def _backends(state: State, step: Parallel) -> Works:
    pace = Pace(step.threads, state.round_begins)

    def work() -> None:
        with pace.kept():
            for _ in range(step.rounds):
                pace.together()
                backend = create(state, "backendCreate", None, None)
                # Nobody frees before everybody has one: a value given out twice is then freed twice.
                pace.together()
                call(state, "backendFree", backend)

    return [work] * step.threads, []


class Client:
    """A context with a graph and a buffer for each of its tensors: what one thread works on."""

    def __init__(
        self,
        state: State,
        step: Parallel,
        number: int,
        prepared: Prepare,
        backend: int | None,
        device: int | None,
    ) -> None:
        """``prepared``: the graph, in whatever context. Raises Skip where something of it cannot be made."""
        self.state = state
        self.prepared = prepared
        self.step = step
        code, self.context = state.client.create("contextCreate", backend, device, None)
        if code:
            raise Skip(f"contextCreate gave {code}")
        self.operator: Operator = operator_of(prepared)
        self.graph, calls, _ = compose(state, self.context, prepared, self.operator)
        if calls[-1][1]:
            raise Skip(f"{calls[-1][0]} gave {calls[-1][1]}")
        self.nbytes = bytes_of(prepared)
        self.number = number

    def work(self, pace: Pace) -> None:
        """Register, execute, compare, deregister; each round begins as the rounds of the other threads do."""
        alloc = self.state.rpcmem.alloc
        buffers = [alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, self.nbytes) for _ in self.operator.io]
        try:
            with pace.kept():
                for turn in range(self.step.rounds):
                    pace.together()
                    self.once(buffers, turn)
        finally:
            for buffer in buffers:
                self.state.rpcmem.free(buffer)

    def once(self, buffers: list[int], turn: int) -> None:
        """One round: the contents of the inputs depend on it. Raises Failed."""
        inputs = [
            data_of(self.step.dtype, 64 * self.number + 8 * turn + position, self.nbytes)
            for position in range(self.operator.io_inputs)
        ]
        for buffer, data in zip(buffers, inputs, strict=False):
            ctypes.memmove(buffer, data, self.nbytes)
        count = len(buffers)
        described, kept = descriptors_of(self.state, self.step, buffers, self.prepared)
        handles = array_of(ctypes.c_void_p, count)()
        call(self.state, "memRegister", self.context, described, count, handles)
        self.bind(handles)
        self.execute()
        seen = ctypes.string_at(buffers[-1], self.nbytes)
        call(self.state, "memDeRegister", handles, count)
        del kept
        demand_right(self.state, self.prepared, tuple(inputs), seen, client=self.number, turn=turn)

    def bind(self, handles: ctypes.Array[ctypes.c_void_p]) -> None:
        """Give each tensor its memory handle."""
        for tensor, handle in zip(self.operator.io, handles, strict=True):
            tensor.v1.memType = TensorMemType.MEMHANDLE
            tensor.v1.clientBuf.dataSize = 0
            tensor.v1.memHandle = handle

    def execute(self) -> None:
        """Execute once. Raises Failed."""
        operator = self.operator
        given = (operator.inputs, operator.io_inputs, operator.outputs, 1)
        call(self.state, "graphExecute", self.graph, *given, None, None)


def plain(state: State, prepared: Prepare, inputs: tuple[bytes, ...]) -> bytes:
    """What the target computes from these inputs in raw memory and another context."""
    run = PlainRun(op=prepared.op, dtype=prepared.dtype, shape=prepared.shape, inputs=inputs)
    return carry_out(state, run)


def demand_right(
    state: State,
    prepared: Prepare,
    inputs: tuple[bytes, ...],
    seen: bytes,
    *,
    client: int,
    turn: int | None = None,
) -> None:
    """Raise Failed unless a graph's output is of these inputs.

    The arithmetic is EXE-21's: other bytes than these inputs' lie far outside its bounds.
    """
    if not beyond(prepared.op, prepared.dtype, seen, *inputs):
        return
    wanted = plain(state, prepared, inputs)
    if seen != wanted:
        wanted = wanted or expected(prepared.op, prepared.dtype, *inputs)
        raise Failed("wrong output", 0, WrongBytes(client, wanted, seen, turn))


def of_session(state: State, step: Parallel, number: int, shape: tuple[int, ...] = SHAPE) -> Client:
    """A client whose context is of the session's backend and device."""
    prepared = Prepare(f"thread{number}", "", step.op, step.dtype, shape)
    return Client(state, step, number, prepared, state.session.backend, state.session.device)


def bytes_of(prepared: Prepare) -> int:
    """Bytes of each tensor of the graph."""
    return math.prod(prepared.shape) * ELEMENT_BYTES[prepared.dtype]


def descriptors_of(
    state: State,
    step: Parallel,
    buffers: list[int],
    prepared: Prepare,
    *,
    fd: int | None = None,
    sizes: Mapping[int, int] | None = None,
) -> tuple[ctypes.Array[MemDescriptor], list[object]]:
    """A descriptor of the step's memory type for each buffer, and what the descriptors lead to: keep it.

    Args:
        state: with rpcmem, which knows the buffers.
        step: of which memory type they are.
        buffers: their addresses.
        prepared: the graph whose tensors they hold.
        fd: in the place of each buffer's.
        sizes: bytes of those buffers that are no tensor of this graph long: a shared buffer has one size, in
            whatever registration (SHB-03).
    """
    array, shape, size = array_of(MemDescriptor, len(buffers))(), prepared.shape, bytes_of(prepared)
    kept: list[object] = []
    for slot, buffer in zip(array, buffers, strict=True):
        known = state.rpcmem.to_fd(buffer) if fd is None else fd
        # Of its own: what a backend writes there (REG-19) is no matter of the next descriptor.
        lengths = (ctypes.c_uint32 * len(shape))(*shape)
        kept.append(lengths)
        slot.memShape.numDim, slot.memShape.dimSize = len(shape), lengths
        slot.dataType, slot.memType = data_type(step.dtype), step.mem_type
        slot.dmaBufInfo.fd = known
        if step.mem_type == MemType.DMA_BUF:
            slot.dmaBufInfo.data = buffer
        elif step.mem_type == MemType.CUSTOM:
            whole = (sizes or {}).get(buffer, size)
            custom = HtpMemDescriptor(type=HtpMemType.SHARED_BUFFER, size=whole)
            custom.sharedBufferConfig.fd = known
            kept.append(custom)
            slot.customInfo = ctypes.addressof(custom)
    return array, kept


def _contexts(state: State, step: Parallel) -> Works:
    clients = [of_session(state, step, number) for number in range(step.threads)]
    pace = Pace(len(clients), state.round_begins)
    return [functools.partial(client.work, pace) for client in clients], [
        client.context for client in clients
    ]


def _race(state: State, step: Parallel) -> Works:
    """One thread executes until that fails, the other frees the context."""
    client = of_session(state, step, 0, _LONG)
    rooms = bind_raw(client.operator, client.nbytes)
    executed = threading.Event()

    def execute() -> None:
        try:
            for _ in range(_RACES):
                client.execute()
                executed.set()
        finally:
            executed.set()
            del rooms[:]
        raise Failed("graphExecute", 0)

    def free() -> None:
        executed.wait()
        call(state, "contextFree", client.context, None)

    return [execute, free], []


def _deregister(state: State, step: Parallel) -> Works:
    """One thread executes with handles until that fails, the other deregisters the output's handle."""
    client = of_session(state, step, 0, _LONG)
    buffers = [state.rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, client.nbytes) for _ in client.operator.io]
    state.retired += [Buffer(buffer, client.nbytes, usable=True) for buffer in buffers]
    described, kept = descriptors_of(state, step, buffers, client.prepared)
    handles = array_of(ctypes.c_void_p, len(buffers))()
    code = state.client.call("memRegister", client.context, described, len(buffers), handles)
    if code:
        state.client.call("contextFree", client.context, None)
        raise Skip(f"memRegister gave {code}")
    client.bind(handles)
    executed = threading.Event()
    live = list(handles)

    def execute() -> None:
        try:
            for _ in range(_EXECUTES):
                client.execute()
                executed.set()
        finally:
            executed.set()
            del kept[:]

    def deregister() -> None:
        executed.wait()
        call(state, "memDeRegister", array_of(ctypes.c_void_p, 1)(live[-1]), 1)

    return [execute, deregister], [client.context]


def _rpcmem(state: State, step: Parallel) -> Works:
    """Each thread uses memory of its own, and sees its own bytes through its own descriptor."""

    def work(number: int) -> None:
        for turn in range(step.rounds):
            size = 64 + 4096 * (turn % 3)
            pointer = state.rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, size)
            if not pointer:
                raise Failed("rpcmem_alloc gave NULL", turn)
            ctypes.memset(pointer, number + 1, size)
            fd = state.rpcmem.to_fd(pointer)
            try:
                same = fd >= 0 and os.pread(fd, size, 0) == bytes([number + 1]) * size
            except OSError:
                same = False
            if not same:
                raise Failed("rpcmem_to_fd gave a descriptor of other memory", turn)
            state.rpcmem.free(pointer)

    return [functools.partial(work, number) for number in range(step.threads)], []


_WORKS: dict[str, Callable[[State, Parallel], Works]] = {
    "backends": _backends,
    "contexts": _contexts,
    "race": _race,
    "deregister": _deregister,
    "rpcmem": _rpcmem,
}
"""What each thread does; made before the threads start."""

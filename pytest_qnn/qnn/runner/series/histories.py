"""The step `Parallel` of kind ``histories``: each thread makes calls of its own, on a context of its own.

Contexts of different threads have nothing in common that a call could change. So whatever the order in which
the calls of all threads take effect, each answers as it does without other threads, which is found out first:
a history of threads is linearisable if and only if every call in it does.

In what is called with ``own``, backends have nothing in common either (QnnBackend.h: QnnBackend_create is
re-entrant and thread-safe).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from pytest_qnn.core.time_limit import TimeLimit
from pytest_qnn.isolation import libc
from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.host import call_threads
from pytest_qnn.isolation.host.refusals import Lacking
from pytest_qnn.qnn.abi.codes import TensorMemType, low
from pytest_qnn.qnn.abi.layouts import OpConfig
from pytest_qnn.qnn.abi.rpcmem import DEFAULT_FLAGS, HEAP_ID_SYSTEM
from pytest_qnn.qnn.cases.case import Parallel, Prepare, ThreadCall
from pytest_qnn.qnn.runner.buffers import data_of
from pytest_qnn.qnn.runner.client import Operator, array_of
from pytest_qnn.qnn.runner.graphs import bind_raw, operator_of
from pytest_qnn.qnn.runner.series.threads import (
    SHAPE,
    Client,
    Failed,
    Pace,
    bytes_of,
    create,
    demand_right,
    descriptors_of,
    in_threads,
    seen_of,
)
from pytest_qnn.qnn.runner.state import Skip, State
from pytest_qnn.qnn.trace import StepSeen, ThreadCounts

_SECONDS = 0.03
"""In which threads of machine code begin rounds."""
_PYTHON_SECONDS = 0.1
"""The same of threads of Python's, in processor time."""
_SWITCH = 1e-5
"""Seconds after which a thread of Python's gives its lock up, if another one waits for it: a reference in
Python has no other threads."""
_SHAPES: Final = (SHAPE, (1, 8, 4, 4), SHAPE, (1, 2, 8, 2))
"""Of the threads' tensors, by number: what of the next thread is taken in the place of one's own differs, and
of three threads two ask for the same. None has more elements than the first."""
_COMPOSED: Final = (None, (1, 4, 2, 2))
"""Shapes of the graphs that are composed in a round; None: the thread's own."""
_NO_FD = -1
TWO = "one handle for two objects"
"""What goes wrong where a call gives a handle that another thread has."""
_CLEARED = 0xA5
"""What is in an output before an execute."""
_ID_BYTES = 4


class In(NamedTuple):
    """An argument: the handle that is in the variable when the call is made."""

    variable: ctypes.c_void_p


class _Call:
    """A call of the table."""

    def __init__(self, name: str, *arguments: Any, refused: bool = False) -> None:
        """``arguments``: numbers, None, text, `In`; all else is passed by address, an `OpConfig` by value."""
        self.name, self.arguments = name, arguments
        self.refused = refused
        self.code = 0
        """What it answers: with ``refused``, once that is known, what it answers without other threads."""


class _Copy(NamedTuple):
    to: int
    source: int
    size: int


class _Output:
    """The output of an execute is compared with what came out without other threads."""

    def __init__(self, address: int, size: int, inputs: tuple[bytes, ...], made: Prepare) -> None:
        """``made``: the graph that was executed."""
        self.address, self.size, self.inputs, self.made = address, size, inputs, made
        self.wanted = ctypes.create_string_buffer(size)
        self.other = ctypes.create_string_buffer(size)
        """What came out otherwise."""


class _Published(NamedTuple):
    """New handles are shown to the other threads, and must be none that one of them has."""

    source: int
    number: int
    place: int
    first: int
    total: int


class _Meet(NamedTuple):
    """Threads wait for one another."""


_Action = _Call | _Copy | _Output | _Published | _Meet
_Kind = Literal["backend", "context", "graph", "mem"]
_KINDS: Final[tuple[_Kind, ...]] = ("backend", "context", "graph", "mem")
"""Handles of two kinds may have one value."""
_PLACES: Final = 8
"""Handles of one kind that a thread has at most."""


class Places:
    """Where threads show the handles that they have."""

    def __init__(self, threads: int) -> None:
        self._count = threads * _PLACES
        self._arrays = {kind: array_of(ctypes.c_uint64, self._count)() for kind in _KINDS}

    def show(self, kind: _Kind, thread: int, at: int, source: int, count: int) -> _Published:
        """Show so many handles from the thread's place ``at`` on."""
        first = ctypes.addressof(self._arrays[kind])
        return _Published(source, count, first + 8 * (_PLACES * thread + at), first, self._count)


def _shared_bytes(step: Parallel) -> int:
    """Of the memory that all threads use: enough for the largest of their tensors."""
    return bytes_of(Prepare("", "", dtype=step.dtype, shape=SHAPE))


class Thread:
    """What one thread works on, and what it does in each round."""

    def __init__(self, state: State, step: Parallel, number: int, shared: int, places: Places) -> None:
        """``shared``: memory that all threads use for the first tensor; 0: there is none.

        Raises:
            Skip: something of it cannot be made, with the reason.
        """
        self.state, self.step, self.number = state, step, number
        self._places = places
        self.calls = step.calls[number]
        self._backend = self._own_backend() if step.own else 0
        session = state.session
        backend, device = (self._backend, None) if step.own else (session.backend, session.device)
        op = step.ops[number] if number < len(step.ops) else step.op
        self._prepared = Prepare(f"thread{number}", "", op, step.dtype, _SHAPES[number % len(_SHAPES)])
        try:
            self.client = Client(state, step, number, self._prepared, backend, device)
        except Skip:
            self._free_backend()
            raise
        self._shared = shared
        self._size = bytes_of(self._prepared)
        self._blocks: list[int] = []
        self._kept: list[Any] = []
        self._executes = 0
        self._composed = 0
        """Graphs in the context that was created in this round."""
        self._made_backend, self._made_context = ctypes.c_void_p(), ctypes.c_void_p()
        self._there: set[ThreadCall] = set()
        """While a round is planned: what was called, and nothing has ended yet that it made."""
        self.actions: list[_Action] = []

    def _own_backend(self) -> int:
        try:
            return create(self.state, "backendCreate", None, None)
        except Failed as failed:
            raise Skip(f"one more {failed.found[0]} gave {failed.found[1]}") from None

    def _free_backend(self) -> None:
        if self._backend:
            self.state.client.call("backendFree", self._backend)

    def plan(self) -> None:
        """Allocate memory, and list what a round does: at its end nothing is there that was made in it."""
        self._memory()
        # Threads that begin together seldom use or end something at once: in the first call one waits for the
        # other, and is later from then on. So they wait for each other behind that call, and before the end.
        for position, each in enumerate(self.calls):
            self.actions += _MAKES[each](self)
            self.actions += [_Meet()] if not position else []
        self.actions.append(_Meet())
        for make in (Thread._deregister, Thread._free_context, Thread._free_made_backend):
            self.actions += make(self)

    def _memory(self) -> None:
        state, step, operator = self.state, self.step, self.client.operator
        self._raw = bind_raw(operator, self._size)
        self._bound = operator.again()
        count = len(operator.io)
        self._handles = array_of(ctypes.c_void_p, count)()
        self._nothing = array_of(ctypes.c_void_p, count)()
        if not step.mem_type:
            return
        first = [self._shared] if self._shared else []
        alloc = state.rpcmem.alloc
        self._blocks = [alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, self._size) for _ in range(count - len(first))]
        if not all(self._blocks):
            raise Skip("rpcmem_alloc gave NULL")
        self._memories = [*first, *self._blocks]
        sizes = {self._shared: _shared_bytes(step)}
        self._described, kept = descriptors_of(state, step, self._memories, self._prepared, sizes=sizes)
        self._wrong, kept_too = descriptors_of(state, step, self._memories[:1], self._prepared, fd=_NO_FD)
        self._kept += [kept, kept_too]
        for tensor in self._bound.io:
            tensor.v1.memType = TensorMemType.MEMHANDLE
            tensor.v1.clientBuf.dataSize = 0

    # What the calls of a round are

    def _register(self) -> Iterator[_Action]:
        if "memRegister" in self._there or not self.step.mem_type:
            return
        self._there.add("memRegister")
        count = len(self._handles)
        yield _Copy(ctypes.addressof(self._handles), ctypes.addressof(self._nothing), 8 * count)
        yield _Call("memRegister", self.client.context, self._described, count, self._handles)
        yield self._show("mem", self._handles, count)
        for position, tensor in enumerate(self._bound.io):
            at = ctypes.addressof(tensor.v1) + type(tensor.v1).memHandle.offset
            yield _Copy(at, ctypes.addressof(self._handles) + 8 * position, 8)

    def _deregister(self) -> Iterator[_Action]:
        if "memRegister" in self._there:
            self._there.remove("memRegister")
            yield self._hide("mem", len(self._handles))
            yield _Call("memDeRegister", self._handles, len(self._handles))

    def _refused(self) -> Iterator[_Action]:
        if self.step.mem_type:
            handle = array_of(ctypes.c_void_p, 1)()
            yield _Call("memRegister", self.client.context, self._wrong, 1, handle, refused=True)
        if "graphExecute" in self.calls:
            wrong = self.client.operator.again()
            self._kept += [wrong, bind_raw(wrong, self._size)]
            without = wrong.io[0].v1
            without.memType, without.clientBuf.dataSize = TensorMemType.MEMHANDLE, 0
            without.memHandle = None
            given = (wrong.inputs, wrong.io_inputs, wrong.outputs, 1)
            yield _Call("graphExecute", self.client.graph, *given, None, None, refused=True)

    def _execute(self) -> Iterator[_Action]:
        if "memRegister" in self._there:
            yield from self._executed(self.client.graph, self._bound, self._memories, self._prepared)
        else:
            rooms = [ctypes.addressof(room) for room in self._raw]
            yield from self._executed(self.client.graph, self.client.operator, rooms, self._prepared)

    def _executed(
        self, graph: int | In, operator: Operator, addresses: Sequence[int], made: Prepare
    ) -> Iterator[_Action]:
        """Fill the inputs, clear the output, execute, look at the output."""
        *sources, output = addresses
        size = bytes_of(made)
        seeds = [64 * self.number + 8 * self._executes + place for place in range(len(sources))]
        self._executes += 1
        inputs = []
        for address, seed in zip(sources, seeds, strict=True):
            data = data_of(self.step.dtype, 0 if address == self._shared else seed, size)
            inputs.append(data)
            if address != self._shared:
                yield self._filled(address, data)
        yield self._filled(output, bytes([_CLEARED]) * size)
        given = (operator.inputs, operator.io_inputs, operator.outputs, 1)
        yield _Call("graphExecute", graph, *given, None, None)
        yield _Output(output, size, tuple(inputs), made)

    def _filled(self, address: int, data: bytes) -> _Copy:
        held = ctypes.create_string_buffer(data, len(data))
        self._kept.append(held)
        return _Copy(address, ctypes.addressof(held), len(data))

    def _create_backend(self) -> Iterator[_Action]:
        if "backendCreate" not in self._there:
            self._there.add("backendCreate")
            yield _Call("backendCreate", None, None, self._made_backend)
            yield self._show("backend", self._made_backend)

    def _free_made_backend(self) -> Iterator[_Action]:
        if "backendCreate" in self._there:
            self._there.remove("backendCreate")
            yield self._hide("backend")
            yield _Call("backendFree", In(self._made_backend))

    def _create_context(self) -> Iterator[_Action]:
        # The backend is its parent, and calls with one backend are the client's to serialise.
        if self.step.own and "contextCreate" not in self._there:
            self._there.add("contextCreate")
            yield _Call("contextCreate", self._backend, None, None, self._made_context)
            yield self._show("context", self._made_context)

    def _free_context(self) -> Iterator[_Action]:
        if "contextCreate" in self._there:
            if "kept" in self._there:
                yield self._hide("mem", len(self._handles), at=len(self._handles))
            if self._composed:
                yield self._hide("graph", self._composed)
            self._composed = 0
            self._there -= {"contextCreate", "kept"}
            yield self._hide("context")
            yield _Call("contextFree", In(self._made_context), None)

    def _keep(self) -> Iterator[_Action]:
        """Registrations in the context that was created in this round."""
        if "contextCreate" not in self._there or "kept" in self._there or not self.step.mem_type:
            return
        self._there.add("kept")
        count = len(self._handles)
        handles = array_of(ctypes.c_void_p, count)()
        yield _Copy(ctypes.addressof(handles), ctypes.addressof(self._nothing), 8 * count)
        yield _Call("memRegister", In(self._made_context), self._described, count, handles)
        yield self._show("mem", handles, count, at=count)

    def _compose(self) -> Iterator[_Action]:
        """A graph in the context that was created in this round, which is then executed.

        The second one is alike in all threads, so that two of them may ask the same at once, behind something
        else.
        """
        if "contextCreate" not in self._there or self._composed == len(_COMPOSED):
            return
        shape = _COMPOSED[self._composed] or self._prepared.shape
        prepared = msgspec.structs.replace(self._prepared, shape=shape)
        name = f"composed{self.number}_{self._composed}"
        graph = ctypes.c_void_p()
        operator = operator_of(prepared)
        executing = operator.again()
        size = bytes_of(prepared)
        rooms = bind_raw(executing, size)
        self._kept += [operator, executing, rooms]
        yield _Call("graphCreate", In(self._made_context), name.encode(), None, graph)
        yield self._show("graph", graph, at=self._composed)
        self._composed += 1
        for tensor in operator.tensors:
            yield _Call("tensorCreateGraphTensor", In(graph), tensor)
        yield _Call("graphAddNode", In(graph), operator.config())
        yield _Call("graphFinalize", In(graph), None, None)
        for made, used in zip(operator.tensors, executing.tensors, strict=True):
            at = type(made.v1).id.offset
            yield _Copy(ctypes.addressof(used.v1) + at, ctypes.addressof(made.v1) + at, _ID_BYTES)
        yield from self._executed(In(graph), executing, [ctypes.addressof(room) for room in rooms], prepared)

    def _show(self, kind: _Kind, handles: Any, count: int = 1, at: int = 0) -> _Published:
        self._kept.append(handles)
        return self._places.show(kind, self.number, at, ctypes.addressof(handles), count)

    def _hide(self, kind: _Kind, count: int = 1, at: int = 0) -> _Copy:
        place = self._places.show(kind, self.number, at, 0, count).place
        return _Copy(place, ctypes.addressof(self._nothing), 8 * count)

    # A round

    def once(self, first: bool = False) -> None:
        """Do all of it, in this thread. ``first``: without other threads, to see what comes out.

        Raises:
            Failed: a call answered otherwise, or something else came out.
        """
        for action in self.actions:
            if isinstance(action, _Copy):
                ctypes.memmove(action.to, action.source, action.size)
            elif isinstance(action, _Call):
                self._call(action, first)
            elif isinstance(action, _Published):
                self._show_in_python(action)
            elif isinstance(action, _Meet):
                continue
            elif first:
                ctypes.memmove(action.wanted, action.address, action.size)
                self._look_at(action, action.wanted.raw)
            elif (seen := ctypes.string_at(action.address, action.size)) != action.wanted.raw:
                self._look_at(action, seen)

    def _call(self, action: _Call, first: bool) -> None:
        given = [each.variable.value if isinstance(each, In) else _passed(each) for each in action.arguments]
        code = self.state.client.call(action.name, *given)
        if first and action.refused:
            if not code:
                raise Skip(f"{action.name} is not refused with the descriptor -1, or with a NULL handle")
            action.code = code
        if low(code) != low(action.code) or bool(code) != bool(action.code):
            raise Failed(action.name, code)

    def _show_in_python(self, action: _Published) -> None:
        handles = (ctypes.c_uint64 * action.number).from_address(action.source)
        ctypes.memmove(action.place, action.source, 8 * action.number)
        everybody = (ctypes.c_uint64 * action.total).from_address(action.first)
        own = range((action.place - action.first) // 8, (action.place - action.first) // 8 + action.number)
        others = {value for at, value in enumerate(everybody) if at not in own}
        if others.intersection(handles) - {0}:
            raise Failed(TWO, 0)

    def _look_at(self, output: _Output, seen: bytes) -> None:
        demand_right(self.state, output.made, output.inputs, seen, client=self.number)

    def native(self) -> list[call_threads.Action]:
        """The same for threads of machine code."""
        return [self._native(action) for action in self.actions]

    def _native(self, action: _Action) -> call_threads.Action:
        if isinstance(action, _Copy):
            return call_threads.Action("copy", action)
        if isinstance(action, _Published):
            return call_threads.Action("publish", action)
        if isinstance(action, _Meet):
            return call_threads.Action("meet", ())
        if isinstance(action, _Output):
            addresses = (action.address, ctypes.addressof(action.wanted), action.size)
            return call_threads.Action("compare", (*addresses, ctypes.addressof(action.other)))
        kind: call_threads.Kind = "call-with-struct" if action.name == "graphAddNode" else "call"
        arguments = tuple(map(self._address, action.arguments))
        return call_threads.Action(kind, arguments, self.state.client.address(action.name), action.code)

    def _address(self, argument: Any) -> int | call_threads.At:
        if isinstance(argument, In):
            return call_threads.At(ctypes.addressof(argument.variable))
        if isinstance(argument, bytes):
            held = ctypes.create_string_buffer(argument)
            self._kept.append(held)
            return ctypes.addressof(held)
        if argument is None or isinstance(argument, int):
            return argument or 0
        return ctypes.addressof(argument)

    def judge(self, wrong: call_threads.Wrong) -> None:
        """What a thread of machine code has stopped at. Raises Failed if it is wrong."""
        action = self.actions[wrong.action]
        if isinstance(action, _Call):
            raise Failed(action.name, wrong.code)
        if isinstance(action, _Output):
            self._look_at(action, action.other.raw)
        if isinstance(action, _Published):
            raise Failed(TWO, 0)

    def end(self) -> None:
        """Free what is not of a round."""
        self.state.client.call("contextFree", self.client.context, None)
        self._free_backend()
        for block in self._blocks:
            self.state.rpcmem.free(block)


_MAKES: Final[dict[ThreadCall, Callable[[Thread], Iterator[_Action]]]] = {
    "memRegister": Thread._register,
    "memDeRegister": Thread._deregister,
    "refused": Thread._refused,
    "graphExecute": Thread._execute,
    "backendCreate": Thread._create_backend,
    "backendFree": Thread._free_made_backend,
    "contextCreate": Thread._create_context,
    "contextFree": Thread._free_context,
    "graphCreate": Thread._compose,
    "kept": Thread._keep,
}


def _passed(argument: Any) -> Any:
    by_value = argument is None or isinstance(argument, int | bytes | OpConfig | ctypes.Array)
    return argument if by_value else ctypes.byref(argument)


def histories(state: State, step: Parallel) -> StepSeen:
    """``calls``: what went wrong in a thread first ("wrong output": no call), and its code."""
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    with contextlib.ExitStack() as stack:
        shared = 0
        if step.shared and step.mem_type and not state.recorded:
            size = _shared_bytes(step)
            shared = state.rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, size)
            if not shared:
                raise Skip("rpcmem_alloc gave NULL")
            stack.callback(state.rpcmem.free, shared)
            data = data_of(step.dtype, 0, size)
            ctypes.memmove(shared, data, len(data))
        threads: list[Thread] = []
        places = Places(len(step.calls))
        for number in range(len(step.calls)):
            threads.append(Thread(state, step, number, shared, places))
            stack.callback(threads[-1].end)
        if state.recorded:
            rounds, found = 1, _in_python(state, threads, 1, plan=True)
        else:
            rounds, found = _met(state, step, threads)
    return seen_of(found, ThreadCounts(len(threads), rounds))


_Found = list[Failed]


def _met(state: State, step: Parallel, threads: list[Thread]) -> tuple[int, _Found]:
    """Rounds with all threads, and one of each alone before and behind them."""
    for thread in threads:
        thread.plan()
        for failed in _failure(functools.partial(thread.once, first=True)):
            call, code = failed.found
            raise Skip(f"without other threads, too, {call}: {code}")
    if len(threads) == 1:
        return 1, []
    with _switching_often():
        if call_threads.is_possible():
            rounds, found = _in_machine_code(threads, step.rounds)
        else:
            rounds, found = step.rounds, _in_python(state, threads, step.rounds)
    # What calls that met have damaged may show later.
    behind = (failed for thread in threads for failed in _failure(thread.once))
    return rounds, found or list(itertools.islice(behind, 1))


def _failure(work: Callable[[], None]) -> _Found:
    """How it ends, if that is a failure."""
    try:
        work()
    except Failed as failed:
        return [failed]
    return []


def _in_machine_code(threads: list[Thread], rounds: int) -> tuple[int, _Found]:
    names = sorted({each for thread in threads for each in thread.calls})
    actions = [thread.native() for thread in threads]
    run = functools.partial(call_threads.run, actions, rounds=rounds, seconds=_SECONDS, seed=1)
    results: list[tuple[int, list[call_threads.Wrong]]] = []

    def meet() -> int:
        results.append(run())
        return 0

    try:
        call_log.call(f"{len(threads)} threads: {', '.join(names)}".encode(), meet)
    except Lacking as lacking:
        raise Skip(str(lacking)) from None
    ((begun, wrong),) = results
    stopped = (functools.partial(threads[each.thread].judge, each) for each in wrong)
    return begun, [failed for each in stopped for failed in _failure(each)]


def _in_python(state: State, threads: list[Thread], rounds: int, *, plan: bool = False) -> _Found:
    """``plan``: each thread allocates its own memory, so that whoever records it sees whose that is."""
    pace = Pace(len(threads), state.round_begins)
    limit = TimeLimit(_PYTHON_SECONDS)

    def work(thread: Thread) -> None:
        with pace.kept():
            if plan:
                thread.plan()
            for _ in range(rounds):
                if limit.is_over:
                    pace.leave()
                    return
                pace.together()
                thread.once(first=plan)

    return in_threads([functools.partial(work, thread) for thread in threads])


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    # Whoever waits for Python's lock asks for it when the interval is over, as late as the kernel says so.
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    libc.set_timer_slack(1)
    try:
        yield
    finally:
        libc.set_timer_slack(0)
        sys.setswitchinterval(before)

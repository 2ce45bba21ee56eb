"""The step `Parallel` of kind ``logs``: threads whose backend calls a client's log callback back.

``calls``: the call that failed in each thread, and at the end; ``counts``: `LogCounts`.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import threading
import time

import msgspec

from pytest_qnn.qnn.abi.codes import Error, LogLevel, low
from pytest_qnn.qnn.abi.rpcmem import DEFAULT_FLAGS, HEAP_ID_SYSTEM
from pytest_qnn.qnn.abi.table import LogCallback
from pytest_qnn.qnn.cases.case import Parallel, Prepare
from pytest_qnn.qnn.runner.client import NullFunction, array_of
from pytest_qnn.qnn.runner.graphs import bind_raw, compose, operator_of
from pytest_qnn.qnn.runner.series.threads import (
    SHAPE,
    Failed,
    Pace,
    Work,
    bytes_of,
    call,
    create,
    descriptors_of,
    in_threads,
    seen_of,
)
from pytest_qnn.qnn.runner.state import Skip, State
from pytest_qnn.qnn.trace import LogCounts, StepSeen

_SETTLE = 0.005
"""Seconds for calls of the callback that began before logFree or logSetLogLevel returned: they may still wait
for Python's lock."""
_LATE = 0.02
"""Seconds in which nothing may come after logFree."""
_NOW_AND_THEN = 8
"""Calls of the callback of which one is slow, so that other threads come between."""
_SLOW = 0.0002
_CALLBACKS: list[Listener] = []
"""Never freed: a target may call after logFree, which is what is looked for."""


class Listener:
    """A client's QnnLog_Callback_t that keeps its duties: thread-safe, and it calls nothing of the API."""

    def __init__(self, level: int, *, patient: bool = True) -> None:
        """``patient``: a call now and then takes its time."""
        self.wanted = level
        self.patient = patient
        self.freed = False
        self.counts: collections.Counter[str] = collections.Counter()
        self.loudest = 0
        self.threads: set[int] = set()
        self._lock = threading.Lock()
        self._callback = LogCallback(self._receive)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0
        _CALLBACKS.append(self)

    def _receive(self, text: bytes | None, level: int, _timestamp: int, _arguments: int | None) -> None:
        # QnnLog.h, QnnLog_Callback_t: it may be called from several threads at once.
        with self._lock:
            self.threads.add(threading.get_ident())
            counts = self.counts
            counts["messages"] += 1
            counts["late"] += self.freed
            counts["null_formats"] += text is None
            counts["strange"] += level < LogLevel.ERROR
            if level > self.wanted:
                counts["loud"] += 1
                self.loudest = max(self.loudest, level)
            slow = self.patient and counts["messages"] % _NOW_AND_THEN == 0
        if slow:
            time.sleep(_SLOW)

    def lower(self, level: int) -> None:
        """LogSetLogLevel has succeeded."""
        time.sleep(_SETTLE)
        with self._lock:
            self.wanted = level

    def close(self) -> None:
        """LogFree has succeeded: wait for messages that come late."""
        time.sleep(_SETTLE)
        self.freed = True
        time.sleep(_LATE)

    def seen(self, step: Parallel) -> LogCounts:
        """What was counted so far."""
        with self._lock:
            return LogCounts(
                step.threads, step.rounds, from_threads=len(self.threads), loudest=self.loudest, **self.counts
            )


def logs(state: State, step: Parallel) -> StepSeen:
    """Open, let the threads work, close; what went wrong, and the messages that the callback received."""
    listener = Listener(step.level)
    shared = _Shared(state, step, listener)
    found = shared.open()
    if not found:
        pace = Pace(step.threads, state.round_begins)
        works: list[Work] = [functools.partial(shared.work, pace, at) for at in range(step.threads)]
        found = [failed.found for failed in in_threads(works)]
    found += shared.close()
    return seen_of([Failed(*each) for each in found], listener.seen(step))


class _Shared:
    """A log, a backend and a device that the threads share."""

    def __init__(self, state: State, step: Parallel, listener: Listener) -> None:
        self.state = state
        self.step = step
        self.listener = listener
        self.handles: dict[str, int] = {}
        self.withheld: set[str] = set()
        """Calls that answer "not supported": the threads do without."""
        self.prepared = Prepare("shared", "", step.op, step.dtype, SHAPE)
        self.nbytes = bytes_of(self.prepared)
        self.making = threading.Lock()
        """The backend is the parent of every context: contexts are made and freed one after the other."""

    def open(self) -> list[tuple[str, int]]:
        """Empty, or logCreate, if it failed. Raises Skip where there is no backend or no device to be had."""
        code = self._create("log", self.listener.address, self.step.level)
        if code:
            return [("logCreate", code)]
        for kind in ("backend", "device"):
            code = self._create(kind, self.handles["log"], None)
            if code and not (kind == "device" and low(code) == Error.COMMON_ERROR_NOT_SUPPORTED):
                self.close()
                raise Skip(f"{kind}Create gave {code}")
        return []

    def _create(self, kind: str, *arguments: int | None) -> int:
        try:
            code, handle = self.state.client.create(f"{kind}Create", *arguments)
        except NullFunction:
            return int(Error.COMMON_ERROR_NOT_SUPPORTED)
        if not code:
            self.handles[kind] = handle
        return code

    def close(self) -> list[tuple[str, int]]:
        """Free all in the order of real clients, and listen on: the calls that failed."""
        found = []
        # The log last: backend and device were created with it, and may log until they are freed.
        for kind in ("device", "backend", "log"):
            if kind in self.handles:
                code = self.state.client.call(f"{kind}Free", self.handles[kind])
                found += [(f"{kind}Free", code)] if code else []
        if "log" in self.handles and not found:
            self.listener.close()
        return found

    def work(self, pace: Pace, number: int) -> None:
        """What one thread does; each round begins as the others' do."""
        with pace.kept():
            for turn in range(self.step.rounds):
                pace.together()
                if self.step.lowered and turn == self.step.rounds // 2:
                    if number == 0:
                        self._lower()
                    pace.together()
                self._turn(number)

    def _lower(self) -> None:
        """Set the lower level, the old one and the lower one: a target may take the first change alone."""
        for level in (self.step.lowered, self.step.level, self.step.lowered):
            if not self._if_offered("logSetLogLevel", self.handles["log"], level):
                return
        self.listener.lower(self.step.lowered)

    def _turn(self, number: int) -> None:
        with self.making:
            backend, device = self.handles["backend"], self.handles.get("device")
            context = create(self.state, "contextCreate", backend, device, None)
        try:
            self._execute(context, number)
            if self.step.mem_type:
                self._register(context)
        finally:
            with self.making:
                code = self.state.client.call("contextFree", context, None)
        if code:
            raise Failed("contextFree", code)

    def _execute(self, context: int, number: int) -> None:
        prepared = msgspec.structs.replace(self.prepared, graph=f"thread{number}")
        operator = operator_of(prepared)
        graph, calls, _ = compose(self.state, context, prepared, operator)
        if calls[-1][1]:
            raise Failed(*calls[-1])
        rooms = bind_raw(operator, self.nbytes)
        given = (operator.inputs, operator.io_inputs, operator.outputs, 1)
        self._if_offered("graphExecute", graph, *given, None, None)
        del rooms

    def _register(self, context: int) -> None:
        rpcmem = self.state.rpcmem
        buffers = [rpcmem.alloc(HEAP_ID_SYSTEM, DEFAULT_FLAGS, self.nbytes) for _ in range(2)]
        try:
            count = len(buffers)
            described, kept = descriptors_of(self.state, self.step, buffers, self.prepared)
            handles = array_of(ctypes.c_void_p, count)()
            if self._if_offered("memRegister", context, described, count, handles):
                call(self.state, "memDeRegister", handles, count)
            del kept
        finally:
            for buffer in buffers:
                rpcmem.free(buffer)

    def _if_offered(self, name: str, *arguments: object) -> bool:
        """Carry out a call that the target may be without; False: it is."""
        if name in self.withheld:
            return False
        try:
            call(self.state, name, *arguments)
        except NullFunction:
            self.withheld.add(name)
        except Failed as failed:
            if low(failed.found[1]) != Error.COMMON_ERROR_NOT_SUPPORTED:
                raise
            self.withheld.add(name)
        return name not in self.withheld

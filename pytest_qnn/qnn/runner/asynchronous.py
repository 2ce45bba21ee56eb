"""Calls that notify their client, and the wait for it: QnnGraph_executeAsync and createFromBinaryListAsync.

What the client does when it is notified: `pytest_qnn.qnn.cases.case`. One C callback serves every
execution of the process, another one every context, and tells them apart by the parameter that comes back:
whenever a target calls it, it is there.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.abi.layouts import (
    VERSION_1,
    ContextNotifyType,
    ContextParams,
    Notify,
    NotifyFn,
    NotifyStatus,
)
from pytest_qnn.qnn.cases.case import (
    OVER_INPUT,
    OVER_OUTPUT,
    PATIENCE,
    Binding,
    Execute,
    queued_seed,
)
from pytest_qnn.qnn.runner.client import array_of
from pytest_qnn.qnn.runner.graphs import Run
from pytest_qnn.qnn.runner.state import Skip, State
from pytest_qnn.qnn.trace import AsyncCounts, ExecuteCounts, ListCounts, StepSeen

_patience = PATIENCE
_LONGEST = 4
"""Times `_patience`, after which a target is silent however much it computes."""
_AT_WORK = 1 / 200
"""Part of the time in which other threads of the process compute, from which on it is not counted."""
_HELD, _HELD_AT_MOST = 0.1, 1.0
"""Seconds for which a notification waits for the end of contextFree, and for its beginning."""
_LOOKS, _PAUSE = 5, 0.001
"""How often, and after how many seconds each, the client looks at its memory once it was notified."""
_FIRST = 0x0A5F_0000_0000
"""Parameters are numbers from here on: they lead nowhere."""

_numbers: Final = itertools.count(_FIRST)
_executions: Final[dict[int, _Execution]] = {}
"""Those under way, by parameter."""
_abandoned: Final[list[_Execution]] = []
"""Those of which no notification came: the target may use their memory at any time."""


class _Held:
    """Until the client frees the context its first notification does not return, and others wait behind it.

    Else it would depend on the load of the machine whether any of them waits by then. A target that notifies
    in the call itself, or waits for the notification while it frees, waits no longer than `_HELD`.
    """

    def __init__(self) -> None:
        self._client = threading.get_ident()
        self._begins, self._is_over = threading.Event(), threading.Event()

    def hold(self) -> None:
        """In the thread that notifies."""
        if threading.get_ident() != self._client and self._begins.wait(_HELD_AT_MOST):
            self._is_over.wait(_HELD)

    def __enter__(self) -> None:
        self._begins.set()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()


class _Execution:
    """One asynchronous execution, as the client sees it."""

    def __init__(self, run: Run, held: _Held | None = None) -> None:
        self.run = run
        self._held = held
        self.parameter = next(_numbers)
        self.code = 0
        """Of the call."""
        self.notified = threading.Event()
        self.statuses: list[int] = []
        """Of the notifications, in order."""
        self.strange = 0
        """Notifications with a parameter that no execution has."""
        self.seen: StepSeen | None = None
        """The output as it was when the first notification came."""
        self._over: list[tuple[int, int, int]] = []
        """(address, length, byte): what the client has written since."""

    def notify(self, status: int) -> None:
        """The target says that it is finished with the memory."""
        self.statuses.append(status)
        if self.seen is None:
            self.seen = self.run.seen(status)
            if status == 0:
                self._write_over()
        self.notified.set()
        if self._held is not None:
            self._held.hold()

    def _write_over(self) -> None:
        areas = [(address, len(data), OVER_INPUT) for address, data in self.run.inputs]
        if self.run.output is not None:
            areas.append((*self.run.output, OVER_OUTPUT))
        for address, length, byte in areas:
            ctypes.memset(address, byte, length)
        self._over = areas[-1:] if self.run.overlapping() else areas

    def changed(self) -> int:
        """Bytes that are no longer what the client wrote, the guard behind a raw output included."""
        lost = sum(length - ctypes.string_at(at, length).count(byte) for at, length, byte in self._over)
        return lost + self.run.overrun()


def execute(state: State, step: Execute) -> StepSeen:
    """QnnGraph_executeAsync. ``code``: the call's, or, where that is 0, the notification's status.

    ``calls``: the calls, then each notification with its status, then contextFree, if the step makes it;
    ``data``: as for `graphs.execute`, but at the first notification (without one there is none), and the
    outputs of the calls before behind it.
    """
    state.session.open()
    if any(each in _abandoned for each in _all(state)):
        raise Skip("an execution before was not notified")
    value = state.graph_value(step.graph)
    held = _Held()
    queued = [
        _begin(state, step, value, number, held if step.freed and not number else None)
        for number in range(step.asynchronous - 1)
    ]
    own = _begin(state, step, value)
    with held:
        freed = (("contextFree", _free(state, step)),) if step.freed else ()
    _abandoned.extend(_silent([each for each in (*queued, own) if each.code == 0]))
    silent = any(each in _abandoned for each in (*queued, own))
    late = 0 if silent else _look_later([*queued, own])
    for each in (*queued, own):
        del _executions[each.parameter]
    return _seen(own, queued, late, freed)


class _Awaited(Protocol):
    notified: threading.Event


AwaitedT = TypeVar("AwaitedT", bound=_Awaited)


def _silent(awaited: Sequence[AwaitedT]) -> list[AwaitedT]:
    """Those that are not notified, though the target had `_patience` seconds in which it did not compute.

    A slow one, or any on a machine with much else to do, has not come to it.
    """
    left, computed = list(awaited), _computed()
    end = time.monotonic() + _LONGEST * _patience
    while left:
        deadline = min(time.monotonic() + _patience, end)
        left = [each for each in left if not each.notified.wait(max(0.0, deadline - time.monotonic()))]
        before, computed = computed, _computed()
        if time.monotonic() >= end or computed - before < _AT_WORK * _patience:
            break
    return left


def _computed() -> float:
    """Seconds of processor time of the threads of this process but the one that waits."""
    return time.process_time() - time.thread_time()


def _free(state: State, step: Execute) -> int:
    """Free the context of the step's graph."""
    made = state.graphs.get(step.graph)
    if made is None:
        raise Skip(f"graph {step.graph} was never made")
    return state.free_context(made.step.context)


def _begin(
    state: State,
    step: Execute,
    graph: int | None,
    number: int | None = None,
    held: _Held | None = None,
) -> _Execution:
    """Make the step's own call, or the call of this number before it."""
    # Structs of its own for each call in the queue: the backend may read them until it notifies
    # (QnnGraph.h, QnnGraph_executeAsync).
    execution = _Execution(Run(state, step.graph, apart=number is not None), held)
    state.held.append(execution)
    inputs = execution.run.operator.io_inputs
    if number is not None:
        seeds = (queued_seed(number, position) for position in range(inputs))
        step = Execute(step.graph, (*(Binding(seed=seed) for seed in seeds), Binding()))
    given = execution.run.bind_all(step)
    # Before the call: a backend may notify before the call returns.
    _executions[execution.parameter] = execution
    arguments = (graph, *given, None, None, _CALLBACK, execution.parameter)
    execution.code = state.client.call("graphExecuteAsync", *arguments)
    return execution


def release(state: State) -> None:
    """Give back the raw memory of a case's executions, but for those that may still be under way."""
    for each in _all(state):
        if each not in _abandoned:
            each.run.release()


def _all(state: State) -> list[_Execution]:
    return [each for each in state.held if isinstance(each, _Execution)]


def _look_later(executions: list[_Execution]) -> int:
    for _ in range(_LOOKS):
        time.sleep(_PAUSE)
        late = sum(each.changed() for each in executions)
        if late:
            return late
    return 0


def _seen(
    own: _Execution, queued: list[_Execution], late: int, freed: tuple[tuple[str, int], ...]
) -> StepSeen:
    calls = [("graphExecuteAsync", each.code) for each in (*queued, own)]
    calls += [("notify", status) for each in (*queued, own) for status in each.statuses]
    calls += freed
    found = own.run.seen(own.code) if own.code else own.seen
    memory = found.counted(ExecuteCounts) if found is not None else ExecuteCounts()
    counts = AsyncCounts(
        inputs_changed=memory.inputs_changed,
        output_overrun=memory.output_overrun,
        notified=len(own.statuses),
        silent=sum(each in _abandoned for each in (*queued, own)),
        queued_amiss=sum(map(_is_lost, queued))
        if freed
        else sum(map(_is_amiss, queued[:1])) + sum(map(_is_amiss_behind_others, queued[1:])),
        strange_notifications=max(each.strange for each in (*queued, own)),
        late_writes=late,
    )
    if found is None:
        return StepSeen(code=own.code, calls=tuple(calls), counts=counts)
    others = tuple(data for each in queued if each.seen for data in each.seen.data)
    data = (*found.data, *others) if len(others) == len(queued) else found.data
    return StepSeen(code=found.code, calls=tuple(calls), data=data, counts=counts)


def _is_amiss(execution: _Execution) -> bool:
    return execution.code != 0 or execution.statuses != [0]


def _is_lost(execution: _Execution) -> bool:
    """Not notified once, whatever of."""
    return len(execution.statuses) != int(execution.code == 0)


def _is_amiss_behind_others(execution: _Execution) -> bool:
    """The queue may be full (6025), and then nothing is notified."""
    full = low(execution.code) == Error.GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL
    return bool(execution.statuses) if full else _is_amiss(execution)


def _notified(parameter: int | None, status: NotifyStatus) -> None:
    execution = _executions.get(parameter or 0)
    if execution is not None:
        execution.notify(status.error)
    elif not _FIRST <= (parameter or 0) < _FIRST + (1 << 32):
        for each in list(_executions.values()):
            each.strange += 1
            each.notified.set()


_callback: Final = NotifyFn(_notified)
_CALLBACK: Any = ctypes.cast(_callback, ctypes.c_void_p)


_LIST_CALL: Final = "contextCreateFromBinaryListAsync"
_FIRST_CONTEXT: Final = 0x0B5F_0000_0000
"""Parameters are numbers from here on: they lead nowhere."""
_LATE_LOOKS = 20
"""How often, after `_PAUSE` each, the client looks for notifications of a call that was refused."""

_contexts: Final = itertools.count(_FIRST_CONTEXT)
_waiting: Final[dict[int, _Created]] = {}
"""Contexts that are under way, by parameter."""
_unfinished: Final[list[_Unfinished]] = []


class _Created:
    """What a target has notified of one context."""

    def __init__(self) -> None:
        self.parameter = next(_contexts)
        self.notified = threading.Event()
        self.times = 0
        self.context = 0
        self.status = 0
        """Of the first notification, as the context."""
        self.strange = 0
        """Notifications, while this context was waited for, with a parameter that no context has."""


class Entry(NamedTuple):
    """A context of a list. What it names must stay until the context is there."""

    config: int | None
    """Its options; an address, or None."""
    binary: Any
    """A buffer."""
    size: int
    """Bytes of the binary in it."""


class _Unfinished(NamedTuple):
    """What a call was given of which no notification came: the target may use it at any time."""

    made: Sequence[_Created]
    given: Sequence[Any]
    entries: Sequence[Entry]


def create_listed(state: State, entries: Sequence[Entry], list_config: int | None, out: Any) -> StepSeen:
    """Make the contexts of a list, and free all but the last.

    ``code``: the call's, or, where that is 0, the status of the last context's notification. The step is
    skipped where a notification does not come in time, or has another parameter.

    Args:
        state: of the case, with an open session.
        entries: the contexts, at least one.
        list_config: options of all contexts of the list.
        out: a c_void_p, which gets the last context's handle.

    Raises:
        Skip: a list of the case was not notified of.
    """
    if any(isinstance(each, _Unfinished) for each in state.held):
        raise Skip("a list before was not notified of")
    made = [_Created() for _ in entries]
    # The entries are const members of a struct that the call reads, maybe until it notifies.
    given = [_params(entry, created) for entry, created in zip(entries, made, strict=True)]
    addresses = (*map(ctypes.addressof, given), None)
    listed = array_of(ctypes.c_void_p, len(addresses))(*addresses)
    # Before the call: a target may notify before it returns.
    _waiting.update({each.parameter: each for each in made})
    owners = (state.session.backend, state.session.device)
    code = state.client.call(_LIST_CALL, *owners, ctypes.addressof(listed), list_config, None)
    counts = _notifications(made, accepted=code == 0)
    for each in made:
        del _waiting[each.parameter]
    if counts.silent or counts.strange:
        unfinished = _Unfinished(made, (*given, listed), entries)
        state.held.append(unfinished)
        _unfinished.append(unfinished)  # longer than the case
        late = f"no notification of a context within {PATIENCE:g} s"
        why = "a notification has another parameter than those of the list" if counts.strange else late
        return StepSeen(skipped=why, counts=counts)
    if code:
        return StepSeen(code=code, counts=counts)
    for each in made[:-1]:
        if each.status == 0:
            state.client.call("contextFree", each.context, None)
    out.value = made[-1].context
    return StepSeen(code=made[-1].status, counts=counts)


def _params(entry: Entry, created: _Created) -> ContextParams:
    params = ContextParams(version=VERSION_1)
    params.v1.config = entry.config
    params.v1.binaryBuffer, params.v1.binaryBufferSize = ctypes.addressof(entry.binary), entry.size
    params.v1.notifyFunc, params.v1.notifyParam = _CREATED, created.parameter
    return params


def _notifications(made: Sequence[_Created], *, accepted: bool) -> ListCounts:
    """Wait for those that must come, and then a little for those that must not."""
    silent = len(_silent(made if accepted else ()))
    for _ in range(_LOOKS if accepted else _LATE_LOOKS):
        if silent or any(each.times > int(accepted) for each in made):
            break
        time.sleep(_PAUSE)
    return ListCounts(
        accepted=accepted,
        notified=sum(each.times for each in made),
        twice=sum(each.times > 1 for each in made),
        silent=silent,
        strange=max(each.strange for each in made),
    )


def _notify_context(
    context: int | None,
    _graph: int | None,
    _name: bytes | None,
    kind: int,
    parameter: int | None,
    status: int,
) -> None:
    if kind != ContextNotifyType.CONTEXT_INIT:
        return
    found = _waiting.get(parameter or 0)
    if found is None:
        if not _FIRST_CONTEXT <= (parameter or 0) < _FIRST_CONTEXT + (1 << 32):
            for each in list(_waiting.values()):
                each.strange += 1
                each.notified.set()
        return
    found.times += 1
    if found.times == 1:
        found.context, found.status = context or 0, status
        found.notified.set()


_CREATED: Final = Notify(_notify_context)

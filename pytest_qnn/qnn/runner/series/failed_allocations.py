"""The step `FailedAllocation`: a request of the target to the system is refused during one call."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pytest_qnn.isolation.host.refusals import Lacking, Refusals, Refusing
from pytest_qnn.qnn.cases.case import (
    ON_GRAPHS,
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    ContextFromBinary,
    Deregister,
    Descriptor,
    Execute,
    FailedAllocation,
    GetBinary,
    Prepare,
    Register,
    Retrieve,
    Write,
)
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES, PAGE, arity
from pytest_qnn.qnn.model.growth import beyond
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.runner.client import NullFunction, QnnClient
from pytest_qnn.qnn.runner.handlers import HANDLERS, handles
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.runner.probes import GIVEN_BACK, Found, grown
from pytest_qnn.qnn.runner.release import release
from pytest_qnn.qnn.runner.state import Skip, State
from pytest_qnn.qnn.trace import GrowthCounts, RefusalCounts, StepSeen

_SHAPE = (1, 2, 2, 2)
_SECONDS = 0.5
"""After which no further life begins."""
_WARM_UP = 2
"""Rounds before growth is measured, beside the life without a refusal and the one with."""


def _refusing(entry: QnnEntry) -> Refusing:
    """Who can do so for this target. Raises Skip where nobody can."""
    owner = entry.owner
    if isinstance(owner, ReferenceBackend):
        return owner.refusing
    if not isinstance(owner, ctypes.CDLL):
        raise Skip("nothing here can refuse what this target asks the system for")
    try:
        return Refusals(owner, owner._name)
    except Lacking as lacking:
        raise Skip(str(lacking)) from None


class _Client(QnnClient):
    """A client of which some calls, each the first of its name, are made while a request may be refused."""

    def __init__(
        self,
        client: QnnClient,
        step: FailedAllocation,
        refusing: Refusing,
        calls: Collection[str],
        asked: Mapping[str, int],
    ) -> None:
        """``asked``: requests of each call where none is refused; empty: none is, they are counted."""
        self.__dict__.update(client.__dict__)
        self._step, self._refusing, self._calls, self._known = step, refusing, calls, asked
        self.asked: dict[str, int] = {}
        """Requests of each call."""
        self.answers: dict[str, int] = {}
        """What each call answered of which a request was refused."""

    def call(self, name: str, *arguments: object) -> int:
        """Call an entry of the table with ctypes arguments; once more, if it failed by a refusal."""
        if name not in self._calls or name in self.asked:
            return super().call(name, *arguments)
        step, known = self._step, self._known.get(name, 0)
        nth = 1 + (step.nth - 1) % known if known else 0
        with self._refusing.during(step.what, nth, lasting=step.lasting and nth > 0):
            code = super().call(name, *arguments)
        self.asked[name] = self._refusing.asked
        if self._refusing.refused:
            self.answers[name] = code
            if code:
                return super().call(name, *arguments)
        return code


class _Seen(NamedTuple):
    """What one life gave."""

    asked: dict[str, int]
    answers: dict[str, int]
    """As of `_Client`."""
    failed: tuple[Found, ...]
    """The first call that failed although nothing was refused any more, if there is one."""
    outputs: tuple[bytes, ...]
    """Of each execute."""


@handles(FailedAllocation)
def failed_allocation(state: State, step: FailedAllocation) -> StepSeen:
    """``calls``: each call of which a request was refused, with what it answered.

    ``values``: requests of each of these calls where none is refused; ``data``: of outputs that differ (the
    one without a refusal, the one with); ``counts``: `RefusalCounts`, of a step with rounds the growth of the
    process.
    """
    if not state.session.open():
        raise Skip(f"there is no session: {state.session.failure}")
    refusing = _refusing(state.client.entry)
    life = _Life(state, step, refusing, step.calls, {})
    try:
        plain = life.begun(stays=True)
        # Some libraries declare calls that they have not (CAP-03): the others are judged all the same.
        while len(step.calls) > 1 and plain.failed and plain.failed[0][0] in step.calls:
            others = tuple(call for call in step.calls if call != plain.failed[0][0])
            step = msgspec.structs.replace(step, calls=others)
            life.ended()
            life = _Life(state, step, refusing, others, {})
            plain = life.begun(stays=True)
        is_judged = not plain.failed and step.nth > 0 and any(plain.asked.values())
        # What a target keeps of all objects, such as a table of handles, has to grow beside those.
        seen = _lived(state, step, refusing, step.calls, plain.asked) if is_judged else plain
        crowded = _differs(plain, seen) and _differs(plain, _lived(state, step, refusing, (), {}))
    finally:
        closing = life.ended()
    # What a refusal has done to the first objects is to be seen in those of the case (OOM-04).
    failed = plain.failed or (closing and _lived(state, step, refusing, (), {}).failed)
    for call, code in failed:
        raise Skip(f"{call} answers {code} though nothing is refused" if code else call)
    if not is_judged:
        return StepSeen()
    if crowded:  # a target need not have so many objects at once
        seen = _lived(state, step, refusing, step.calls, plain.asked)
    told, amiss = tuple(seen.answers.items()), RefusalCounts()
    data: tuple[bytes, ...] = ()
    if _differs(plain, seen):
        amiss, data = _amiss(state, step, refusing, plain, seen)
    found = StepSeen(
        calls=told, values=tuple(plain.asked[name] for name in seen.answers), data=data, counts=amiss
    )
    # A call that succeeds may keep what it has done without.
    failing = [call for call, code in told if code]
    if not step.rounds or not failing:
        return found

    def grows(known: Mapping[str, int], rounds: int, given_back: float) -> GrowthCounts:
        return _grown(lambda: _lived(state, step, refusing, failing, known), rounds, given_back)

    counts = grows(plain.asked, step.rounds, 0)
    if beyond(counts):
        if beyond(grows({}, counts.rounds, 0)):
            raise Skip("the process grows though nothing is refused")
        # Again, since some of it may have been for once, and with the second that a worker has.
        counts = grows(plain.asked, counts.rounds, GIVEN_BACK)
    return msgspec.structs.replace(found, counts=counts)


def _differs(plain: _Seen, seen: _Seen) -> bool:
    return bool(seen.failed) or plain.outputs != seen.outputs


def _amiss(
    state: State, step: FailedAllocation, refusing: Refusing, plain: _Seen, together: _Seen
) -> tuple[RefusalCounts, tuple[bytes, ...]]:
    """The first call with which alone something differs, else all of them; and outputs that do."""
    alone = (_lived(state, step, refusing, (call,), plain.asked) for call in step.calls)
    found = next((seen for seen in alone if seen.answers and _differs(plain, seen)), together)
    failed, code = found.failed[0] if found.failed else ("", 0)
    pairs = zip(plain.outputs, found.outputs, strict=False)
    data = next((pair for pair in pairs if pair[0] != pair[1]), ())
    answered = next(filter(None, found.answers.values()), 0)
    return RefusalCounts(tuple(found.answers), answered, failed, code), data


def _grown(life: Callable[[], object], rounds: int, given_back: float) -> GrowthCounts:
    """By how much the process grows over so many lives, or as many as there is time for."""

    def once() -> None:
        life()

    for _ in range(_WARM_UP):
        once()
    return grown(once, rounds, _SECONDS, given_back=given_back)[1]


def _lived(
    state: State,
    step: FailedAllocation,
    refusing: Refusing,
    calls: Collection[str],
    asked: Mapping[str, int],
) -> _Seen:
    """The ordinary calls, from beginning to end, with objects of their own."""
    life = _Life(state, step, refusing, calls, asked)
    try:
        seen = life.begun()
    finally:
        closing = life.ended()
    return seen._replace(failed=seen.failed or closing)


class _Life:
    """The ordinary calls, with objects of their own; arguments as of `_Client`."""

    def __init__(
        self,
        state: State,
        step: FailedAllocation,
        refusing: Refusing,
        calls: Collection[str],
        asked: Mapping[str, int],
    ) -> None:
        self._step = step
        self._client = _Client(state.client, step, refusing, calls, asked)
        self._own = State(self._client, state.rpcmem)
        self._own.session = state.session

    def begun(self, *, stays: bool = False) -> _Seen:
        """All but the end. ``stays``: what memRegister gives stays registered until then."""
        client, outputs = self._client, []
        failed = _opened(client, self._step)
        for each in () if failed else _life(self._step):
            if stays and isinstance(each, Deregister):
                continue
            seen = _done(self._own, each)
            if isinstance(each, Execute) and seen.data:
                outputs.append(seen.data[0])
            failed = _failure(each, seen)
            if failed:
                break
        return _Seen(client.asked, client.answers, failed, tuple(outputs))

    def ended(self) -> tuple[Found, ...]:
        """What is left is given back; the first call of it that failed."""
        return tuple(each for each in release(self._own, session=False) if each[1])[:1]


def _done(own: State, step: AnyStep) -> StepSeen:
    try:
        return HANDLERS[type(step)](own, step)
    except Skip as reason:
        return StepSeen(skipped=str(reason))
    except NullFunction as reason:
        raise Skip(f"{reason.function} is NULL in the interface table") from None


def _failure(step: AnyStep, seen: StepSeen) -> tuple[Found, ...]:
    """The call of the step that failed, with its code; of a step that could not be carried out the step."""
    if seen.skipped:
        return ((f"{step.__struct_config__.tag} is not carried out: {seen.skipped}", 0),)
    if not seen.code:
        return ()
    return (seen.calls[-1] if seen.calls else (_ONE_CALL[type(step)], seen.code),)


_ONE_CALL: dict[type[AnyStep], str] = {
    ContextCreate: "contextCreate",
    Execute: "graphExecute",
    Register: "memRegister",
    Deregister: "memDeRegister",
    GetBinary: "contextGetBinary",
    ContextFromBinary: "contextCreateFromBinary",
    Retrieve: "graphRetrieve",
}


def _life(step: FailedAllocation) -> Iterator[AnyStep]:
    """The ordinary calls that the step's need, and those that use what they make."""
    if all(call in _OPENING for call in step.calls):
        return
    yield ContextCreate("c")
    graphs = step.use != "none" or any(call in ON_GRAPHS for call in step.calls)
    executes = graphs and step.use == "execute"
    inputs = arity(step.op)
    raw = Execute("g", (*(Binding(seed=1 + each) for each in range(inputs)), Binding()))
    if graphs:
        yield Prepare("g", "c", step.op, step.dtype, _SHAPE)
    if executes:
        yield raw
    if "memRegister" in step.calls:
        memory, register, handles = _memory(step, inputs + 1)
        yield from memory
        yield register
        if executes:
            yield Execute("g", tuple(Binding("handle", each) for each in handles))
        yield Deregister(handles)
    if "contextGetBinary" in step.calls or "contextCreateFromBinary" in step.calls:
        yield from (GetBinary("c", "f"), ContextFromBinary("d", "f"), Retrieve("r", "d", "g"))
        if executes:
            yield msgspec.structs.replace(raw, graph="r")


def _memory(step: FailedAllocation, count: int) -> tuple[tuple[AnyStep, ...], AnyStep, tuple[str, ...]]:
    """Buffers with contents, one for each tensor; their registration in one call; the handles."""
    size = math.prod(_SHAPE) * ELEMENT_BYTES[step.dtype]
    made: list[AnyStep] = []
    for each in range(count):
        made.append(Alloc(f"b{each}", PAGE))
        made.append(Write(f"b{each}", size, seed=1 + each, dtype=step.dtype))
    described = tuple(Descriptor(f"b{each}", _SHAPE, step.dtype, step.mem_type) for each in range(count))
    handles = tuple(f"h{each}" for each in range(count))
    return tuple(made), Register("c", described, handles), handles


def _opened(client: _Client, step: FailedAllocation) -> tuple[Found, ...]:
    """Objects of the session's kinds are made and freed; the first call that failed."""
    for call in step.calls:
        if call in _OPENING:
            arguments, free = _OPENING[call]
            code, handle = client.create(call, *arguments)
            if code:
                return ((call, code),)
            code = client.call(free, handle)
            if code:
                return ((free, code),)
    return ()


_LOG_LEVEL_ERROR = 1
_OPENING: dict[str, tuple[tuple[int | None, ...], str]] = {
    "logCreate": ((None, _LOG_LEVEL_ERROR), "logFree"),
    "backendCreate": ((None, None), "backendFree"),
    "deviceCreate": ((None, None), "deviceFree"),
}
"""By call, its arguments before the place of the handle, and what frees that."""

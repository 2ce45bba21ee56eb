"""OOM: calls during which the system refuses memory, a mapping, a descriptor or a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

import msgspec
from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoder_of, listed, strings
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.target import Resource
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Measured, Unsupported, Violation
from pytest_qnn.qnn.abi.codes import Property
from pytest_qnn.qnn.cases.case import (
    MOST_REFUSED,
    ON_GRAPHS,
    AllocatingCall,
    Deregister,
    Execute,
    FailedAllocation,
    MemoryCase,
)
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.codes import named
from pytest_qnn.qnn.model.growth import beyond
from pytest_qnn.qnn.rules.judging import require_session
from pytest_qnn.qnn.strategies.scene import Scene, Tape, scenes
from pytest_qnn.qnn.trace import GrowthCounts, MemoryTrace, RefusalCounts, StepSeen

Cases = st.SearchStrategy[MemoryCase]
_BINARY: tuple[AllocatingCall, ...] = ("contextGetBinary", "contextCreateFromBinary")
_OPENING: tuple[AllocatingCall, ...] = ("logCreate", "backendCreate", "deviceCreate")
_NOT_THROWING: tuple[Resource, ...] = ("any", "any", "memory", "mapping", "descriptor", "thread")
_EVERY: tuple[Resource, ...] = ("any", "new", "memory", "mapping")
_FEW = 32
"""Requests among which the refused one is drawn, most often; else among `MOST_REFUSED`."""
_IN_TURN = (1, 2, 4, 8, 16, 32, *sorted({*range(1, _FEW + 1)} - {1, 2, 4, 8, 16, 32}))
"""The requests of OOM-01: near ones and far ones first, for a search of a few cases."""
_ROUNDS = 20
Use = Literal["execute", "compose", "none"]


def _calls(facts: MemoryFacts) -> tuple[AllocatingCall, ...]:
    """The calls that the target offers, without those that are known to end the process."""
    caches = facts.supports(Property.CONTEXT_SUPPORT_CACHING)
    graphs = [
        call
        for call in ON_GRAPHS
        if (caches or call not in _BINARY) and (facts.executes or call != "graphExecute")
    ]
    memory: tuple[AllocatingCall, ...] = ("memRegister",) if _registers(facts) else ()
    every = (*memory, "contextCreate", *(graphs if facts.operators else ()), *_OPENING)
    offered = tuple(call for call in every if call not in facts.fatal_calls)
    if not offered:
        raise NothingToJudge("each call ends the process where a request of it is refused")
    return offered


def _registers(facts: MemoryFacts) -> bool:
    return facts.supports(Property.GROUP_MEMORY) and bool(Scene(facts).types)


def _step(scene: Scene, tape: Tape, resources: Sequence[Resource], rounds: int = 0) -> FailedAllocation:
    """All calls, or in one case of four some of them."""
    facts, every = scene.facts, _calls(scene.facts)
    size = tape.byte()
    nth = 1 + (tape.below(MOST_REFUSED) if size >= 240 else tape.below(_FEW) if size >= 128 else size % 4)
    what, lasting = tape.pick(resources), tape.chance(2)
    op, dtype = tape.pick(scene.operators) if scene.operators else ("ElementWiseAdd", "UFIXED_POINT_8")
    some = tuple(call for call in every if tape.chance(3)) if tape.chance(4) else ()
    calls = some or every
    graphs = scene.operators and (any(call in ON_GRAPHS for call in calls) or tape.chance(2))
    executes: Use = "execute" if facts.executes else "compose"
    mem_type = tape.pick(scene.types) if "memRegister" in calls else 0
    use = executes if graphs else "none"
    return FailedAllocation(calls, what, nth, lasting, rounds, op, dtype, use, mem_type)


def _refusals(facts: MemoryFacts, resources: Sequence[Resource], rounds: int = 0) -> Cases:
    """Calls, during each of which one request or more are refused."""
    _calls(facts)

    def core(scene: Scene, tape: Tape) -> None:
        scene.add(_step(scene, tape, resources, rounds))

    return scenes(facts, core, core_bytes=24, before=0, after=0)


def not_throwing(facts: MemoryFacts) -> Cases:
    """OOM-01: what is asked for by functions that do not throw, one of the first 32 requests in each case.

    What is drawn else is the same in each run.
    """
    drawn = decoder_of(_refusals(facts, _NOT_THROWING))
    assert drawn is not None

    def case(nth: int, data: bytes) -> MemoryCase:
        made: MemoryCase = drawn.decode(data)
        steps = (
            msgspec.structs.replace(step, nth=nth) if isinstance(step, FailedAllocation) else step
            for step in made.steps
        )
        return msgspec.structs.replace(made, steps=tuple(steps))

    return listed(list(map(case, _IN_TURN, strings(drawn.size, 0))))


def throwing(facts: MemoryFacts) -> Cases:
    """OOM-02: memory by operator new."""
    return _refusals(facts, ("new",))


def everything(facts: MemoryFacts) -> Cases:
    """OOM-03 and OOM-05: any resource."""
    return _refusals(facts, _EVERY)


def in_rounds(facts: MemoryFacts) -> Cases:
    """OOM-06: the same many times."""
    return _refusals(facts, _EVERY, _ROUNDS)


def beside_others(facts: MemoryFacts) -> Cases:
    """OOM-04: a graph that is executed before and after, and memory that is deregistered after."""
    _calls(facts)
    if not facts.operators and not _registers(facts):
        raise NothingToJudge("neither graphs nor memory can be had, which could be damaged", unsupported=True)

    def core(scene: Scene, tape: Tape) -> None:
        failing = _step(scene, tape, _EVERY)
        context = scene.context()
        graph = scene.prepare(context, tape) if facts.operators else ""
        handles = scene.register(context, scene.descriptor(tape)) if _registers(facts) else ()
        seed = tape.byte()
        for steps in ([], [msgspec.structs.replace(failing, nth=0)], [failing]):
            for step in steps:
                scene.add(step)
            if graph:
                scene.execute_raw(graph, seed)
        if handles:
            scene.deregister(*handles)

    return scenes(facts, core, core_bytes=40, before=0, after=0)


Found = tuple[str, FailedAllocation, StepSeen]


def _refused(case: MemoryCase, trace: MemoryTrace) -> Iterator[Found]:
    """Where, and each step with calls of which a request was refused.

    Raises:
        Unsupported: there is none, and why.
    """
    require_session(trace)
    found, why = 0, ""
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if not isinstance(step, FailedAllocation) or not step.nth:
            continue
        if seen.calls:
            found += 1
            yield f"step {index}", step, seen
        else:
            why = (
                seen.skipped
                or f"{' and '.join(step.calls)} ask the system for nothing of the kind: {step.what}"
            )
    if why and not found:
        raise Unsupported(why, final=False)


def _described(step: FailedAllocation, seen: StepSeen, wanted: Collection[str] = ()) -> str:
    """Calls, or those that are wanted, with the requests of theirs that were refused."""
    behind = " and each behind it" if step.lasting else ""
    told = (
        f"request {1 + (step.nth - 1) % asked} of {asked}{behind} of {call}, which answers {named(code)}"
        for (call, code), asked in zip(seen.calls, seen.values, strict=True)
        if not wanted or call in wanted
    )
    return f"refused ({step.what}): {'; '.join(told)}"


def _count(found: Iterator[Found], demand: Callable[[Found], None]) -> Examined:
    count = 0
    for each in found:
        demand(each)
        count += len(each[2].calls)
    return Examined(count, "calls of which a request was refused")


@rule(
    "OOM-01",
    Level.SHOULD,
    "A call during which the system refuses memory, a mapping, a descriptor or a thread returns, with "
    "success or an error.",
    source="QnnCommon.h: QNN_COMMON_ERROR_MEM_ALLOC; each component's header has it as ..._ERROR_MEM_ALLOC",
    subject="memory",
    cases=not_throwing,
    weight=0.5,
)
def oom_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """Whoever comes here has returned."""
    return _count(_refused(case, trace), lambda _: None)


@rule(
    "OOM-02",
    Level.MUST,
    "No C++ exception leaves a call: one that finds no memory by operator new answers so with a code.",
    source="QnnInterface.h: the functions are C's, and return a Qnn_ErrorHandle_t; QnnCommon.h: "
    "QNN_COMMON_ERROR_MEM_ALLOC",
    subject="memory",
    cases=throwing,
    weight=0.5,
)
def oom_02(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """An exception that nobody catches ends the process."""
    return _count(_refused(case, trace), lambda _: None)


def _demand_as_without(found: Found, *, succeeded: bool) -> None:
    """Behind a call that succeeded, or one that failed and was made again, all is as without a refusal."""
    where, step, seen = found
    if isinstance(seen.counts, GrowthCounts):
        return
    amiss = seen.counted(RefusalCounts)
    if not amiss.calls or (amiss.code == 0) is not succeeded:
        return
    if amiss.failed:
        wrong = f"{amiss.failed} answers {named(amiss.failed_code)}" if amiss.failed_code else amiss.failed
    elif seen.data:
        wrong = f"the output is {seen.data[1].hex()}, and {seen.data[0].hex()} where nothing is refused"
    else:
        wrong = "there is an output less"
    calls, refused = " and ".join(amiss.calls), _described(step, seen, amiss.calls)
    wanted = f"an error of {calls}, or what it is for"
    if not succeeded:
        wanted = f"{calls} and what follows as without a refusal, once it is made again with nothing refused"
    raise (FailedCall if amiss.failed else Violation)(wanted, wrong, f"{where}, {refused}")


@rule(
    "OOM-03",
    Level.MUST,
    "A call that answers success although the system has refused it something has done what success says.",
    source="QnnCommon.h: QNN_SUCCESS; QNN_COMMON_ERROR_MEM_ALLOC, for what could not be done",
    subject="memory",
    cases=everything,
    weight=0.5,
)
def oom_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The calls that use what it has made succeed, and give the outputs that they give otherwise."""
    return _count(_refused(case, trace), lambda found: _demand_as_without(found, succeeded=True))


@rule(
    "OOM-04",
    Level.MUST,
    "A call during which the system refuses something does no damage to what there was before.",
    source="QnnCommon.h: QNN_COMMON_ERROR_MEM_ALLOC is the answer of one call; QnnGraph.h: QnnGraph_execute",
    subject="memory",
    cases=beside_others,
    weight=0.5,
)
def oom_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """A graph that was executed before gives the same again; memory that was registered is deregistered.

    What ordinary calls do to it is not this rule's: they are made before, and the graph executed behind them.
    """
    behind = [_described(step, seen) for _, step, seen in _refused(case, trace)]
    if not behind:
        return Examined(0, "objects that were there before")
    count = 0
    executes: list[tuple[int, StepSeen]] = []
    for index, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=False)):
        if isinstance(step, Execute):
            executes.append((index, seen))
        if isinstance(step, Deregister) and seen.code is not None:
            where = f"step {index}, behind {'; '.join(behind)}"
            if seen.code:
                wrong = f"memDeRegister answers {named(seen.code)}"
                raise Violation("success: the memory is still registered", wrong, where)
            count += 1
    if len(executes) == _EXECUTES and _is_same(executes[0][1], executes[1][1]):
        (_, before), _, (index, after) = executes
        where = f"step {index}, behind {'; '.join(behind)}"
        if not _is_same(before, after):
            wrong = f"graphExecute answers {named(after.code)}" if after.code else _output(after)
            raise Violation(f"as before, {_output(before)}", wrong, where)
        count += 1
    return Examined(count, "objects that were there before")


_EXECUTES = 3
"""At first, behind calls of which nothing was refused, and behind those of which something was."""


def _output(seen: StepSeen) -> str:
    return f"the output {seen.data[0].hex()}" if seen.data else seen.skipped


def _is_same(one: StepSeen, other: StepSeen) -> bool:
    return one.code == other.code == 0 and one.data == other.data


@rule(
    "OOM-05",
    Level.SHOULD,
    "A call that failed because the system refused something succeeds when it is made again.",
    source="QnnCommon.h: QNN_COMMON_ERROR_MEM_ALLOC; SQLite's tests of failed allocations are the model",
    subject="memory",
    cases=everything,
    weight=0.5,
)
def oom_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """And so do the calls that use what it has made then."""
    return _count(_refused(case, trace), lambda found: _demand_as_without(found, succeeded=False))


@rule(
    "OOM-06",
    Level.SHOULD,
    "A call that failed because the system refused something leaves nothing behind.",
    source="QnnCommon.h: QNN_COMMON_ERROR_MEM_ALLOC; no handle is given out that could be freed",
    subject="memory",
    cases=in_rounds,
    weight=0.2,
)
def oom_06(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The process does not grow over many such calls, unless it does so where nothing is refused."""
    count, why = 0, ""
    for where, step, seen in _refused(case, trace):
        failed = [call for call, code in seen.calls if code]
        if not failed:
            why = f"{' and '.join(call for call, _ in seen.calls)} succeed though a request is refused"
            continue
        counts = seen.counted(GrowthCounts)
        growth = beyond(counts)
        if growth is not None:
            expected = f"at most {growth.most} more {growth.what} after {counts.rounds} such calls"
            raise Measured(expected, f"{growth.seen} more", f"{where}, {_described(step, seen, failed)}")
        count += len(failed)
    if why and not count:
        raise Unsupported(why, final=False)
    return Examined(count, "calls that failed since a request was refused")

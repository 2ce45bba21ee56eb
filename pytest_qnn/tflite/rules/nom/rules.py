"""NOM: calls during which the system refuses a delegate memory, a mapping, a descriptor or a thread."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from pytest_qnn.core.rule import rule
from pytest_qnn.core.target import Resource
from pytest_qnn.core.verdict import (
    Examined,
    FailedCall,
    Level,
    Measured,
    Unsupported,
    Violation,
    WrongOutput,
)
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    MakeDelegate,
    Measure,
    Read,
    Refuse,
    Repeat,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.checks import judging, leaks, scripts
from pytest_qnn.tflite.checks.numbers import arithmetic, gravely_wrong
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.rules.nom.scripts import NEXT, OTHER, REFUSED, Strategy, lives, rounds
from pytest_qnn.tflite.strategies.lifetimes import FEW, KEYS, LEAST
from pytest_qnn.tflite.trace import NOT_REACHED, RefusedCounts, ScriptSeen, ScriptTrace

_NOT_THROWING: tuple[Resource, ...] = (
    *("any", "memory", "any", "any", "memory"),
    "mapping",
    "descriptor",
    "thread",
)
_EVERY: tuple[Resource, ...] = ("any", "memory", "new", "any", "memory", "any", "new", "mapping")
_STATUS = "tflite/core/c/common.h: Prepare, and init, prepare and invoke of a registration, tell of a failure"


def not_throwing(facts: DelegateFacts) -> Strategy:
    """NOM-01: what is asked for by functions that do not throw."""
    return lives(facts, _NOT_THROWING)


def throwing(facts: DelegateFacts) -> Strategy:
    """NOM-02: memory by operator new."""
    return lives(facts, ("new",))


def everything(facts: DelegateFacts) -> Strategy:
    """NOM-03 to NOM-05: any resource."""
    return lives(facts, _EVERY)


def in_rounds(facts: DelegateFacts) -> Strategy:
    """NOM-06: the same many times."""
    return rounds(facts, _EVERY)


_KINDS: dict[Resource, str] = {
    "memory": "malloc and its kin",
    "new": "operator new",
    "mapping": "mmap",
    "descriptor": "dup, memfd_create",
    "thread": "pthread_create",
}
_KINDS["any"] = ", ".join(_KINDS[each] for each in ("memory", "mapping", "descriptor", "thread"))
"""What of a delegate's can be refused, by its functions: `pytest_qnn.isolation.host.refusals`."""


class Found(NamedTuple):
    """A step during which a request was refused."""

    number: int
    """Of that step."""
    step: AnyScriptStep
    seen: ScriptSeen
    refuse: Refuse
    counts: RefusedCounts

    @property
    def told(self) -> str:
        """What was refused, and what the step gave, in words."""
        behind = " and each behind it" if self.refuse.lasting else ""
        answer = "succeeds" if self.seen.ok else f"fails: {judging.line(self.seen.message)}"
        return (
            f"request {self.counts.nth} of {self.counts.asked}{behind} refused ({self.refuse.what}) during "
            f"step {self.number} ({type(self.step).__name__}), which {answer}"
        )


def _refused(case: ScriptCase, trace: ScriptTrace) -> list[Found]:
    """The steps during which a request was refused.

    Raises:
        Unsupported: nothing can be refused, or nothing of the kind is asked for.
    """
    scripts.need_trace(trace)
    found, steps = [], scripts.numbered(case, trace)
    refusals = [each for each in steps if isinstance(each[1], Refuse) and each[2].counts is not None]
    for (number, refuse, seen), (_, step, given) in pairwise(steps):
        if not isinstance(refuse, Refuse):
            continue
        if seen.skipped == NOT_REACHED:
            continue
        if seen.skipped:
            raise Unsupported(seen.skipped)
        counts = seen.counted(RefusedCounts)
        if counts.refused:
            found.append(Found(number + 1, step, given, refuse, counts))
    if refusals and not any(seen.counted(RefusedCounts).asked for _, _, seen in refusals):
        kinds = dict.fromkeys(_KINDS[step.what] for _, step, _ in refusals if isinstance(step, Refuse))
        raise Unsupported(f"the delegate itself calls none of: {', '.join(kinds)}", final=False)
    return found


_WHAT = "calls of which a request was refused"


@rule(
    "NOM-01",
    Level.SHOULD,
    "A call during which the system refuses a delegate memory, a mapping, a descriptor or a thread returns, "
    "with success or an error.",
    source=f"{_STATUS}; c_api_types.h: kTfLiteError, kTfLiteDelegateError",
    subject="delegate",
    gate=("refusals",),
    cases=not_throwing,
    weight=0.5,
)
def returns(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Whoever comes here has returned."""
    return Examined(len(_refused(case, trace)), _WHAT)


@rule(
    "NOM-02",
    Level.MUST,
    "No C++ exception leaves a delegate's function: one that finds no memory by operator new answers with an "
    "error.",
    source=f"{_STATUS}; external_delegate_interface.h, extern C (functions of C do not throw)",
    subject="delegate",
    gate=("refusals",),
    cases=throwing,
    weight=0.5,
)
def throws_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """An exception ends the process, or passes the runtime: Python calls it MemoryError then."""
    found = _refused(case, trace)
    for each in found:
        if each.counts.thrown:
            raise Violation("an error, with a status", "std::bad_alloc leaves the delegate", each.told)
    return Examined(len(found), _WHAT)


def _judged(case: ScriptCase, trace: ScriptTrace) -> list[Found]:
    """As `_refused`; none where an exception was thrown, or where the life without a refusal goes wrong."""
    found = _refused(case, trace)
    if any(each.counts.thrown for each in found):
        return []
    first = min((each.number for each in found), default=0)
    wrong = _wrong(case, trace, OTHER, upto=first)
    if wrong:
        raise Unsupported(f"though nothing is refused: {wrong.seen}", final=False)
    return found


def _wrong(
    case: ScriptCase,
    trace: ScriptTrace,
    name: str,
    since: int = -1,
    upto: int | None = None,
    *,
    may_fail: bool = False,
) -> FailedCall | WrongOutput | None:
    """What goes wrong first with an interpreter between two steps: one fails, or reads no CPU's values.

    ``may_fail``: steps may, what is read must be right all the same.
    """
    inputs: tuple[Array, ...] = ()
    for number, step, seen in scripts.numbered(case, trace):
        if _of(case, step) != name or (upto is not None and number >= upto):
            continue
        if isinstance(step, SetInputs) and seen.ok:
            inputs = seen.outputs
        if number <= since or seen.skipped:
            continue
        where = f"interpreter {name}, step {number}"
        if not seen.ok and not may_fail:
            told = f"{type(step).__name__} fails: {judging.line(seen.message)}"
            return FailedCall("every step to succeed", told, where)
        if isinstance(step, Read) and seen.ok and seen.cpu and _fit(case, inputs):
            values = [array.numpy() for array in inputs]
            graph, computed = case.graphs[0], arithmetic(trace.facts)
            wrong = gravely_wrong(graph, values, seen.outputs, seen.cpu, computed)
            if wrong:
                return WrongOutput("the CPU's values", wrong, where)
    return None


def _fit(case: ScriptCase, inputs: tuple[Array, ...]) -> bool:
    """The inputs have the graph's shapes: they have not where a smaller case has lost a Resize."""
    graph = case.graphs[0]
    return [array.numpy().shape for array in inputs] == [graph.tensors[at].shape for at in graph.inputs]


def _of(case: ScriptCase, step: AnyScriptStep) -> str:
    """The interpreter that a step is about; of one that makes a delegate the one that it is applied to."""
    if isinstance(step, MakeDelegate):
        users = (each for each in flat(case.steps) if isinstance(each, Apply))
        return next((each.interpreter for each in users if each.delegate == step.delegate), "")
    return named(step, "interpreter")


def _raise(wrong: Violation | None, expected: str, found: Found) -> None:
    """Raises what is wrong, told with what was refused before."""
    if wrong is not None:
        raise type(wrong)(expected, wrong.seen, f"{wrong.where}, behind {found.told}")


@rule(
    "NOM-03",
    Level.MUST,
    "What succeeds although the system has refused the delegate something has done what success says: "
    "results are those of the CPU, now and later.",
    source="tflite/core/c/c_api_types.h: kTfLiteOk is success; common.h, invoke of a registration",
    subject="delegate",
    gate=("refusals",),
    cases=everything,
    weight=0.5,
)
def has_done_what_success_says(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at all later steps of the same interpreter.

    A kernel's init has told that it failed, whatever the runtime makes of it: 2.14 looks at what init returns
    no sooner than the kernel is prepared, which of a delegate that allows dynamic tensors is in a later step.
    """
    found = _judged(case, trace)
    for each in found:
        told = _tells_in_init(trace, each)
        wrong = _wrong(case, trace, REFUSED, since=each.number, may_fail=told) if each.seen.ok else None
        _raise(wrong, "an error of the call, or what it is for", each)
    return Examined(len(found), _WHAT)


def _tells_in_init(trace: ScriptTrace, found: Found) -> bool:
    """Whether a kernel's init has failed in the step, or may have: on 2.14, where nobody listens to it."""
    if isinstance(found.step, Apply) and not found.step.spied:
        return trace.facts is not None and trace.facts.runtime == "tflite_runtime"
    return any(
        event.kind == "init" and event.status and number == found.number
        for seen in trace.interpreters
        for event, number in zip(seen.events, seen.event_steps, strict=True)
    )


@rule(
    "NOM-04",
    Level.SHOULD,
    "A call during which the system refuses a delegate something does no damage to other interpreters with "
    "delegates of their own, made before or after.",
    source="tflite/core/interpreter.h: an interpreter knows of no other one; c_api_types.h: kTfLiteError is "
    "the answer of one call",
    subject="delegate",
    gate=("refusals",),
    cases=everything,
    weight=0.5,
)
def damages_no_others(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at one that has worked before, and at a new one, unless that is how the call is made again."""
    found = _judged(case, trace)
    for each in found:
        expected = "an interpreter that works as it does where nothing is refused"
        _raise(_wrong(case, trace, OTHER, since=each.number), expected, each)
        if not _is_retried_by_next(each) and _retried(case, trace, each) is None:
            _raise(_wrong(case, trace, NEXT), expected, each)
    return Examined(len(found), _WHAT)


def _is_retried_by_next(found: Found) -> bool:
    """A delegate that failed to prepare a graph is given up: another one replaces it elsewhere."""
    return isinstance(found.step, Apply | Allocate) and not found.seen.ok


def _retried(case: ScriptCase, trace: ScriptTrace, found: Found) -> FailedCall | WrongOutput | None:
    """What goes wrong with the call that failed once it is made again."""
    if found.seen.ok or not _of(case, found.step):
        return None
    if not _is_retried_by_next(found):
        return _wrong(case, trace, REFUSED, since=found.number)
    may_fail = isinstance(found.step, Apply)
    restored = _wrong(case, trace, REFUSED, since=found.number, may_fail=may_fail)
    return restored or _wrong(case, trace, NEXT)


@rule(
    "NOM-05",
    Level.SHOULD,
    "A call that failed because the system refused the delegate something succeeds when it is made again, "
    "with right results; a graph whose delegation failed gives those of the CPU or a clean error.",
    source="tflite/core/interpreter.h, ModifyGraphWithDelegate: kTfLiteDelegateError (the graph is restored)"
    "; no document says that a failed call ends a delegate",
    subject="delegate",
    gate=("refusals",),
    cases=everything,
    weight=0.5,
)
def succeeds_when_made_again(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Create, AllocateTensors and Invoke are called again; a new delegate is applied to a new interpreter."""
    found = _judged(case, trace)
    for each in found:
        _raise(
            _retried(case, trace, each), "success of the call that is made again, with right results", each
        )
    return Examined(len(found), _WHAT)


@rule(
    "NOM-06",
    Level.SHOULD,
    "A call that failed because the system refused the delegate something leaves nothing behind.",
    source="tflite/core/subgraph.cc, Subgraph::~Subgraph and CleanupNode; external_delegate_interface.h, "
    "tflite_plugin_destroy_delegate",
    subject="delegate",
    gate=("refusals",),
    cases=in_rounds,
    weight=0.2,
)
def failures_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """The process grows no more than over lives of a probe that fails, and over those without a refusal."""
    found = [each for each in _refused(case, trace) if not each.seen.ok and not each.counts.thrown]
    for each in found:
        _nothing_left(case, trace, each)
    return Examined(len(found), "lives with calls that failed because a request was refused")


_MEASURES = 7
_PART = [True, *([True, False] * _MEASURES)]
"""Of `lifetimes.repetitions`: what repeats, and what measures."""
_PARTS = 3
"""Lives with the refusal, of a probe that fails, and of the target without the refusal."""


def _nothing_left(case: ScriptCase, trace: ScriptTrace, found: Found) -> None:
    """Raises Measured where each pair of repetitions leaves as much more as if every life left something."""
    steps = [step for step in case.steps if isinstance(step, Measure | Repeat)]
    values = scripts.measured(case, trace)
    times = max((step.times for step in steps if isinstance(step, Repeat)), default=0)
    whole = [isinstance(step, Repeat) for step in steps] == _PART * _PARTS
    if not whole or times < leaks.LEAST_TIMES or len(values) < _MEASURES * _PARTS:
        return  # nothing was kept that could be compared, or the case was made smaller
    for key in KEYS:
        counts: list[int | None] = [getattr(each, key) for each in values]
        known = [each for each in counts if each is not None]
        if len(known) < len(counts) or (key == "malloc" and values[0].arena is not None):
            continue
        parts = [known[at : at + _MEASURES] for at in range(0, len(known), _MEASURES)]
        target, *others = map(leaks.surplus, parts)
        usual = max(0, *map(min, others))
        least = LEAST[key] * (times - FEW)
        if leaks.regular(key, target, least) and leaks.is_left(parts[0]) and min(target) - usual >= least:
            told = " and ".join(", ".join(map(str, other)) for other in others)
            raise Measured(
                f"as many {leaks.WORDS[key]} in use after such a life as before it",
                leaks.more(key, target, times - FEW),
                f"a probe that fails, and the target without a refusal, leave {told}; {found.told}",
            )

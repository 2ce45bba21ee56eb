"""THR: delegates and interpreters on several threads. The runtimes' Python releases its lock in invoke."""

from __future__ import annotations

import math
import operator

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Measured, Unsupported, WrongOutput
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Close,
    DestroyDelegate,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Parallel,
    PlainStep,
    Read,
    Repeat,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.checks import scripts
from pytest_qnn.tflite.checks.judging import line
from pytest_qnn.tflite.checks.numbers import arithmetic, gravely_wrong
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.scales import MUCH_WORK
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.lifetimes import make_target
from pytest_qnn.tflite.trace import ScriptTrace

_WRAPPER = "tflite/python/interpreter_wrapper (invoke lets go of Python's lock, the rest keeps it)"
_THREADS = "tflite/core/c/common.h, TfLiteContext.recommended_num_threads"
_WHAT = "outputs read on threads"

Strategy = SearchStrategy[ScriptCase]
NAMES = ("i0", "i1", "i2")
Plain = tuple[PlainStep, ...]
_TURNS = 3
"""Times that each thread sets inputs of its own, invokes and reads."""
_INVOKES = 3
"""In a row, of each thread, where only what the last of them gives is read."""
_ROOM = 8_000_000
"""Bytes of contents in a trace: more than this and what is around it no child can answer."""
_LARGE = (MUCH_WORK,) * 4
"""A quarter of the graphs: what computes for microseconds is hardly ever at work on two threads at once."""


def _use(interpreter: str, seed: int) -> Plain:
    return (SetInputs(interpreter, seed), Invoke(interpreter), Read(interpreter))


def _turns(interpreter: str, seed: int) -> Plain:
    return tuple(step for turn in range(_TURNS) for step in _use(interpreter, seed + turn))


def _side_by_side(case: DelegateCase, opening: list[AnyScriptStep]) -> ScriptCase:
    """Each thread sets inputs of its own; then, with inputs that are there, all invoke from a barrier on.

    Setting inputs and reading keep Python's lock for longer than most invokes take.
    """
    steps = [*opening, Parallel(tuple(_use(name, _seed(case, at, 0)) for at, name in enumerate(NAMES)))]
    for turn in range(1, _turns_in(case.graph)):
        steps += (SetInputs(name, _seed(case, at, turn)) for at, name in enumerate(NAMES))
        steps.append(Parallel(tuple((*(Invoke(name),) * _INVOKES, Read(name)) for name in NAMES)))
    return ScriptCase((case.graph,), tuple(steps))


def _turns_in(graph: Graph) -> int:
    """As many turns as a trace has room for: it has what each thread sets, and twice what each reads."""
    tensors = [graph.tensors[index] for index in (*graph.inputs, *graph.outputs, *graph.outputs)]
    turn = len(NAMES) * sum(4 * math.prod(tensor.shape) for tensor in tensors)
    return max(1, min(_TURNS, _ROOM // max(1, turn)))


def _seed(case: DelegateCase, thread: int, turn: int) -> int:
    return case.data_seed + 16 * thread + turn


def _ready(interpreter: str, delegate: str) -> Plain:
    return (Open(interpreter), Apply(interpreter, delegate), Allocate(interpreter))


def apart(facts: DelegateFacts) -> Strategy:
    """Interpreters with a delegate each are invoked side by side."""

    def make(case: DelegateCase) -> ScriptCase:
        opening: list[AnyScriptStep] = []
        for at, name in enumerate(NAMES):
            target = msgspec.structs.replace(make_target(facts, case), delegate=f"d{at}")
            opening += (target, *_ready(name, f"d{at}"))
        return _side_by_side(case, opening)

    return changed(delegates.routing(facts, scaled=_LARGE), make)


@rule(
    "THR-01",
    Level.MUST,
    "Interpreters, each with a delegate of its own, may be invoked at the same time.",
    source=f"{_WRAPPER}; tflite/core/interpreter.h (an interpreter at a time is one thread's)",
    subject="delegate",
    cases=apart,
    weight=0.5,
)
def works_side_by_side(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Three threads, each with inputs of its own: looks at what each reads."""
    scripts.need_trace(trace)
    return Examined(_judge(case, trace), _WHAT)


def together(facts: DelegateFacts) -> Strategy:
    """Interpreters with one delegate are invoked side by side."""

    def make(case: DelegateCase) -> ScriptCase:
        opening: list[AnyScriptStep] = [make_target(facts, case)]
        for name in NAMES:
            opening += _ready(name, "d0")
        return _side_by_side(case, opening)

    return changed(delegates.routing(facts, scaled=_LARGE), make)


@rule(
    "THR-02",
    Level.SHOULD,
    "One delegate applied to interpreters on several threads is safe, or refused with an error.",
    source=f"{_WRAPPER}; tflite/core/interpreter.h, ModifyGraphWithDelegate",
    subject="delegate",
    cases=together,
    weight=0.5,
)
def is_shared_by_threads(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Three threads whose interpreters have one delegate: looks at what each reads."""
    scripts.need_trace(trace)
    return Examined(_judge(case, trace, "one delegate is not shared by threads"), _WHAT)


def churning(facts: DelegateFacts) -> Strategy:
    """Delegates and interpreters come and go on one thread while another one invokes."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        other = msgspec.structs.replace(make_target(facts, case), delegate="d1")
        coming = (other, *_ready("i1", "d1"), SetInputs("i1", seed + 9), Invoke("i1"), Read("i1"))
        going = (Close("i1"), DestroyDelegate("d1"))
        churn = Repeat(_TURNS, (*coming, *going))
        steps = (make_target(facts, case), *_ready("i0", "d0"))
        return ScriptCase((case.graph,), (*steps, Parallel((_turns("i0", seed), (churn,)))))

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "THR-03",
    Level.SHOULD,
    "A delegate may be made, applied and destroyed while another one works on another thread.",
    source=_WRAPPER,
    subject="delegate",
    cases=churning,
    weight=0.5,
)
def comes_and_goes_beside_others(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what both threads read."""
    scripts.need_trace(trace)
    return Examined(_judge(case, trace), _WHAT)


def handed_over(facts: DelegateFacts) -> Strategy:
    """An interpreter is made on one thread, used on another, and then on the first again."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        ready: tuple[AnyScriptStep, ...] = _ready("i0", "d0")
        if seed & 1:
            ready = (Parallel((_ready("i0", "d0"),)),)
        elsewhere = Parallel((_use("i0", seed),))
        steps = (make_target(facts, case), *ready, *_use("i0", seed + 1), elsewhere, *_use("i0", seed + 2))
        return ScriptCase((case.graph,), steps)

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "THR-04",
    Level.SHOULD,
    "An interpreter may be made on one thread and invoked on another; else there is an error.",
    source="tflite/core/interpreter.h; tflite/delegates/gpu/delegate.cc (on another thread: an error)",
    subject="delegate",
    cases=handed_over,
    weight=0.5,
)
def may_change_threads(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what is read before, on the other thread and after it."""
    scripts.need_trace(trace)
    return Examined(_judge(case, trace, "an interpreter is not handed to another thread"), _WHAT)


_MOST_THREADS = 4


def counted(facts: DelegateFacts) -> Strategy:
    """Threads are counted, with an interpreter that may use so many: on the CPU, then with the delegate."""

    def make(case: DelegateCase) -> ScriptCase:
        threads = 1 + case.data_seed % _MOST_THREADS
        plain = (Open("i0", threads=threads), Allocate("i0"), *_use("i0", case.data_seed))
        target = (make_target(facts, case), Open("i1", threads=threads), Apply("i1", "d0"), Allocate("i1"))
        use = (*_use("i1", case.data_seed), Invoke("i1"))
        ends = (Close("i1"), DestroyDelegate("d0"), Measure(like=1), Close("i0"))
        steps = (Measure(), *plain, Measure(), *target, *use, Measure(), *ends)
        return ScriptCase((case.graph,), steps)

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "THR-05",
    Level.SHOULD,
    "A delegate has no more worker threads than it is allowed, and none after it was destroyed.",
    source=f"{_THREADS}; external_delegate_interface.h, tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=counted,
    weight=0.3,
)
def threads_are_counted(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at /proc/self/task.

    As many threads as an interpreter without the delegate starts are the runtime's, and each interpreter has
    its own. Besides, allowed are as many as the interpreter has, or as an option ``num_threads`` says.
    """
    scripts.need_trace(trace)
    found = scripts.measured(case, trace)
    if not _is_whole(case, trace) or not scripts.target_invokes(trace, "i1"):
        return Examined(0, "threads counted")
    allowed = _allowed(case, trace)
    first, before, during, after = (counts.threads for counts in found)
    more = during - before - (before - first)
    if more > allowed:
        wanted = f"at most {allowed} threads more with the delegate than without it"
        raise Measured(wanted, f"{more} more")
    if after > before:
        raise Measured(
            "no thread left of a delegate that was destroyed", f"{after - before} more than before it"
        )
    return Examined(1, "threads counted")


def _is_whole(case: ScriptCase, trace: ScriptTrace) -> bool:
    """Whether both interpreters work and the delegate ends in time: steps may have been taken away."""
    parts: list[set[tuple[type[AnyScriptStep], str]]] = [set()]
    for _, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Measure):
            parts.append(set())
        elif seen.ok and not seen.skipped:
            parts[-1].add((type(step), named(step, "interpreter") or named(step, "delegate")))
    wanted: list[set[tuple[type[AnyScriptStep], str]]] = [
        set(),
        {(Invoke, "i0")},
        {(MakeDelegate, "d0"), (Invoke, "i1")},
        {(Close, "i1"), (DestroyDelegate, "d0")},
        set(),
    ]
    return len(parts) == len(wanted) and all(map(operator.ge, parts, wanted))


def _allowed(case: ScriptCase, trace: ScriptTrace) -> int:
    asked = [step.threads for step in flat(case.steps) if isinstance(step, Open)]
    options = trace.facts.options if trace.facts else ()
    said = [value for one in options for key, value in one if key == "num_threads" and value.isdecimal()]
    return max([*asked, *map(int, said)])


def unspied(facts: DelegateFacts) -> Strategy:
    """Delegates are applied, with nothing of the suite's in between, while another thread of Python runs."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        busy = (Open("i1"), Allocate("i1"), SetInputs("i1", seed), Invoke("i1"), Close("i1"))
        ready = (Open("i0"), Apply("i0", "d0", spied=False), Allocate("i0"), *_use("i0", seed))
        branches = Parallel((ready, (Repeat(_TURNS, busy),)))
        return ScriptCase((case.graph,), (make_target(facts, case), branches))

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "THR-06",
    Level.MUST,
    "Prepare of a delegate and of its kernels do not wait for a thread that needs Python's global "
    "interpreter lock.",
    source=f"{_WRAPPER}: ModifyGraphWithDelegate and allocate_tensors keep it",
    subject="delegate",
    cases=unspied,
    weight=0.3,
)
def preparing_waits_for_nobody(case: ScriptCase, trace: ScriptTrace) -> Examined:  # noqa: ARG001 - as all checks
    """A delegate that waits so never answers: a hang.

    Looks at applications that nothing of the suite's stood in the way of, beside another thread of Python.
    """
    scripts.need_trace(trace)
    found = scripts.interpreter(trace)
    if found is None or not found.applied or not found.applied[0].ok:
        return Examined(0, "kernels prepared")
    kernels = sum(node.owner == 0 for node in found.applied[0].plan_after)
    return Examined(kernels, "kernels prepared")


def _judge(case: ScriptCase, trace: ScriptTrace, refused: str = "") -> int:
    """Judge everything that was read; how often that was, with kernels of the target.

    Raises:
        Unsupported: something failed, and may: ``refused`` says what it means.
        Violation: something failed that must not, or an output is gravely wrong.
    """
    opened = {step.interpreter: step.graph for step in flat(case.steps) if isinstance(step, Open)}
    contents: dict[str, tuple[Array, ...]] = {}
    inputs: dict[str, tuple[Array, ...]] = {}
    judged, others = 0, case.history.kept if case.history else 0
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, MakeDelegate) and others and not seen.ok and not seen.skipped:
            raise Unsupported(f"no other delegate is made beside one: {line(seen.message)}", final=False)
        others += isinstance(step, MakeDelegate)
        if not seen.ok and not seen.skipped:
            _failed(type(step).__name__, seen.message, number, refused)
        if isinstance(step, SetInputs):
            contents[step.interpreter] = seen.outputs
        if isinstance(step, Invoke) and seen.ok and not seen.skipped and step.interpreter in contents:
            inputs[step.interpreter] = contents[step.interpreter]
        if not isinstance(step, Read) or not seen.ok or not seen.cpu or step.interpreter not in inputs:
            continue
        graph, given = case.graphs[opened[step.interpreter]], inputs[step.interpreter]
        for read in (seen, seen.first or seen):
            values = [array.numpy() for array in given]
            wrong = gravely_wrong(graph, values, read.outputs, read.cpu, arithmetic(trace.facts))
            if wrong:
                raise WrongOutput("the CPU's values", wrong, f"interpreter {step.interpreter}, step {number}")
        judged += any(_works(trace, step.interpreter))
    return judged


def _works(trace: ScriptTrace, name: str) -> list[bool]:
    """For each kernel of an interpreter, whether it is the target's."""
    found = scripts.interpreter(trace, name)
    return [found.applied[kernel.application].is_target for kernel in found.kernels] if found else []


def _failed(what: str, message: str, number: int, refused: str) -> None:
    if refused:
        raise Unsupported(f"{refused}: {what} failed: {line(message)}", final=False)
    raise FailedCall("every step to succeed", f"{what} failed: {line(message)}", f"step {number}")

"""OWN: how long delegates live, and what their end leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pytest_qnn.core.drawing import changed, decoded
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation, WrongOutput
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
    Open,
    PassToConstructor,
    Read,
    ScriptCase,
    SetInputs,
    Unload,
)
from pytest_qnn.tflite.checks import judging, leaks, scripts
from pytest_qnn.tflite.checks.numbers import arithmetic, gravely_wrong, outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.constants import with_other_constants
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import decode_graph, size_of
from pytest_qnn.tflite.strategies import delegates, lifetimes
from pytest_qnn.tflite.strategies.claimed import claimed_kinds
from pytest_qnn.tflite.strategies.lifetimes import (
    KEYS,
    Plain,
    Strategy,
    make_probe,
    make_target,
    measured_script,
)
from pytest_qnn.tflite.trace import LentCounts, ScriptSeen, ScriptTrace

_PLUGIN = "tflite/delegates/external/external_delegate_interface.h"
_OWNER = "tflite/core/interpreter.h, ModifyGraphWithDelegate (the delegate outlives the interpreter)"


def given_to_constructor(facts: DelegateFacts) -> Strategy:
    """A probe is given to an interpreter's constructor, and kept nowhere else."""

    def make(case: DelegateCase) -> ScriptCase:
        return ScriptCase((case.graph,), (make_probe(case), PassToConstructor("p0")))

    return changed(delegates.anything(facts), make)


@rule(
    "OWN-01",
    Level.MUST,
    "An interpreter keeps alive the delegates that its constructor was given, and releases them at its own "
    "end.",
    source=f"{_OWNER}; interpreter.py, Interpreter(experimental_delegates)",
    subject="delegate",
    cases=given_to_constructor,
    self_check=True,
    weight=0.5,
)
def interpreters_keep_delegates(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the Python object of a probe that nobody else holds."""
    scripts.need_trace(trace)
    given = [
        seen
        for _, step, seen in scripts.numbered(case, trace)
        if isinstance(step, PassToConstructor) and seen.ok
    ]
    for seen in given:
        counts = seen.counted(LentCounts)
        if not counts.kept:
            raise Violation("the delegate alive while the interpreter is", "it was freed")
        if not counts.released:
            raise Violation("the delegate freed with the interpreter", "it was not")
    return Examined(len(given), "delegates lent")


@rule(
    "OWN-02",
    Level.MUST,
    "Destroying a delegate after its interpreters releases its memory, threads, descriptors and mappings.",
    source=f"{_PLUGIN}, tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=lifetimes.cycles("i0", "i1"),
    weight=0.05,
)
def destroy_gives_everything_back(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 and /proc after delegates that served two interpreters each."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, "delegates destroyed")
    return Examined(
        leaks.nothing_left(case, trace, KEYS, "a delegate of two interpreters"),
        "delegates destroyed",
    )


def unapplied(facts: DelegateFacts) -> Strategy:
    """A delegate is made and destroyed, again and again; nothing else."""

    def make(case: DelegateCase) -> ScriptCase:
        return measured_script(facts, case, lambda target: (target, DestroyDelegate(target.delegate)))

    return changed(delegates.anything(facts), make)


@rule(
    "OWN-03",
    Level.MUST,
    "Making a delegate and destroying it without applying it does no harm and leaves nothing behind.",
    source=f"{_PLUGIN}, tflite_plugin_create_delegate and tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=unapplied,
    weight=0.05,
)
def unused_delegates_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 and /proc after delegates that were never applied."""
    scripts.need_trace(trace)
    made = [
        seen
        for _, step, seen in scripts.numbered(case, trace)
        if isinstance(step, MakeDelegate) and step.who == "target"
    ]
    failed = next((seen.message for seen in made if not seen.ok), "")
    if failed or not made:
        raise Unsupported(f"the delegate cannot be made: {failed}", final=False)
    return Examined(leaks.nothing_left(case, trace, KEYS, "an unused delegate"), "delegates never applied")


def _use(interpreter: str, seed: int) -> Plain:
    return (SetInputs(interpreter, seed), Invoke(interpreter), Read(interpreter))


_LATE = "late"
"""The interpreter that begins when another one has ended."""


def interleaved(facts: DelegateFacts) -> Strategy:
    """One delegate on two or three interpreters, which end in another order than they began.

    In every second case one more begins when the first of them has ended: of the same graph with other
    constants, where it has some.
    """

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        names = ("i0", "i1", "i2")[: 2 + seed % 2]
        steps: list[AnyScriptStep] = [make_target(facts, case)]
        for name in names:
            steps += (Open(name), Apply(name, "d0"), Allocate(name))
        steps += (step for at, name in enumerate(names) for step in _use(name, seed + at))
        order = names if seed & 4 else (*names[1:], names[0])
        other = with_other_constants(case.graph) if seed & 8 else case.graph
        if other != case.graph:
            begun = (Open(_LATE, 1), Apply(_LATE, "d0"), Allocate(_LATE), *_use(_LATE, seed + 16))
            steps += (Close(order[0]), *begun)
            order = (*order[1:], _LATE)
        for at, name in enumerate(order[:-1]):
            steps.append(Close(name))
            steps += (step for later in order[at + 1 :] for step in _use(later, seed + 8 + at))
        steps.append(Close(order[-1]))
        return ScriptCase((case.graph, other) if other != case.graph else (case.graph,), tuple(steps))

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "OWN-04",
    Level.SHOULD,
    "Interpreters of one delegate may be destroyed in any order while the others still work; or the second "
    "interpreter is refused.",
    source=f"{_OWNER}; TfLiteRegistration.free: what init returned is the kernel's own",
    subject="delegate",
    cases=interleaved,
)
def ends_do_not_disturb_others(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what the other interpreters compute after the end of one."""
    scripts.need_trace(trace)
    ended = [number for number, step, _ in scripts.numbered(case, trace) if isinstance(step, Close)]
    for name in scripts.names(case):
        _need_application(case, trace, name, "one delegate is not applied to several interpreters")
    looked_at = 0
    for name in scripts.names(case):
        looked_at += _judge_reads(case, trace, name, min(ended, default=len(trace.steps)))
    return Examined(looked_at, "outputs read after the end of another interpreter")


def _is_library(facts: DelegateFacts, position: int) -> bool:
    return "/" in "".join(facts.delegates[position : position + 1])


def made_again(facts: DelegateFacts) -> Strategy:
    """A delegate is made, used and destroyed; another one is; and one after its library was unloaded."""

    def make(case: DelegateCase) -> ScriptCase:
        steps: list[AnyScriptStep] = []
        for time in range(3):
            target = msgspec.structs.replace(make_target(facts, case), delegate=f"d{time}")
            if time == 2 and _is_library(facts, target.position):
                steps.append(Unload(target.position))
            name = f"i{time}"
            ready = (Open(name), Apply(name, target.delegate), Allocate(name))
            ends = (Close(name), DestroyDelegate(target.delegate))
            steps += (target, *ready, *_use(name, case.data_seed + time), *ends)
        return ScriptCase((case.graph,), tuple(steps))

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "OWN-05",
    Level.SHOULD,
    "After a delegate was destroyed, a new one works and claims as the first did; also after the library was "
    "unloaded.",
    source=f"{_PLUGIN} (both functions may be called any number of times); dlclose(3)",
    subject="delegate",
    cases=made_again,
)
def can_be_made_again(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what the second and third delegate claim and compute.

    A library is unloaded before the third one: code of it that still runs, or is called, ends the process.
    """
    scripts.need_trace(trace)
    _need_application(case, trace, "i0", "the first delegate does not work")
    first = scripts.interpreter(trace, "i0")
    if first is None or not first.kernels:
        return Examined(0, "delegates made again")
    looked_at = 0
    for name in scripts.names(case)[1:]:
        own = _delegate_of(case, name)
        if not _is_made_alone(case, trace, own):
            continue
        seen, found = scripts.view(case, trace, name), scripts.interpreter(trace, name)
        made = [
            one
            for _, one, step in scripts.numbered(case, trace)
            if isinstance(one, MakeDelegate) and one.delegate == own and not step.ok and not step.skipped
        ]
        if made or seen is None or found is None or not found.applied:
            if made:
                raise Violation("a new delegate to be made", "it was not", f"delegate {made[0].delegate}")
            continue
        failed = judging.blame(seen[1]) or judging.failure(seen[1])
        if failed:
            raise FailedCall("a new delegate to work as the first did", failed, f"interpreter {name}")
        claims = [[kernel.nodes for kernel in one.kernels] for one in (first, found)]
        if claims[0] != claims[1]:
            raise Violation(f"kernels of the nodes {claims[0]}, as the first", str(claims[1]), name)
        looked_at += _judge_reads(case, trace, name, 0)
    return Examined(looked_at, "delegates made again")


def _delegate_of(case: ScriptCase, name: str) -> str:
    """The delegate that is applied to an interpreter; empty: none is."""
    applied = (step for step in case.steps if isinstance(step, Apply) and step.interpreter == name)
    return next((step.delegate for step in applied), "")


def _is_made_alone(case: ScriptCase, trace: ScriptTrace, own: str) -> bool:
    """Every delegate made before this one was destroyed before it: a reduced case may leave them alive."""
    live: set[str] = set()
    for _, step, seen in scripts.numbered(case, trace):
        if isinstance(step, MakeDelegate):
            if step.delegate == own:
                return not live
            live.add(step.delegate)
        elif isinstance(step, DestroyDelegate) and not seen.skipped:
            live.discard(step.delegate)
    return False


_ALIVE = (36, 64) + (2,) * 3
"""Interpreters that live at the same time, by fifths of a byte: as many as ended an application (LiteRT issue
38), of which the first case is, so that every search meets them; as many as no table of 36 to 63 has; two."""
_MODELS = 4
"""Different models, by turns."""
_NODES = 3
"""Of a model at most."""
_LAST = "last"
"""The interpreter, and its delegate, that begin when all others have ended."""


def alive_together(facts: DelegateFacts) -> Strategy:
    """36, 64 or two interpreters of up to four models, each with a delegate of its own; then one more."""
    kinds = claimed_kinds(facts)
    size = size_of(_NODES, 0)

    def model(data: bytes, number: int) -> Graph:
        header = bytearray(data)
        header[2] = (header[2] + number) % 256  # another shape: models of the same bytes are two
        return delegates.plain_case(decode_graph(bytes(header), kinds, 0, 1, _NODES)[0])

    def decode(data: bytes) -> ScriptCase:
        parts = (data[start : start + size] for start in range(3, 3 + _MODELS * size, size))
        models = tuple(dict.fromkeys(model(part, number) for number, part in enumerate(parts)))
        position = data[1] % max(1, len(facts.delegates))
        count = _ALIVE[data[0] * len(_ALIVE) // 256]
        return ScriptCase(models, _together(len(models), count, position, data[2]))

    return decoded(3 + _MODELS * size, decode)


def _together(models: int, count: int, position: int, seed: int) -> tuple[AnyScriptStep, ...]:
    """All are made ready before the inputs of any are set, all invoked before the outputs of any are read."""
    numbers = range(count)
    steps: list[AnyScriptStep] = []
    for at in numbers:
        steps += (MakeDelegate(f"d{at}", position=position), *_ready(f"i{at}", f"d{at}", at % models))
    steps += (SetInputs(f"i{at}", seed + at) for at in numbers)
    steps += (Invoke(f"i{at}") for at in numbers)
    steps += (Read(f"i{at}") for at in numbers)
    steps += (Close(f"i{at}") for at in numbers)
    steps += (DestroyDelegate(f"d{at}") for at in numbers)
    ready = (MakeDelegate(_LAST, position=position), *_ready(_LAST, _LAST, count % models))
    return (*steps, *ready, *_use(_LAST, seed))


def _ready(interpreter: str, delegate: str, model: int) -> Plain:
    return (Open(interpreter, model), Apply(interpreter, delegate), Allocate(interpreter))


_UNREFUSED = 2
"""Interpreters that must work at the same time, where each does alone."""


@rule(
    "OWN-06",
    Level.SHOULD,
    "Interpreters of different models, each with a delegate of its own, work while the others live: two in "
    "any case, and of more each works or is refused with an error; when they are gone, a new one works.",
    source="tflite/core/interpreter.h (an interpreter knows of no other one); c_api.h, "
    "TfLiteInterpreterOptionsAddDelegate (a delegate lives as long as its interpreters, and no longer); "
    "no document says how many may live at once",
    subject="delegate",
    cases=alive_together,
    weight=0.2,
)
def work_while_others_live(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what each interpreter computes when all are alive, and at one more after them.

    The first that is refused is PART-04's. A second one that is refused is a finding: it works alone, as the
    controls show. From the third on, a refusal (of making the delegate, of applying it, or of
    allocate_tensors) is a limit that is reported to the application. What was accepted must work.
    """
    scripts.need_trace(trace)
    refused = _refusals(case, trace)
    first = next(iter(scripts.names(case)), "")
    if first in refused:
        raise Unsupported(f"the delegate does not work with one interpreter: {refused[first]}", final=False)
    for name, others in _others(case).items():
        if name in refused and others < _UNREFUSED:
            expected = f"a delegate that works beside {others} others, or after they have gone"
            raise FailedCall(expected, refused[name], f"interpreter {name}")
    judged = [
        _judge_read(case, trace, read) for read in _reads(case, trace) if read.interpreter not in refused
    ]
    return Examined(sum(judged) if sum(judged) > 1 else 0, "outputs of interpreters that live together")


def _others(case: ScriptCase) -> dict[str, int]:
    """By interpreter, in the order of opening: how many are alive already."""
    found: dict[str, int] = {}
    alive = 0
    for step in case.steps:
        if isinstance(step, Open):
            found[step.interpreter] = alive
        alive += isinstance(step, Open) - isinstance(step, Close)
    return found


def _refusals(case: ScriptCase, trace: ScriptTrace) -> dict[str, str]:
    """By interpreter: why it is not to have its delegate. Nothing of one that has it, or was to have none."""
    users = {step.delegate: step.interpreter for step in case.steps if isinstance(step, Apply)}
    found: dict[str, str] = {}
    for _, step, seen in scripts.numbered(case, trace):
        name = users.get(step.delegate, "") if isinstance(step, MakeDelegate) else named(step, "interpreter")
        if isinstance(step, MakeDelegate | Apply | Allocate) and not seen.ok and not seen.skipped:
            found.setdefault(name, f"{type(step).__name__} failed: {judging.line(seen.message)}")
    return found


class _OneRead(NamedTuple):
    """What an interpreter has computed."""

    number: int
    """Of the step that read it; of the one that failed."""
    interpreter: str
    graph: Graph
    inputs: tuple[Array, ...]
    seen: ScriptSeen
    """Of the read, or of the invoke that failed."""


def _reads(case: ScriptCase, trace: ScriptTrace) -> Iterator[_OneRead]:
    """What was read, and what could not be because an invoke failed; in one pass, of hundreds of steps."""
    graphs: dict[str, Graph] = {}
    inputs: dict[str, tuple[Array, ...]] = {}
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Open):
            graphs[step.interpreter] = case.graphs[step.graph % len(case.graphs)]
        elif isinstance(step, SetInputs) and seen.ok:
            inputs[step.interpreter] = seen.outputs
        elif isinstance(step, Read) or (isinstance(step, Invoke) and not seen.ok):
            name = step.interpreter
            if not seen.skipped and name in inputs:
                yield _OneRead(number, name, graphs[name], inputs[name], seen)


def _judge_read(case: ScriptCase, trace: ScriptTrace, read: _OneRead) -> bool:
    """Whether a kernel of the target had a part in it. Raises FailedCall or WrongOutput."""
    where = f"interpreter {read.interpreter}, step {read.number}"
    if not read.seen.ok:
        raise FailedCall("every invoke to succeed", judging.line(read.seen.message), where)
    found = scripts.interpreter(trace, read.interpreter)
    if found is None or not any(found.applied[kernel.application].is_target for kernel in found.kernels):
        return False
    values = [array.numpy() for array in read.inputs]
    wrong = gravely_wrong(read.graph, values, read.seen.outputs, read.seen.cpu, arithmetic(trace.facts))
    if wrong:
        raise WrongOutput(f"the CPU's values, beside {len(scripts.names(case)) - 1} others", wrong, where)
    return True


def _need_application(case: ScriptCase, trace: ScriptTrace, name: str, reason: str) -> None:
    """Raises Unsupported where the delegate was refused."""
    seen = scripts.view(case, trace, name)
    failed = judging.failure(seen[1]) if seen else "the interpreter was not opened"
    if seen is None or not all(one.ok for one in seen[1].applied) or not seen[1].applied:
        raise Unsupported(f"{reason}: {failed or 'it was not tried'}", final=False)


def _judge_reads(case: ScriptCase, trace: ScriptTrace, name: str, since: int) -> int:
    """Judge what was read of an interpreter after a step; how many times.

    Raises:
        Violation: something failed, or an output is gravely wrong.
    """
    whole = scripts.view(case, trace, name)
    found = scripts.interpreter(trace, name)
    if whole is None or found is None or not judging.target_kernels(whole[1]):
        return 0
    failed = judging.blame(whole[1]) or judging.failure(whole[1])
    judged = 0
    for number, step, seen in scripts.numbered(case, trace):
        if not isinstance(step, Read) or step.interpreter != name or number < since:
            continue
        if failed:
            raise FailedCall("every invoke to succeed", failed, f"interpreter {name}, step {number}")
        here = scripts.view(case, trace, name, number + 1)
        if here is not None and seen.ok and seen.cpu:
            outputs_are_right(*here, f"the CPU's values in interpreter {name}, step {number}")
            judged += 1
    return judged

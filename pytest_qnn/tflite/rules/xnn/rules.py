"""XNN: a delegate beside the XNNPACK that the runtimes apply by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Read,
    Resolver,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.checks.judging import line, need_no_conflict
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.trace import DELEGATE, DelegateTrace, InterpreterSeen, PlanNode, ScriptTrace

_LAZY = "tflite/core/interpreter.cc, Interpreter::ApplyLazyDelegateProviders"

Plan = tuple[PlanNode, ...]


def _one(
    interpreter: str, delegate: str, position: int, claim: tuple[int, ...] | None
) -> tuple[AnyScriptStep, ...]:
    return MakeDelegate(delegate, position=position, claim=claim), Apply(interpreter, delegate)


def _applied(facts: DelegateFacts, case: DelegateCase, interpreter: str) -> tuple[AnyScriptStep, ...]:
    """Each delegate of the target's chain, in order of precedence."""
    claim = case.applications[0].claim
    return tuple(
        step
        for position in range(max(1, len(facts.delegates)))
        for step in _one(interpreter, f"{interpreter}d{position}", position, claim)
    )


def _run(case: DelegateCase, interpreter: str) -> tuple[AnyScriptStep, ...]:
    contents = SetInputs(interpreter, case.data_seed, case.fill)
    return Allocate(interpreter), contents, Invoke(interpreter), Read(interpreter)


Steps = Callable[[DelegateCase], tuple[AnyScriptStep, ...]]


def _scripts(facts: DelegateFacts, steps: Steps) -> SearchStrategy[ScriptCase]:
    return changed(delegates.routing(facts), lambda case: ScriptCase((case.graph,), steps(case)))


def sharing_with_xnnpack(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """As `before_xnnpack`; a steerable target leaves every second node."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        part = Application(claim=tuple(range(0, len(case.graph.nodes), 2)) if facts.steerable else None)
        shared = msgspec.structs.replace(case, applications=(part,))
        return Open("i0", resolver="default"), *_applied(facts, shared, "i0"), *_run(case, "i0")

    return _scripts(facts, steps)


@rule(
    "XNN-01",
    Level.MUST,
    "When the runtime applies XNNPACK after the delegate, the delegate keeps its kernels and the results are "
    "right.",
    source=_LAZY,
    subject="delegate",
    cases=sharing_with_xnnpack,
    gate=("XNNPACK nodes",),
)
def stays_beside_xnnpack(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at graphs of which the delegate took a part and XNNPACK another."""
    _need_observation(trace)
    looked_at = kernels = 0
    for seen in trace.interpreters:
        _need_application(seen)
        mine = _mine(_plan_after(case, seen, Apply))
        kernels += len(mine)
        allocated = _step_of(case, seen, Allocate)
        if not mine or allocated < 0:  # a reduced case may allocate nothing
            continue
        if not trace.steps[allocated].ok:
            raise FailedCall("allocate_tensors to succeed", line(trace.steps[allocated].message))
        plan = _plan_at(seen, allocated)
        lost = [node.index for node in mine if node not in plan]
        if lost:
            raise Violation(
                f"kernel nodes {[node.index for node in mine]} of the delegate in the plan",
                f"the plan {_drawn(plan)}",
                "after allocate_tensors, which applies XNNPACK",
            )
        if _foreign(plan):
            looked_at += len(mine)
            _numbers_are_right(case, trace, seen, "the CPU's values beside XNNPACK")
    if kernels and not looked_at:
        raise Unsupported("XNNPACK takes nothing of what the delegate leaves", final=False)
    return Examined(looked_at, "kernels beside XNNPACK's")


def behind_xnnpack(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """XNNPACK is applied by the runtime, then the target is."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        first = Open("i0", resolver="default"), Allocate("i0")
        return *first, *_applied(facts, case, "i0"), *_run(case, "i0")

    return _scripts(facts, steps)


@rule(
    "XNN-02",
    Level.MUST,
    "A delegate applied after XNNPACK claims none of its kernels and does not fail, even if XNNPACK has left "
    "no node.",
    source="tflite/core/subgraph.cc, Subgraph::ModifyGraphWithDelegateImpl; PART-02, PART-16",
    subject="delegate",
    cases=behind_xnnpack,
)
def leaves_xnnpack_alone(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at what the delegate's Prepare claimed of a plan that has kernels of XNNPACK."""
    _need_observation(trace)
    looked_at = 0
    for seen in trace.interpreters:
        for applied in seen.applied:
            foreign = {node.index for node in _foreign(applied.plan_seen)}
            if not foreign:
                continue
            looked_at += len(foreign)
            claimed = [node for replace in applied.replaces for node in replace.nodes if node in foreign]
            if claimed:
                raise Violation(
                    f"XNNPACK's kernel nodes {sorted(foreign)} to be left alone",
                    f"node {claimed[0]} claimed",
                    f"the plan {_drawn(applied.plan_seen)}",
                )
            need_no_conflict(seen.applied)
            if applied.prepare_status or not applied.ok:
                raise FailedCall(
                    "Prepare to succeed",
                    f"status {applied.prepare_status}: {line(applied.message)}",
                    f"the plan {_drawn(applied.plan_seen)}",
                )
            _numbers_are_right(case, trace, seen, "the CPU's values behind XNNPACK")
    return Examined(looked_at, "kernels of XNNPACK")


def before_xnnpack(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The target is applied, then XNNPACK is, by the runtime."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        return Open("i0", resolver="default"), *_applied(facts, case, "i0"), *_run(case, "i0")

    return _scripts(facts, steps)


@rule(
    "XNN-03",
    Level.MUST,
    "The runtime does not apply XNNPACK where the delegate has claimed the whole graph.",
    source=f"{_LAZY} (IsFullyDelegated)",
    subject="delegate",
    cases=before_xnnpack,
    self_check=True,
)
def spares_a_full_graph(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at plans that consist of the delegate's kernels alone."""
    _need_observation(trace)
    looked_at = 0
    for seen in trace.interpreters:
        _need_application(seen)
        plan = _plan_after(case, seen, Apply)
        if not plan or len(_mine(plan)) != len(plan):
            continue
        at = _step_of(case, seen, Allocate)
        if at < 0:  # a reduced case may allocate nothing, and XNNPACK is applied then
            continue
        allocated = _plan_at(seen, at)
        if allocated != plan:
            raise Violation(
                f"the plan {_drawn(plan)} as the delegate left it",
                _drawn(allocated),
                "after allocate_tensors",
            )
        looked_at += 1
    return Examined(looked_at, "graphs claimed as a whole")


RESOLVERS: tuple[Resolver, ...] = ("default", "bare", "reference")


_ENDING = ("MUL", "PRELU")
"""Operators whose reference kernels end the process on tflite-runtime 2.14 where operands of more dimensions
than `_SURVIVED` differ in shape (docs/reference/runtimes.md); others only beyond what graphs have."""
_SURVIVED = 4


def _resolvers(graph: Graph) -> tuple[Resolver, ...]:
    """`RESOLVERS`, without those with which the runtime itself may end the process."""
    for node in graph.nodes:
        shapes = {graph.tensors[index].shape for index in node.inputs if index >= 0}
        if node.op in _ENDING and len(shapes) > 1 and max(map(len, shapes)) > _SURVIVED:
            return RESOLVERS[:-1]
    return RESOLVERS


def under_each_resolver(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """The same graph, contents and claim with XNNPACK, without it, and with the reference kernels."""

    def steps(case: DelegateCase) -> tuple[AnyScriptStep, ...]:
        return tuple(
            step
            for number, resolver in enumerate(_resolvers(case.graph))
            for step in (
                Open(f"i{number}", resolver=resolver),
                *_applied(facts, case, f"i{number}"),
                *_run(case, f"i{number}"),
            )
        )

    return _scripts(facts, steps)


@rule(
    "XNN-04",
    Level.SHOULD,
    "A delegate works with every set of kernels for the nodes that it leaves: with XNNPACK, without it, and "
    "with the reference kernels.",
    source="tflite/python/interpreter.py, OpResolverType",
    subject="delegate",
    cases=under_each_resolver,
    weight=0.5,
)
def works_with_any_resolver(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares three interpreters; a graph that the delegate refuses with all of them is not looked at."""
    if trace.died_alone:
        raise Unsupported("the runtime's own kernels end the process without any delegate", final=False)
    _need_observation(trace)
    failures = [_failure(trace, case, seen) for seen in trace.interpreters]
    if all(failures):
        raise Unsupported(f"the delegate fails with every resolver: {failures[0]}", final=False)
    looked_at = 0
    for resolver, seen, failure in zip(RESOLVERS, trace.interpreters, failures, strict=False):
        if failure:
            raise Violation(
                "the delegate to work with every resolver, as it does with another",
                failure,
                f"resolver {resolver}",
            )
        if any(applied.replaces and any(r.nodes for r in applied.replaces) for applied in seen.applied):
            looked_at += 1
            _numbers_are_right(case, trace, seen, f"the CPU's values with the resolver {resolver}")
    return Examined(looked_at, "graphs with a resolver each")


def _need_observation(trace: ScriptTrace) -> None:
    if not trace.observed:
        raise Unsupported("the private layout of the runtime is not the expected one: no plan")


def _need_application(seen: InterpreterSeen) -> None:
    """That the delegate fails is the finding of PART-04 and PART-16."""
    for applied in seen.applied:
        if not applied.ok:
            raise Unsupported(f"{applied.name} failed: {line(applied.message)}", final=False)


def _steps_of(case: ScriptCase, seen: InterpreterSeen, kind: type) -> Iterator[int]:
    for number, step in enumerate(flat(case.steps)):
        if isinstance(step, kind) and named(step, "interpreter") == seen.name:
            yield number


def _step_of(case: ScriptCase, seen: InterpreterSeen, kind: type) -> int:
    """The number of the interpreter's last step of a kind; -1 without one."""
    return max(_steps_of(case, seen, kind), default=-1)


def _plan_at(seen: InterpreterSeen, step: int) -> Plan:
    """The plan as it stood after a step."""
    plan = seen.plan_before
    for number, later in seen.plans:
        if number <= step:
            plan = later
    return plan


def _plan_after(case: ScriptCase, seen: InterpreterSeen, kind: type) -> Plan:
    step = _step_of(case, seen, kind)
    return _plan_at(seen, step) if step >= 0 else ()


def _mine(plan: Plan) -> list[PlanNode]:
    return [node for node in plan if node.op == DELEGATE and node.owner >= 0]


def _foreign(plan: Plan) -> list[PlanNode]:
    """Kernels of a delegate that the case did not apply: the runtime's XNNPACK."""
    return [node for node in plan if node.op == DELEGATE and node.owner < 0]


def _drawn(plan: Plan) -> str:
    return " ".join(
        f"{node.index}({node.name or 'kernel'})" if node.op == DELEGATE else str(node.index) for node in plan
    )


def _failure(trace: ScriptTrace, case: ScriptCase, seen: InterpreterSeen) -> str:
    """The first step of the interpreter that failed; empty if none did."""
    for applied in seen.applied:
        if not applied.ok:
            return f"application failed: {line(applied.message)}"
    for number in _steps_of(case, seen, object):
        step, gave = flat(case.steps)[number], trace.steps[number]
        if not (gave.ok or gave.skipped):
            return f"{type(step).__name__.lower()} failed: {line(gave.message)}"
    return ""


def _numbers_are_right(case: ScriptCase, trace: ScriptTrace, seen: InterpreterSeen, expected: str) -> None:
    """Raises Violation where what was read of the interpreter is gravely wrong."""
    failure = _failure(trace, case, seen)
    if failure:
        raise FailedCall(expected, failure)
    read, contents = _step_of(case, seen, Read), _step_of(case, seen, SetInputs)
    if min(read, contents) < 0 or trace.steps[read].skipped:
        return
    step = flat(case.steps)[contents]
    if not isinstance(step, SetInputs):
        raise TypeError(f"step {contents} sets no inputs")
    plain = DelegateCase(case.graphs[seen.graph], data_seed=step.seed, fill=step.fill)
    outputs_are_right(
        plain,
        DelegateTrace(
            inputs=tuple(map(Array.of, inputs_of(plain))),
            cpu=trace.steps[read].cpu,
            outputs=(trace.steps[read].outputs,),
        ),
        expected,
    )

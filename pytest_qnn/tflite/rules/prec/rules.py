"""PREC: several delegates on one graph, first come, first served; undone and used again."""

from __future__ import annotations

from math import factorial

from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import changed, pairs
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Fault
from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Close,
    Invoke,
    MakeDelegate,
    Open,
    PlainStep,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right, undone_to_cpu
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims
from pytest_qnn.tflite.partition.oracle import operators_of_plan, partition
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.claimed import mixed_kinds, need_claims
from pytest_qnn.tflite.strategies.delegates import (
    MILD,
    delegate_cases,
    plain_case,
    probe_application,
    target_application,
)
from pytest_qnn.tflite.strategies.scripts import ScriptStrategy, make_first_target, run_steps
from pytest_qnn.tflite.strategies.spied import CaseStrategy
from pytest_qnn.tflite.trace import DELEGATE, DelegateTrace, ScriptTrace

_MODIFY = "tflite/core/subgraph.cc, Subgraph::ModifyGraphWithDelegateImpl"


def in_every_order(facts: DelegateFacts, cases: SearchStrategy[DelegateCase]) -> SearchStrategy[DelegateCase]:
    """The cases; where the target is a chain of delegates, they are applied in any order.

    Which order the user wants is of no concern here: whoever is first has the first choice.
    """
    if len(facts.delegates) < 2:
        return cases

    def turned(case: DelegateCase) -> DelegateCase:
        order = case.data_seed % factorial(min(len(facts.delegates), _MOST_TURNED))
        steps = (replace(each, order=order if each.who == "target" else 0) for each in case.applications)
        return replace(case, applications=tuple(steps))

    return changed(cases, turned)


_MOST_TURNED = 5
"""Delegates: 5! orders are numbered by a byte."""


def permuted(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Two to four delegates, the target and probes, in every order; claims may overlap."""

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        probes = [probe_application(claim) for claim in claims[1 : 2 + choice % 3]]
        place = len(probes) - (choice >> 2) % (len(probes) + 1)
        order = (*probes[:place], target_application(facts, claims[0], choice >> 4), *probes[place:])
        return DelegateCase(plain_case(graph), order)

    cases = delegate_cases(mixed_kinds(facts), make, 4, min_nodes=2, max_nodes=16, fills=MILD)
    return in_every_order(facts, cases)


@rule(
    "PREC-01",
    Level.MUST,
    "A node that one delegate has claimed is never executed by a later delegate.",
    source=_MODIFY,
    subject="delegate",
    cases=permuted,
    self_check=True,
)
def serves_the_first(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the claims of all successful applications in order."""
    judging.need_work(trace)
    owner: dict[int, int] = {}
    for kernel in trace.kernels:
        if trace.applied[kernel.application].ok:
            for index in kernel.nodes:
                first = owner.setdefault(index, kernel.application)
                if first != kernel.application:
                    raise Violation(
                        f"node {index} to stay with application {first}, which claimed it first",
                        f"the node in kernel {kernel.kernel} of application {kernel.application}",
                        picture=judging.draw(case, trace),
                    )
    return Examined(
        len(owner) if len(set(owner.values())) > 1 else 0, "nodes claimed beside another delegate's"
    )


@rule(
    "PREC-02",
    Level.MUST,
    "A later delegate sees the kernels of earlier ones as nodes with builtin code 51 and their boundary "
    "tensors.",
    source="tflite/core/subgraph.cc, Subgraph::ReplaceNodeSubsetsWithDelegateKernels",
    subject="delegate",
    cases=permuted,
    self_check=True,
)
def shows_earlier_kernels(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every plan that a later Prepare could read."""
    judging.need_work(trace)
    looked_at = 0
    for position, applied in enumerate(trace.applied):
        if not applied.prepared or not all(a.ok for a in trace.applied[:position]):
            continue
        taken = {i for k in trace.kernels if k.application < position for i in k.nodes}
        nodes = judging.kernel_nodes(trace)
        expected = [(n, k) for n, k in nodes.items() if k.application < position and n not in taken]
        seen = {node.index: node for node in applied.plan_seen}
        for index, kernel in expected:
            looked_at += 1
            node = seen.get(index)
            if node is None or (node.op, node.inputs, node.outputs) != (
                DELEGATE,
                kernel.inputs,
                kernel.outputs,
            ):
                raise Violation(
                    f"node {index}: code 51, inputs {list(kernel.inputs)}, outputs {list(kernel.outputs)}",
                    f"{node}" if node else f"no node {index} in the plan {sorted(seen)}",
                    f"Prepare of application {position} ({applied.name})",
                    judging.draw(case, trace),
                )
    return Examined(looked_at, "kernels seen by a later delegate")


@rule(
    "PREC-03",
    Level.MUST,
    "A delegate works as the first, the middle or the last of several, with the same results.",
    source=_MODIFY,
    subject="delegate",
    cases=delegates.with_work(permuted),
)
def works_in_any_position(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at cases in which both the target and a probe have a kernel in the final plan."""
    judging.need_observation(trace)
    judging.runs_end_to_end(case, trace)
    live = judging.live_kernels(trace).values()
    mine = [k for k in live if trace.applied[k.application].is_target]
    if not mine or len(mine) == len(live):
        raise Unsupported("no kernel of the delegate stands beside another delegate's", final=False)
    outputs_are_right(case, trace, "the CPU's values with kernels of several delegates")
    return Examined(len(mine), "kernels beside another delegate's")


def beside_foreign_kernels(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One or two probes and the target behind them; and what the target claims without them.

    A probe leaves two nodes of three, or there would be nothing to claim in every second case.
    """

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        few = [claim[(choice >> 2) % 3 :: 3] or claim[:1] for claim in claims[1 : 2 + (choice & 1)]]
        probes = tuple(map(probe_application, few))
        order = (*probes, target_application(facts, claims[0], choice >> 1))
        return DelegateCase(graph, order, invokes=0, baseline="alone")

    need_claims(facts)
    return in_every_order(facts, delegate_cases(mixed_kinds(facts), make, 3, min_nodes=3, max_nodes=16))


@rule(
    "PREC-04",
    Level.SHOULD,
    "After other delegates have claimed nodes, a delegate claims of the remaining ones those that it claims "
    "when it is alone.",
    source=f"{_MODIFY}; tflite/core/c/common.h, TfLiteContext.GetExecutionPlan",
    subject="delegate",
    cases=beside_foreign_kernels,
)
def claims_what_is_left(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares with the same graph without the probes.

    A partition left out as a whole may be too small, or one too many, for the delegate: that counts only
    where it made as small ones, and more of them, alone.
    """
    judging.need_work(trace)
    seen = next((applied.plan_seen for _, applied in judging.targets(trace)), ())
    foreign = [node.index for node in seen if node.op == DELEGATE]
    if trace.baseline is None or judging.failure(trace) or not foreign:
        return Examined(0, "nodes left by another delegate")
    remaining = set(trace.baseline.claim) & {node.index for node in seen}
    missing = remaining.difference(judging.target_claim(case, trace))
    plan = [node.index for node in seen]
    smallest = min(map(len, trace.baseline.kernels), default=0)
    many = len(judging.target_kernels(trace)) >= len(trace.baseline.kernels)
    for part in partition(operators_of_plan(seen), plan, case.graph.outputs, remaining):
        left = sorted(missing.intersection(part.nodes))
        whole = len(left) == len(part.nodes)
        if left and not (whole and (many or len(left) < smallest)):
            raise Violation(
                f"the claim {sorted(remaining)}, as without the foreign kernels {foreign}",
                f"{left} not claimed",
                picture=judging.draw(case, trace),
            )
    return Examined(len(remaining), "nodes left by another delegate")


@rule(
    "PREC-06",
    Level.MUST,
    "The failure of a later delegate undoes all earlier ones and leaves a graph that runs on the CPU.",
    source="tflite/core/interpreter.h, note on Interpreter::ModifyGraphWithDelegate",
    subject="delegate",
    cases=delegates.before_a_failure,
    self_check=True,
)
def failure_undoes_all(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at cases in which the target was applied and a probe after it failed."""
    judging.need_work(trace)
    if trace.applied[-1].ok or not all(applied.ok for applied in trace.applied[:-1]):
        return Examined(0, "kernels undone")
    undone_to_cpu(case, trace)
    return Examined(len(trace.kernels), "kernels undone")


def redone(facts: DelegateFacts) -> CaseStrategy:
    """Several delegates, undone and redone by resizes; the order in force is noted."""
    return changed(
        in_every_order(facts, delegates.between_probes(facts)),
        lambda case: replace(case, look=("order",), redo=1 + (case.data_seed & 1)),
    )


@rule(
    "PREC-05",
    Level.MUST,
    "The applied delegates are listed in the order of their application, and applying them again after a "
    "resize keeps that order.",
    source="tflite/core/subgraph.cc, Subgraph::RedoAllDelegates",
    subject="delegate",
    cases=redone,
    self_check=True,
)
def keeps_their_order(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Reads delegates_applied after the last application, after allocate and after each redo."""
    judging.need_work(trace)
    if judging.failure(trace):
        return Examined(0, "orders of several delegates")
    expected = tuple(range(len(trace.applied)))
    for number, order in enumerate(trace.spied.order):
        if order != expected:
            when = (
                ("the last application", "allocate_tensors")[number] if number < 2 else f"redo {number - 1}"
            )
            raise Violation(
                f"the delegates in the order {list(expected)}",
                f"{list(order)}",
                f"after {when}",
                judging.draw(case, trace),
            )
    return Examined(len(trace.spied.order) if len(expected) > 1 else 0, "orders of several delegates")


_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")


def undone(facts: DelegateFacts) -> ScriptStrategy:
    """A delegate that has worked is undone since another one fails; then it gets a fresh interpreter."""

    def make(case: DelegateCase) -> ScriptCase:
        claims = range(len(case.graph.nodes))
        probe = MakeDelegate("p0", "probe", claim=tuple(claims), fault=_FAULTS[case.data_seed % 3])
        first = (
            make_first_target(case),
            *(Open("before"), Apply("before", "d0"), *run_steps("before", case.data_seed), Close("before")),
            Open("i0"),
            Apply("i0", "d0"),
            probe,
            Apply("i0", "p0"),
            Close("i0"),
        )
        second = (Open("i1"), Apply("i1", "d0"), *run_steps("i1", case.data_seed))
        return ScriptCase((case.graph,), (*first, *second))

    need_claims(facts)
    return changed(delegates.before_a_failure(facts), make)


@rule(
    "PREC-07",
    Level.MUST,
    "A delegate that was undone because another one failed can be applied to a new interpreter.",
    source="tflite/core/interpreter.h, note on Interpreter::ModifyGraphWithDelegate",
    subject="delegate",
    cases=undone,
)
def survives_being_undone(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """The first interpreter is gone when the second one gets the delegate; it must claim as before.

    Unless the runtime has not freed what was undone, and the delegate claims a part of it.
    """
    scripts.need_trace(trace)
    first, second = scripts.view(case, trace, "i0"), scripts.view(case, trace, "i1")
    what = "kernels undone and made again"
    if first is None or second is None or not first[1].applied or not first[1].applied[0].ok:
        return Examined(0, what)
    kernels = [k for k in first[1].kernels if k.application == 0]
    if not kernels or first[1].applied[-1].ok or not second[1].applied:
        return Examined(0, what)
    seen = judging.blame(second[1]) or judging.failure(second[1])
    if seen:
        raise FailedCall("the delegate to work on a fresh interpreter", seen, "after it was undone")
    before, after = ([k.nodes for k in ks] for ks in (kernels, judging.target_kernels(second[1])))
    earlier = scripts.view(case, trace, "before")
    if earlier is not None and [k.nodes for k in judging.target_kernels(earlier[1])] != before:
        raise Unsupported("the delegate claims otherwise each time (PART-17)", final=False)
    kept = any(not judging.statuses(first[1], "free", kernel) for kernel in kernels)
    if kept and set(after) < set(before):
        # A delegate that has room for so many kernels, and no more, may leave to the CPU what does not fit.
        raise Unsupported(
            "the runtime keeps kernels that were undone (RT-02), and the delegate claims less beside them",
            final=False,
        )
    if before != after:
        raise Violation(
            f"kernels of the nodes {_listed(before)}, as before it was undone",
            _listed(after),
            "on a fresh interpreter",
            judging.draw(*second),
        )
    outputs_are_right(*second, "the CPU's values on a fresh interpreter, after it was undone on another")
    return Examined(len(kernels), what)


def _listed(kernels: list[tuple[int, ...]]) -> str:
    return ", ".join(str(list(nodes)) for nodes in kernels) or "none"


def shared(facts: DelegateFacts) -> ScriptStrategy:
    """One delegate applied to interpreters of two graphs, which are invoked by turns.

    In every second case it is applied to one of them a second time, before or after the first invoke.
    """

    def make(pair: tuple[DelegateCase, DelegateCase]) -> ScriptCase:
        first, second = pair
        opening = (
            make_first_target(first, everything=True),
            *(Open("i0"), Apply("i0", "d0"), Open("i1", 1), Apply("i1", "d0")),
            *(Allocate("i0"), Allocate("i1"), SetInputs("i0", first.data_seed), SetInputs("i1")),
        )
        turn = (Invoke("i0"), Invoke("i1"), Read("i0"), Read("i1"))
        other = (SetInputs("i1", second.data_seed + 1), Invoke("i1"), Read("i1"), Invoke("i0"), Read("i0"))
        twice: tuple[PlainStep, ...] = ()
        if second.data_seed & 1:
            twice = (Apply("i0", "d0"), Allocate("i0"), SetInputs("i0", first.data_seed + 1), Invoke("i0"))
            twice = (*twice, Read("i0"))
        late = first.data_seed & 1
        steps = (*opening, *turn, *twice, *other) if late else (*opening, *twice, *turn, *other)
        return ScriptCase((first.graph, second.graph), steps)

    return changed(pairs(delegates.routing(facts)), make)


@rule(
    "PREC-08",
    Level.SHOULD,
    "One delegate applied to several interpreters, or twice to one, keeps the state of each kernel apart, or "
    "refuses the second application with an error.",
    source=f"{_MODIFY}; TfLiteRegistration.init: what init returns is the kernel's own",
    subject="delegate",
    cases=shared,
)
def keeps_interpreters_apart(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Two graphs, invoked by turns, each read right after an invoke of the other one too.

    The second application to one interpreter finds its own kernels in the plan, and nothing it would claim.
    """
    scripts.need_trace(trace)
    for name in ("i0", "i1"):
        seen = scripts.view(case, trace, name)
        if seen is None or not all(applied.ok for applied in seen[1].applied):
            reason = judging.failure(seen[1]) if seen else "the interpreter was not opened"
            raise Unsupported(f"one delegate is not applied twice: {reason}", final=False)
        failed = judging.failure(seen[1])
        if failed:
            raise FailedCall("both interpreters to run", failed, f"interpreter {name}", judging.draw(*seen))
    looked_at = 0
    for number, step, seen_step in scripts.numbered(case, trace):
        if not isinstance(step, Read) or seen_step.skipped:
            continue
        here = scripts.view(case, trace, step.interpreter, number + 1)
        if here is not None and judging.target_kernels(here[1]):
            outputs_are_right(*here, f"the CPU's values in interpreter {step.interpreter}, step {number}")
            looked_at += 1
    return Examined(looked_at, "outputs read by turns from two interpreters")


_ADDED = 300
"""Tensors: the runtime keeps room for 128, and for 16 more than there are."""


def before_added_tensors(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The target, then a probe whose Prepare adds tensors until their table has moved.

    It claims nothing in every second case. In every fourth the target has been at work before it comes.
    """

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        adding = Application("probe", claims[1] if choice & 2 else (), added=_ADDED)
        applications = (target_application(facts, claims[0], choice >> 4), adding)
        late = choice & 12 == 12
        return DelegateCase(plain_case(graph), applications, 2, poison=delegates.POISON, late=late)

    cases = delegate_cases(mixed_kinds(facts), make, 2, max_nodes=8, fills=MILD)
    return in_every_order(facts, cases)


@rule(
    "PREC-09",
    Level.MUST,
    "A delegate's kernels work when a later delegate adds tensors: the table of tensors moves, and they look "
    "it up in the context in each call.",
    source="tflite/core/subgraph.h, Subgraph::tensors and tensor (AddTensors may invalidate the pointer) and "
    "kTensorsCapacityHeadroom; tflite/core/c/common.h, TfLiteContext.AddTensors",
    subject="delegate",
    cases=delegates.with_work(before_added_tensors),
)
def follows_the_table_of_tensors(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the outputs; what the old table was in is filled, as the memory's next owner may do."""
    judging.need_observation(trace)
    when = "after a later delegate has added tensors"
    failed = judging.blame(trace)
    if failed:
        raise FailedCall(f"the delegate to work {when}", failed, picture=judging.draw(case, trace))
    judging.runs_end_to_end(case, trace)
    adding = [at for at, applied in enumerate(trace.applied) if case.applications[applied.step].added]
    mine = [k for k in judging.live_target_kernels(trace) if adding and k.application < adding[-1]]
    if not mine:
        raise Unsupported("no kernel of the delegate is there when tensors are added", final=False)
    outputs_are_right(case, trace, f"the CPU's values {when}")
    return Examined(len(mine), "kernels beside tensors that a later delegate added")

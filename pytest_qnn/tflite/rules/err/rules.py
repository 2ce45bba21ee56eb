"""ERR: failures of a delegate, and what they leave behind."""

from __future__ import annotations

import msgspec
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Fault, Refused
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Poison,
    Read,
    RemoveAll,
    Resize,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right, plan_is_undone, undone_to_cpu
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import DType, Op, Tensor
from pytest_qnn.tflite.numerics.kernels import run_graph
from pytest_qnn.tflite.strategies import delegates
from pytest_qnn.tflite.strategies.claimed import need_claims
from pytest_qnn.tflite.strategies.large import plain_kinds, plain_tensor, two_nodes
from pytest_qnn.tflite.strategies.scripts import make_first_target, run_steps
from pytest_qnn.tflite.strategies.spied import CaseStrategy, Change, with_target
from pytest_qnn.tflite.trace import DELEGATE, Applied, Call, DelegateTrace, ScriptSeen, ScriptTrace


@rule(
    "ERR-03",
    Level.MUST,
    "After a failed application the plan is the original one, every kernel that was initialised is freed, "
    "and the results are those of the CPU.",
    source="tflite delegate_test.cc, DelegateNodePrepareFailure and SecondDelegationPrepareFailure",
    subject="delegate",
    cases=delegates.with_work(delegates.before_a_failure),
)
def failure_leaves_nothing(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the target's own failures, and at its kernels that were undone for a later probe's failure."""
    judging.need_observation(trace)
    failed = [applied for _, applied in judging.targets(trace) if not applied.ok]
    if trace.applied[-1].ok or not (failed or judging.target_kernels(trace)):
        return Examined(0, "failures and kernels undone")
    judging.need_no_conflict(trace.applied)
    undone_to_cpu(case, trace)
    return Examined(judging.freed_once(case, trace) + len(failed), "failures and kernels undone")


_PROBE_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")


def behind_a_failure(facts: DelegateFacts) -> CaseStrategy:
    """A probe fails, then the target is applied."""

    def change(case: DelegateCase) -> DelegateCase:
        fault = _PROBE_FAULTS[case.data_seed % 3]
        first, *rest = case.applications
        return replace(case, applications=(replace(first, fault=fault), *rest))

    return changed(delegates.behind_a_probe(facts), change)


@rule(
    "ERR-09",
    Level.MUST,
    "Other delegates may claim the nodes of a failed delegate: only one whose kernel writes a tensor that a "
    "kernel of the failed one would have written is refused (RT-01), and the graph runs in any case.",
    source="docs/reference/runtimes.md RT-01; tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels:"
    " tensor->delegate == nullptr || tensor->delegate == delegate",
    subject="delegate",
    cases=behind_a_failure,
    self_check=True,
)
def leaves_nodes_to_others(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at every application after a failed probe. The row's own words are broken by both runtimes."""
    judging.need_work(trace)
    if not trace.applied or trace.applied[0].ok:
        return Examined(0, "applications after a failed one")
    if any(applied.ok and any(one.status for one in applied.replaces) for applied in trace.applied):
        # What becomes of the graph where one goes on after a refused Replace is ERR-01's.
        return Examined(0, "applications after a failed one")
    marked: set[int] = set()
    for position, applied in enumerate(trace.applied):
        written = {t for k in trace.kernels if k.application == position for t in k.outputs}
        if position and not applied.ok and not marked & written:
            raise Violation(
                f"a refusal only where a failed delegate's kernels would have written {_named(marked)}",
                f"a refusal of kernels that write {_named(written)}: {' '.join(applied.message.split())}",
                f"application {position} ({applied.name})",
                judging.draw(case, trace),
            )
        if not applied.ok:
            marked |= written
    error = trace.allocate_error or next(filter(None, trace.invoke_errors), "")
    if error:
        raise Violation("the graph to run", error, picture=judging.draw(case, trace))
    outputs_are_right(case, trace, "the CPU's values after a failed delegate")
    return Examined(len(trace.applied) - 1, "applications after a failed one")


def _named(tensors: set[int]) -> str:
    return ", ".join(f"t{tensor}" for tensor in sorted(tensors)) or "nothing"


def removed(facts: DelegateFacts) -> ScriptStrategy:
    """RemoveAllDelegates right after the application, before the first invoke, or after it; then a run."""

    def make(case: DelegateCase) -> ScriptCase:
        opening = (make_first_target(case), Open("i0"), Apply("i0", "d0"))
        before: tuple[AnyScriptStep, ...] = ()
        if case.data_seed % 3:
            before = (Allocate("i0"), SetInputs("i0", case.data_seed))
        if case.data_seed % 3 == 2:
            before += (Invoke("i0"),)
        return ScriptCase(
            (case.graph,), (*opening, *before, RemoveAll("i0"), *run_steps("i0", case.data_seed))
        )

    return changed(delegates.routing(facts), make)


@rule(
    "ERR-10",
    Level.MUST,
    "RemoveAllDelegates restores execution on the CPU at any time, before and after an invoke.",
    source="tflite delegate_test.cc, DelegateNodeInvokeFailure; tflite/core/subgraph.cc, RemoveAllDelegates",
    subject="delegate",
    cases=removed,
    self_check=True,
    weight=0.5,
)
def removal_restores_the_cpu(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares the plan with the original one, and outputs with the CPU's, bit for bit."""
    scripts.need_trace(trace)
    steps = flat(case.steps)
    removals = [n for n, step in enumerate(steps) if isinstance(step, RemoveAll)]
    looked_at = 0
    for seen in trace.interpreters:
        plans = dict(seen.plans)
        for number in removals:
            if trace.steps[number].skipped or not seen.kernels:
                continue
            looked_at += 1
            last = max((n for n in plans if n <= number), default=-1)
            plan = plans.get(last, seen.plan_before)
            if plan != seen.plan_before:
                raise Violation(
                    f"the original plan {[node.index for node in seen.plan_before]}",
                    f"{[node.index for node in plan]}",
                    f"step {number} ({seen.name})",
                )
    removed = invoked = False
    for number, step, one in scripts.numbered(case, trace):
        if one.skipped:
            continue
        removed = removed or isinstance(step, RemoveAll)
        if isinstance(step, RemoveAll | Allocate | Invoke):
            invoked = isinstance(step, Invoke)
        if isinstance(step, Read) and removed and invoked and one.outputs != one.cpu:
            raise Violation(
                "the CPU's own results, bit for bit", "others", f"step {number}, after the removal"
            )
    return Examined(looked_at, "removals of delegates")


_NODE = "GetNodeAndRegistration"
_REPLACE = "ReplaceNodeSubsetsWithDelegateKernels"

RefusedCalls = list[tuple[Applied, list[Call]]]

_REFUSED: tuple[Refused, ...] = ("plan", "replace", "node", "preview")


def _refuse(choices: tuple[Refused, ...]) -> Change:
    def change(application: Application, seed: int) -> Application:
        refused = choices[seed % len(choices)]
        later = refused in ("node", "node-in-init")
        return replace(application, refused=refused, refused_call=seed // 8 % 4 if later else 0)

    return change


def refused_in_prepare(facts: DelegateFacts) -> CaseStrategy:
    """A function that Prepare needs fails: at its first call, or GetNodeAndRegistration at one of four."""
    return changed(delegates.routing(facts), lambda case: with_target(case, _refuse(_REFUSED)))


@rule(
    "ERR-01",
    Level.MUST,
    "Prepare returns an error if ReplaceNodeSubsetsWithDelegateKernels failed, or if GetExecutionPlan or "
    "PreviewDelegatePartitioning failed and it claims nodes all the same. If GetNodeAndRegistration failed, "
    "it may instead continue without the node.",
    source="tflite/core/c/common.h, TF_LITE_ENSURE_STATUS; tflite/delegates/xnnpack, "
    "Delegate::PrepareOpsToDelegate (a node that cannot be read is skipped); tflite/delegates/"
    "delegate_test_util.cc, FP16Delegate (claims nothing, with success, where no partitions can be had)",
    subject="delegate",
    cases=refused_in_prepare,
)
def propagates_errors(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """One of the functions answers with kTfLiteError."""
    judging.need_callbacks(trace)
    looked_at = 0
    refused = judging.refused_applications(trace)
    for applied, calls in refused:
        looked_at += len(calls)
        for call in calls:
            # Who knows no plan or no partitions may also leave all nodes to others.
            may_go_on = call.function == _NODE or (call.function != _REPLACE and not applied.claims())
            if not may_go_on and not applied.prepare_status:
                raise Violation(
                    f"an error of Prepare after {call.function} had failed",
                    "status 0",
                    f"Prepare of {applied.name}",
                    judging.draw(case, trace),
                )
    if refused:
        _goes_on_soundly(case, trace, refused)
    return Examined(looked_at, "failed calls")


_REFUSED_ANYWHERE: tuple[Refused, ...] = ("node-in-init", *_REFUSED)


def refused_anywhere(facts: DelegateFacts) -> CaseStrategy:
    """As `refused_in_prepare`, or in an init; a byte in the outputs shows where a kernel does nothing.

    Else there may be what the graph gave without the delegate, in memory that the runtime has used for it.
    """
    return changed(
        delegates.routing(facts),
        lambda case: replace(with_target(case, _refuse(_REFUSED_ANYWHERE)), poison=delegates.POISON[:1]),
    )


@rule(
    "ERR-02",
    Level.MUST,
    "If something fails within Prepare, Prepare returns an error or leaves a graph that runs with right "
    "results, and never a partly claimed one.",
    source="tflite/core/interpreter.h, Interpreter::ModifyGraphWithDelegate (kTfLiteDelegateError)",
    subject="delegate",
    cases=refused_anywhere,
)
def fails_as_a_whole(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """A function answers with kTfLiteError in Prepare or in one of its inits."""
    judging.need_callbacks(trace)
    refused = judging.refused_applications(trace)
    for applied, _ in refused:
        kernels = [node for node in applied.plan_after if node.op == DELEGATE]
        if not applied.ok and kernels:
            raise Violation(
                "no kernel left in the plan of a failed application",
                f"{len(kernels)} of them",
                f"Prepare of {applied.name}",
                judging.draw(case, trace),
            )
    if refused:
        _goes_on_soundly(case, trace, refused)
    return Examined(sum(len(calls) for _, calls in refused), "failed calls")


def _goes_on_soundly(case: DelegateCase, trace: DelegateTrace, refused: RefusedCalls) -> None:
    """Undone if it failed, and right if it did not; a failed allocate has reported the failure too.

    Whether what was undone gives the CPU's results is ERR-03's question.

    Of several delegates, one may fail because a kernel of an earlier one cannot be prepared: what the
    runtime then leaves is not judged.
    """
    failed = next((applied for applied in trace.applied if not applied.ok), None)
    if failed is not None:
        if any(applied is failed for applied, _ in refused) and not trace.applied[-1].ok:
            plan_is_undone(case, trace)
        return
    if trace.allocate_error:
        return
    expected = "a graph that runs, as Prepare reported success"
    judging.works(case, trace, expected, FailedCall)
    outputs_are_right(case, trace, f"the CPU's values from {expected}")


def refused_plan(facts: DelegateFacts) -> CaseStrategy:
    """GetExecutionPlan fails; texts given to ReportError are kept."""

    def change(application: Application, _: int) -> Application:
        return replace(application, refused="plan")

    return changed(
        delegates.anything(facts), lambda case: replace(with_target(case, change), look=("reports",))
    )


@rule(
    "ERR-07",
    Level.SHOULD,
    "A Prepare that fails gives the reason through context->ReportError, so that it is in the application's "
    "exception.",
    source="tflite/core/c/common.h, TfLiteContext.ReportError; TF_LITE_KERNEL_LOG",
    subject="delegate",
    cases=refused_plan,
)
def explains_its_failure(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """GetExecutionPlan fails without a word. Of a failed kernel the runtime says at least which one it is."""
    judging.need_callbacks(trace)
    looked_at = 0
    for applied, calls in judging.refused_applications(trace):
        if "reports" not in case.look:  # a reduced case may look at nothing
            continue
        if applied.ok:
            raise Unsupported("Prepare does not fail where there is no plan", final=False)
        looked_at += len(calls)
        if not _explained(trace, calls[0]):
            raise Violation(
                "a text given to ReportError",
                f"none; the exception says {_line(applied)}",
                f"Prepare of {applied.name}",
                judging.draw(case, trace),
            )
    return Examined(looked_at, "failures of Prepare")


def _explained(trace: DelegateTrace, call: Call) -> bool:
    return any(r.application == call.application and r.text.strip() for r in trace.spied.reports)


def _line(applied: Applied) -> str:
    return repr(" ".join(applied.message.split()))


_STATUSES = "tflite/core/c/c_api_types.h, TfLiteStatus"

Shape = tuple[int, ...]
IMPOSSIBLE: tuple[Shape, ...] = ((1 << 24, 1 << 24), ((1 << 31) - 1, (1 << 31) - 1), (1 << 16,) * 3)
"""Shapes of more bytes than a process has addresses; in 32 bits their elements are 0, 1 and 0."""


def _great(count: int, seed: int) -> Shape:
    """A shape of about so many elements, in one dimension or in two."""
    return ((count,), (1, count), (count, 1, 1), (1 << 10, (count >> 10) + 1))[seed // 16 % 4]


def grown(facts: DelegateFacts, kinds: list[tuple[DType, Op]], seed: int) -> ScriptCase:
    """Two nodes are run, resized to millions of elements, run, and resized back; all chosen by ``seed``.

    On a runtime that answers with an error when there is no memory, every third case asks for the
    impossible, and is not run then: a delegate that allows dynamic tensors is shown such shapes.
    tflite-runtime 2.14 throws instead (docs/reference/runtimes.md), which no delegate is to be blamed for.
    """
    dtype, op = kinds[seed % len(kinds)]
    impossible = facts.runtime != "tflite_runtime" and seed // 8 % 3 == 2
    count = MORE if (dtype, op) == ("int8", "MAXIMUM") else MILLIONS
    shape = IMPOSSIBLE[seed % len(IMPOSSIBLE)] if impossible else _great(count, seed)
    small = tuple(min(length, 2) for length in shape)
    position = seed // 4 % max(1, len(facts.delegates))
    there = (Resize("i0", 0, shape), Allocate("i0"), *(() if impossible else (Invoke("i0"),)))
    steps = (
        *(MakeDelegate("d0", position=position), Open("i0"), Apply("i0", "d0"), Allocate("i0")),
        *there,
        *(Resize("i0", 0, small), Allocate("i0"), SetInputs("i0", seed), Invoke("i0")),
    )
    return ScriptCase((two_nodes(op, plain_tensor(small, dtype)),), steps)


MILLIONS, MORE = (1 << 21) + 1, (1 << 24) + 1
"""Elements: more than 20 bits count, and (int8 MAXIMUM, the cheapest to compute) more than float32 does."""
WIDE: dict[DType, int] = {"float32": 1 << 19, "int8": 1 << 20}
"""Elements of a tensor. Four of them, as many as are seen of a case, have 8 MiB at most: of much more there
is no answer (`MOST_TAKEN` in `pytest_qnn.isolation.wire`)."""


def _wide(dtype: DType, choice: int) -> Tensor:
    """A tensor of so many elements, in one dimension or in several."""
    count = WIDE[dtype]
    shapes = ((count,), (1, count), (256, count // 256), (count, 1, 1, 1))
    return plain_tensor(shapes[choice % len(shapes)], dtype)


def hostile(facts: DelegateFacts) -> SearchStrategy[DelegateCase | ScriptCase]:
    """Inputs that are infinite, not a number, or at the ends of their range; three of eight cases refuse.

    In every tenth case tensors are as large as a model's are here: their elements are not counted by 16
    bits. In every other tenth an input is resized to more (`MORE`).
    """
    need_claims(facts)
    kinds = plain_kinds(facts)
    # In int8 there are more elements than 20 bits count.
    wide = [kind for kind in kinds if kind[0] == "int8"] or kinds

    def change(case: DelegateCase) -> DelegateCase | ScriptCase:
        changed = replace(case, fill="extreme" if case.data_seed % 3 == 2 else "special")
        choice = case.data_seed // 10
        if kinds and case.data_seed % 10 == 9:
            return grown(facts, kinds, choice)
        if wide and case.data_seed % 10 == 4:
            dtype, op = wide[choice % len(wide)]
            graph = two_nodes(op, _wide(dtype, choice))
            claimed = tuple(replace(one, claim=one.claim and (0, 1)) for one in case.applications)
            return replace(changed, graph=graph, applications=claimed)
        return with_target(changed, _refuse_any) if case.data_seed % 8 > 4 else changed

    return changed(delegates.anything(facts), change)


def _refuse_any(application: Application, seed: int) -> Application:
    """What is refused is chosen by what no other choice of `hostile` depends on."""
    return _refuse(_REFUSED_ANYWHERE)(application, seed // 20)


@rule(
    "ERR-04",
    Level.MUST,
    "A kernel returns an error status for what it cannot do: it never exits, aborts or lets an exception "
    "through.",
    source="the interface is C's (tflite/core/c/common.h, TfLiteRegistration): an exception or exit ends the "
    "application",
    subject="delegate",
    cases=hostile,
)
def survives_hostile_inputs(case: DelegateCase | ScriptCase, trace: DelegateTrace | ScriptTrace) -> Examined:
    """NaN, infinities, ends of ranges, large tensors, failing functions: that the process lives is judged."""
    what = "calls of kernels with hostile inputs"
    if isinstance(case, ScriptCase) and isinstance(trace, ScriptTrace):
        return Examined(_calls_after_growth(case, trace), what)
    if not (isinstance(case, DelegateCase) and isinstance(trace, DelegateTrace)):
        raise TypeError("the trace is of another kind of case")
    judging.need_callbacks(trace)
    mine = {kernel.kernel for kernel in judging.target_kernels(trace)}
    invokes = sum(event.kind == "invoke" and event.kernel in mine for event in trace.events)
    return Examined(invokes if case.fill in ("special", "extreme") else 0, what)


def _calls_after_growth(case: ScriptCase, trace: ScriptTrace) -> int:
    """How often kernels of the target were prepared or invoked between the first resize and the second."""
    scripts.need_trace(trace)
    found = scripts.interpreter(trace)
    resizes = [n for n, step in enumerate(flat(case.steps)) if isinstance(step, Resize)]
    if found is None or not resizes:
        return 0
    first, last = resizes[0], resizes[1] if len(resizes) > 1 else len(trace.steps)
    mine = {kernel.kernel for kernel in found.kernels if found.applied[kernel.application].is_target}
    return sum(
        event.kind in ("prepare", "invoke") and event.kernel in mine and first < step < last
        for event, step in zip(found.events, found.event_steps, strict=True)
    )


def failing_invoke(facts: DelegateFacts) -> CaseStrategy:
    """Three invokes with inputs of their own, of which the second fails.

    A probe's kernel fails, beside the target's; or, in every second case, that of a steerable target.
    """

    def change(case: DelegateCase) -> DelegateCase:
        seed = case.data_seed
        who = "target" if facts.steerable and not seed & 1 else "probe"
        case = replace(case, invokes=3, reseed=(seed, seed ^ 1, seed ^ 2), poison=(0xEE, 0xEE, 0xEE))
        first = next(at for at, one in enumerate(case.applications) if one.who == who)
        failing = replace(case.applications[first], fault="second-invoke")
        applications = (*case.applications[:first], failing, *case.applications[first + 1 :])
        return replace(case, applications=applications)

    need_claims(facts)
    return changed(delegates.between_probes(facts), change)


@rule(
    "ERR-05",
    Level.SHOULD,
    "After a failed invoke, whichever kernel failed, the next invoke gives right results or fails too: it "
    "does not succeed with old data.",
    source="tflite/core/subgraph.cc, Subgraph::Invoke: a failed invoke leaves the graph invokable",
    subject="delegate",
    cases=failing_invoke,
)
def recovers_or_fails_again(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Each invoke has inputs of its own, and outputs that were overwritten beforehand."""
    first = _first_failed_invoke(trace)
    if not judging.live_target_kernels(trace):
        return Examined(0, "invokes after a failed one")
    looked_at = 0
    for number in range(first + 1, len(trace.outputs)):
        if trace.invoke_errors[number]:
            looked_at += 1
            continue
        inputs = _inputs(case, number)
        values = run_graph(case.graph, [array.numpy() for array in inputs])
        right = tuple(Array.of(values[tensor]) for tensor in case.graph.outputs)
        seen = trace.outputs[number : number + 1]
        outputs_are_right(
            case,
            msgspec.structs.replace(trace, inputs=inputs, cpu=right, outputs=seen),
            f"the values of this invoke's inputs, or an error (invoke {number}, after invoke {first} failed)",
        )
        looked_at += 1
    return Examined(looked_at, "invokes after a failed one")


def _first_failed_invoke(trace: DelegateTrace) -> int:
    """Number of the first invoke that failed.

    Raises:
        Unsupported: there was none.
    """
    judging.need_callbacks(trace)
    applied = next((a for a in trace.applied if not a.ok), None)
    if applied or trace.allocate_error:
        raise Unsupported(judging.failure(trace), final=False)
    number = next((number for number, error in enumerate(trace.invoke_errors) if error), None)
    if number is None:
        raise Unsupported("no invoke failed: the probe that would have done so has no kernel", final=False)
    return number


def _inputs(case: DelegateCase, number: int) -> tuple[Array, ...]:
    """The graph's inputs during an invoke."""
    seeds = case.reseed[: number + 1]
    changed = msgspec.structs.replace(case, data_seed=seeds[-1]) if seeds else case
    return tuple(map(Array.of, inputs_of(changed)))


ScriptStrategy = SearchStrategy[ScriptCase]


def beside_another(facts: DelegateFacts) -> ScriptStrategy:
    """The second invoke of ``i0`` fails, in a probe's kernel or (steerable, every second case) the target's.

    ``i1`` has a delegate of its own, and works before and after it.
    """

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        own = facts.steerable and not seed & 1
        probe = next(one for one in case.applications if one.who == "probe")
        mine = next(one for one in case.applications if one.who == "target")
        position = seed // 8 % max(1, len(facts.delegates))
        made = (
            MakeDelegate("d0", claim=mine.claim, position=position, fault="second-invoke" if own else ""),
            MakeDelegate("d1", claim=mine.claim, position=position),
            MakeDelegate("p0", "probe", claim=probe.claim, fault="" if own else "second-invoke"),
        )
        order = ("d0", "p0") if case.applications[0] is mine else ("p0", "d0")
        applied = (Open("i0"), Apply("i0", order[0]), Apply("i0", order[1]), Allocate("i0"))
        beside = (Open("i1"), Apply("i1", "d1"), Allocate("i1"))
        first = (SetInputs("i0", seed), Invoke("i0"), SetInputs("i1", seed + 1), Invoke("i1"))
        second = (SetInputs("i0", seed + 2), Invoke("i0"), Read("i0", case.graph.inputs))
        after: tuple[AnyScriptStep, ...] = (Poison("i1"), Invoke("i1"), Read("i1"))
        return ScriptCase((case.graph,), (*made, *applied, *beside, *first, *second, *after), watch=True)

    need_claims(facts)
    return changed(delegates.between_probes(facts), make)


@rule(
    "ERR-06",
    Level.SHOULD,
    "A failed invoke leaves inputs, constants and all other tensors but outputs unchanged, and other "
    "interpreters unharmed.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke: only outputs are unspecified after an error",
    subject="delegate",
    cases=beside_another,
)
def spares_others_when_it_fails(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks for writes of the target's kernels, at inputs after the failure, and at another interpreter."""
    scripts.need_trace(trace)
    found = scripts.interpreter(trace)
    steps = scripts.numbered(case, trace)
    failed = [n for n, step, seen in steps if _fails(step, seen)]
    if found is None or not failed:
        raise Unsupported("no invoke failed: the probe that would have done so has no kernel", final=False)
    for write in found.writes:
        if found.applied[write.application].is_target:
            raise Violation(
                f"tensor t{write.tensor} as it was",
                f"byte {write.offset} of it changed",
                f"an invoke of kernel {write.kernel}, of which one failed",
            )
    _inputs_stand(case, trace, failed[0])
    kernels = sum(found.applied[kernel.application].is_target for kernel in found.kernels)
    return Examined(_others_work(case, trace, failed[0]) if kernels else 0, "failed invokes")


def _fails(step: AnyScriptStep, seen: ScriptSeen) -> bool:
    return isinstance(step, Invoke) and step.interpreter == "i0" and not (seen.ok or seen.skipped)


def _inputs_stand(case: ScriptCase, trace: ScriptTrace, failed: int) -> None:
    """Raises Violation where an input is not as it was set before step ``failed``."""
    graph = case.graphs[0]
    before: tuple[Array, ...] = ()
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, SetInputs) and step.interpreter == "i0":
            before = seen.outputs if seen.ok else ()
        elif isinstance(step, Read) and number > failed and step.tensors == graph.inputs and seen.outputs:
            for tensor, was, reads in zip(graph.inputs, before, seen.outputs, strict=False):
                if was != reads and tensor not in graph.outputs:
                    raise Violation(
                        "the graph's inputs as they were set",
                        f"other contents in t{tensor}",
                        f"step {number}, after the failed invoke of step {failed}",
                    )


def _others_work(case: ScriptCase, trace: ScriptTrace, failed: int) -> int:
    """How many results of the other interpreter were judged.

    Raises:
        Violation: one is wrong, or an invoke of it failed.
    """
    beside = scripts.view(case, trace, "i1")
    if beside is None or not beside[1].applied or not all(applied.ok for applied in beside[1].applied):
        return 1
    judged = 0
    for number, step, seen in scripts.numbered(case, trace):
        if named(step, "interpreter") != "i1" or number < failed:
            continue
        if isinstance(step, Invoke) and not (seen.ok or seen.skipped):
            raise Violation("the other interpreter to work", " ".join(seen.message.split()), f"step {number}")
        if isinstance(step, Read) and seen.cpu:
            here = scripts.view(case, trace, "i1", number + 1)
            if here is not None:
                outputs_are_right(*here, f"the CPU's values in the other interpreter, step {number}")
                judged += 1
    return judged


_FAULTS: tuple[Fault, ...] = ("kernel-invoke", "kernel-prepare", "")


def failing_callbacks(facts: DelegateFacts) -> CaseStrategy:
    """Any graph; in each fourth case Prepare cannot read the plan.

    Else a steerable target fails in kernel prepare or in invoke, or does not.
    """

    def change(application: Application, seed: int) -> Application:
        if seed % 4 == 3:
            return replace(application, refused="plan")
        return replace(application, fault=_FAULTS[seed % 3] if facts.steerable else "")

    need_claims(facts)
    return changed(delegates.anything(facts), lambda case: with_target(case, change))


@rule(
    "ERR-08",
    Level.SHOULD,
    "Prepare and kernels return a value of TfLiteStatus: kTfLiteCancelled (8) only for a cancellation, and "
    "kTfLiteOutputShapeNotKnown (9) never on TensorFlow Lite 2.14, which does not define it.",
    source=_STATUSES,
    subject="delegate",
    cases=failing_callbacks,
)
def answers_with_a_status(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the status of each Prepare, and of each prepare and invoke of the target's kernels.

    Nothing is cancelled here.
    """
    judging.need_callbacks(trace)
    mine = {kernel.kernel for kernel in judging.target_kernels(trace)}
    looked_at = 0
    for event in trace.events:
        of_kernel = event.kind in ("prepare", "invoke") and event.kernel in mine
        of_target = event.kind == "Prepare" and trace.applied[event.application].is_target
        if not (of_kernel or of_target):
            continue
        looked_at += 1
        prepares = event.kind == "prepare"
        wrong = judging.wrong_status(event.status, trace.facts, shape_may_be_unknown=prepares)
        if wrong:
            raise Violation(
                "0, or the status of an error",
                wrong,
                f"{event.kind} of kernel {event.kernel}" if of_kernel else "Prepare of the delegate",
                judging.draw(case, trace),
            )
    return Examined(looked_at, "statuses of Prepare, and of kernel prepare and invoke")

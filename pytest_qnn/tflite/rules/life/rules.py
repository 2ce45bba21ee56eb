"""LIFE: the life of a kernel: init, prepare (many times), invoke, free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.process_end import SOURCE, WHAT, require_end
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Unsupported, Violation
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
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
    PlainStep,
    Repeat,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import judging, leaks, scripts
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.checks.scripts import need_trace, numbered
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.strategies import delegates, spied
from pytest_qnn.tflite.strategies import scripts as again
from pytest_qnn.tflite.strategies.scripts import FEW, MANY, ScriptStrategy, make_first_target
from pytest_qnn.tflite.strategies.spied import CaseStrategy, with_target
from pytest_qnn.tflite.trace import Change, DelegateTrace, MeasureCounts, ScriptTrace

_LEAST = 96
"""Bytes for each interpreter."""
_PAGE = 4096
"""Bytes: the least that a mapping takes."""
PAIRS = 3
"""Of such repetitions."""


def cycles(facts: DelegateFacts) -> ScriptStrategy:
    """Interpreters come and go while the delegate stays; what malloc has given out is measured in between."""

    def make(case: DelegateCase) -> ScriptCase:
        seed = case.data_seed
        one: tuple[PlainStep, ...] = (
            *(Open("i0"), Apply("i0", "d0"), Allocate("i0")),
            *(SetInputs("i0", seed), Invoke("i0"), Invoke("i0"), Close("i0")),
        )
        few, many = Repeat(FEW, one), Repeat(MANY, one)
        repetitions = (few, Measure(), many, Measure()) * PAIRS
        return ScriptCase((case.graph,), (make_first_target(case), few, Measure(), *repetitions))

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "LIFE-05",
    Level.MUST,
    "free releases everything that init, prepare and invoke have acquired for the kernel.",
    source="tflite/core/c/common.h, TfLiteRegistration.free; tflite/core/subgraph.cc, Subgraph::CleanupNode",
    subject="delegate",
    cases=cycles,
    weight=0.12,
)
def gives_everything_back(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Interpreters come and go while the delegate stays; what it has taken must not grow with them.

    Repetitions of few and of many interpreters take turns: only what the many leave more than the few counts,
    only if it does so each time, and if it is still there in the end. A cache that fills up, or a table that
    grows once, is no leak. Less than `_LEAST` bytes of malloc's for each interpreter is not told from what
    the suite itself keeps, nor less than a page of address space from what malloc maps.

    Of a delegate that lives in memory of an allocator of its own, the pages of such memory count beside
    these. Where all of them are present from the beginning, nothing can be measured.
    """
    scripts.need_trace(trace)
    found = scripts.measured(case, trace)[: 1 + 2 * PAIRS]
    in_use = [counts.malloc for counts in found if counts.malloc is not None]
    if len(found) < 1 + 2 * PAIRS or len(in_use) < len(found):
        raise Unsupported("malloc cannot be asked what it has given out (mallinfo2 of glibc 2.33)")
    repetitions = [step for step in case.steps if isinstance(step, Repeat)]
    times = [again.FEW, *([again.FEW, again.MANY] * PAIRS)]
    whole = bool(repetitions) and any(isinstance(step, Close) for step in repetitions[0].steps)
    alike = [one.times for one in repetitions] == times and len({one.steps for one in repetitions}) == 1
    if not (alike and whole):
        return Examined(0, "kernels freed")  # no two repetitions that could be compared
    live = [seen for seen in trace.interpreters if all(applied.ok for applied in seen.applied)]
    if not any(seen.kernels for seen in live):
        return Examined(0, "kernels freed")
    kernels = max(len(seen.kernels) for seen in live)
    more = again.MANY - again.FEW
    mapped = [counts.virtual for counts in found]
    for what, values, least in (("memory", in_use, _LEAST), ("address space", mapped, _PAGE)):
        surplus = leaks.surplus(values)
        if leaks.is_left(values) and min(surplus) >= least * more:
            raise Measured(
                f"as much {what} in use after an interpreter as before it",
                f"{', '.join(map(str, surplus))} bytes more after {more} interpreters more",
                f"{kernels} kernels in each",
            )
    if not _own_allocator_keeps_nothing(found, f"{kernels} kernels in each"):
        return Examined(0, "kernels freed")
    return Examined(kernels * PAIRS * again.MANY, "kernels freed")


def _own_allocator_keeps_nothing(found: Sequence[MeasureCounts], where: str) -> bool:
    """Judge the pages of an allocator of the target's own; False where they say nothing.

    Raises:
        Measured: so many more are present as if each interpreter left `_LEAST` bytes.
    """
    arena = [counts.arena for counts in found[::2] if counts.arena is not None]
    grown = [after - before for before, after in pairwise(arena)]
    interpreters = again.FEW + again.MANY
    if leaks.pages_left(grown, interpreters * PAIRS, _LEAST):
        raise Measured(
            "as many resident bytes of the target's own allocator after an interpreter as before it",
            f"{', '.join(map(str, grown))} more bytes, each after {interpreters} interpreters",
            where,
        )
    return not found[0].full


_LEFT = ("everything", "the delegate", "nothing")
"""What is alive at the end."""


def delegate(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """LIFE-14: a delegate in use, one that was in use, or none any more."""

    def make(case: DelegateCase) -> ScriptCase:
        own = next((one.claim for one in case.applications if one.who == "target"), None)
        position = case.data_seed // 3 % max(1, len(facts.delegates))
        steps: list[AnyScriptStep] = [MakeDelegate("d0", claim=own, position=position), Open("i0")]
        steps += [Apply("i0", "d0"), Allocate("i0"), SetInputs("i0", case.data_seed), Invoke("i0")]
        left = _LEFT[case.data_seed % 3]
        if left != "everything":
            steps.append(Close("i0"))
        if left == "nothing":
            steps.append(DestroyDelegate("d0"))
        return ScriptCase((case.graph,), tuple(steps), ends=True)

    return changed(delegates.routing(facts), make)


@rule(
    "LIFE-14",
    Level.SHOULD,
    "A process can exit normally while a delegate is in use, and after its use.",
    source=SOURCE,
    subject="delegate",
    cases=delegate,
    gate=("own process",),
    weight=0.5,
)
def life_14(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """As QLEAK-04."""
    need_trace(trace)
    require_end(ended=trace.ended)
    made = any(isinstance(step, MakeDelegate) and seen.ok for _, step, seen in numbered(case, trace))
    return Examined(int(made), WHAT)


_REGISTRATION = "tflite/core/c/common.h, TfLiteRegistration"


@rule(
    "LIFE-01",
    Level.MUST,
    "init is called once for each kernel, before any prepare of it, and user_data is what init returned.",
    source=f"{_REGISTRATION}.init",
    subject="delegate",
    cases=delegates.between_probes,
    self_check=True,
)
def initialises_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Walks the callbacks in order."""
    begun: set[int] = set()
    for position, event in enumerate(trace.events):
        if event.kind == "init":
            if event.kernel in begun:
                raise Violation(
                    "one init", "a second one", f"kernel {event.kernel}", judging.draw(case, trace)
                )
            begun.add(event.kernel)
        elif event.kind in ("prepare", "invoke") and event.kernel not in begun:
            raise Violation(
                "user_data that an init returned",
                f"{event.kind} without an init",
                f"kernel {event.kernel}, callback {position} of {len(trace.events)}",
                judging.draw(case, trace),
            )
    return Examined(len(begun), "kernels")


def prepared_again(facts: DelegateFacts) -> CaseStrategy:
    """Probes after the target, and up to two resizes: each makes the runtime prepare its kernels again."""
    return changed(delegates.before_probes(facts), lambda case: replace(case, redo=case.data_seed % 3))


@rule(
    "LIFE-02",
    Level.MUST,
    "prepare may be called many times for one init, and Prepare many times for one interpreter, as after a "
    "resize; both are idempotent.",
    source=f"{_REGISTRATION}.prepare; tflite/core/subgraph.cc, Subgraph::RedoAllDelegates",
    subject="delegate",
    cases=prepared_again,
)
def prepares_again(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the target's kernels that later delegates, or resizes, made the runtime prepare again.

    A resize has the runtime free the kernels of a static delegate, and call its Prepare once more.
    """
    judging.need_observation(trace)
    times = {k.kernel: len(judging.statuses(trace, "prepare", k)) for k in judging.live_target_kernels(trace)}
    redone = Counter(event.application for event in trace.events if event.kind == "Prepare")
    again = [n for n in times if times[n] > 1 or redone[trace.kernels[n].application] > 1]
    if not again:
        judging.need_work(trace)
        return Examined(0, "kernels prepared more than once")
    judging.runs_end_to_end(case, trace)
    calls = f"{max(times.values())} calls of prepare and {max(redone.values())} of Prepare"
    outputs_are_right(case, trace, f"the CPU's values after {calls}")
    return Examined(len(again), "kernels prepared more than once")


@rule(
    "LIFE-04",
    Level.MUST,
    "When the interpreter is gone, free was called exactly once with the user_data of each successful init.",
    source="tflite/core/subgraph.cc, Subgraph::CleanupNode; docs/reference/runtimes.md RT-02",
    subject="delegate",
    cases=delegates.before_probes,
)
def frees_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the target's kernels whose init succeeded."""
    looked_at = judging.freed_once(case, trace)
    if not looked_at:
        judging.need_work(trace)
    return Examined(looked_at, "kernels")


def calls_of_kernels(facts: DelegateFacts) -> CaseStrategy:
    """Kernels that are prepared several times, and invoked; what they call of the context is counted."""
    return changed(delegates.before_probes(facts), lambda case: replace(case, look=("forbidden",), invokes=2))


@rule(
    "LIFE-06",
    Level.MUST,
    "A kernel's prepare and invoke do not call functions of the context that are for Prepare only: "
    "GetExecutionPlan, GetNodeAndRegistration, Replace, Preview, Acquire- and ReleaseSubgraphContext.",
    source="tflite/core/subgraph.cc, Subgraph::SwitchToKernelContext; interpreter_test.cc, "
    "TestUnsupportedDelegateFunctions",
    subject="delegate",
    cases=calls_of_kernels,
)
def keeps_to_kernel_functions(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at each prepare and invoke of the target's kernels; the six answer with an error there."""
    judging.need_callbacks(trace)
    for call in trace.spied.forbidden:
        if judging.of_target(trace, call):
            raise Violation(
                "no call of a function that is forbidden for kernels",
                f"a call of {call.function}",
                judging.where(trace, call),
                judging.draw(case, trace),
            )
    mine = {kernel.kernel for kernel in judging.target_kernels(trace)}
    looked_at = sum(event.kind in ("prepare", "invoke") and event.kernel in mine for event in trace.events)
    return Examined(looked_at, "calls of kernel prepare and invoke")


@rule(
    "LIFE-07",
    Level.SHOULD,
    "init copies what it needs: a kernel does not use a TfLiteNode or TfLiteRegistration from "
    "GetNodeAndRegistration after Prepare, nor keep it for the next Prepare.",
    source="tflite/core/subgraph.cc, Subgraph::AddNodeWithParameters: nodes live in a std::vector that grows "
    "with each kernel",
    subject="delegate",
    cases=spied.lent_nodes,
)
def copies_what_it_needs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Prepare gets copies of the structs, which are emptied when it returns; the kernels' results must stand.

    builtin_data and the operands' lists are the runtime's own and stay valid: only the structs move.
    """
    judging.need_callbacks(trace)
    count = trace.spied.nodes_invalidated if judging.target_kernels(trace) else 0
    if count:
        expected = "kernels that work without the nodes that Prepare was lent"
        judging.works(case, trace, expected)
        if not judging.failure(trace):
            outputs_are_right(case, trace, f"the CPU's values from {expected}")
    return Examined(count, "nodes lent to Prepare")


def late_data(facts: DelegateFacts) -> CaseStrategy:
    """Tensors have memory, with other contents, before delegates are applied; their data is looked at."""
    return changed(delegates.routing(facts), lambda case: replace(case, late=True, look=("data",)))


@rule(
    "LIFE-09",
    Level.MUST,
    "A kernel's prepare neither reads nor writes the data of tensors that are not constant: they may have no "
    "memory yet, or that of the last run.",
    source="tflite/core/subgraph.cc, Subgraph::PrepareOpsAndTensors: memory is assigned after prepare; "
    "tensorflow#62091",
    subject="delegate",
    cases=late_data,
)
def leaves_data_to_invoke(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Applies the delegate when tensors hold the data of an earlier run with other inputs.

    That data must be there still after prepare, and must not have gone into the results of the next run.
    """
    judging.need_spied_work(trace)
    _nothing_changed(case, trace, "prepare")
    if judging.failure(trace) or not judging.live_target_kernels(trace):
        return Examined(0, "tensors around prepare")
    if "data" in case.look and not trace.spied.looked_at:
        raise Unsupported("no kernel of the delegate has a prepare", final=False)
    outputs_are_right(case, trace, "the values of this run's inputs, not of those at the time of prepare")
    return Examined(trace.spied.looked_at, "tensors around prepare")


def graph_around_prepare(facts: DelegateFacts) -> CaseStrategy:
    """The graph before and after each Prepare; tensors have memory in every second case."""
    return changed(
        delegates.anything(facts),
        lambda case: replace(case, late=bool(case.data_seed & 1), look=("graph",)),
    )


@rule(
    "LIFE-10",
    Level.MUST,
    "Prepare changes neither data, types nor dimensions of tensors, nor the inputs or outputs of nodes.",
    source="tensorflow#62091; tflite/delegates/utils.cc, FP16GraphPartitionHelper (which puts back what it "
    "remaps when it fails, and remaps operands of fp16 DEQUANTIZE only)",
    subject="delegate",
    cases=graph_around_prepare,
)
def leaves_the_graph_alone(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares nodes and tensors before and after each Prepare; the cases hold no fp16."""
    judging.need_callbacks(trace)
    _nothing_changed(case, trace, "Prepare")
    prepared = any(True for _ in judging.targets(trace))
    return Examined(trace.spied.looked_at if prepared else 0, "nodes and tensors around Prepare")


def _nothing_changed(case: DelegateCase, trace: DelegateTrace, during: str) -> None:
    for change in trace.spied.changes:
        if trace.applied[change.application].is_target and change.during == during:
            raise Violation(
                f"{_named(change)} to stay {change.before}",
                change.after,
                f"{change.during} of {trace.applied[change.application].name}",
                judging.draw(case, trace),
            )


def _named(change: Change) -> str:
    if change.what in ("inputs", "outputs"):
        return f"the {change.what} of node {change.index}"
    return f"{change.what} of tensor t{change.index}"


def tensors_added(facts: DelegateFacts) -> CaseStrategy:
    """Kernels that are prepared several times; how many tensors there are is counted."""
    return changed(delegates.before_probes(facts), lambda case: replace(case, look=("tensors",), invokes=2))


@rule(
    "LIFE-11",
    Level.SHOULD,
    "A kernel adds tensors with AddTensors once, not again at each prepare, nor at invoke.",
    source="tflite/core/subgraph.cc, Subgraph::AddTensors: they are never removed, and beyond 16 "
    "(kTensorsCapacityHeadroom) pointers to tensors move",
    subject="delegate",
    cases=tensors_added,
)
def adds_tensors_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Counts tensors around each prepare after a kernel's first, and around each invoke."""
    judging.need_spied_work(trace)
    mine = {kernel.kernel for kernel in judging.target_kernels(trace)}
    begun: set[int] = set()
    looked_at = 0
    for added in trace.spied.added:
        if added.kernel not in mine:
            continue
        if added.during == "invoke" or added.kernel in begun:
            looked_at += 1
            if added.count > 0:
                raise Violation(
                    "no tensors added after a kernel's first prepare",
                    f"{added.count} tensors added",
                    f"{added.during} of kernel {added.kernel}",
                    judging.draw(case, trace),
                )
        begun.add(added.kernel)
    return Examined(looked_at, "later calls of kernel prepare, and invokes")


@rule(
    "LIFE-03",
    Level.MUST,
    "invoke never runs before a successful prepare.",
    source=f"{_REGISTRATION}.prepare; tflite/core/subgraph.cc, Subgraph::Invoke (kStateUninvokable)",
    subject="delegate",
    cases=delegates.between_probes,
    self_check=True,
)
def prepares_before_invoke(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Walks the callbacks in order; the last prepare before an invoke counts."""
    judging.need_work(trace)
    ready: dict[int, bool] = {}
    looked_at = 0
    for event in trace.events:
        if event.kind == "prepare":
            ready[event.kernel] = event.status == 0
        elif event.kind == "invoke":
            looked_at += 1
            if not ready.get(event.kernel):
                raise Violation(
                    "a successful prepare first",
                    "an invoke after none" if event.kernel not in ready else "an invoke after a failed one",
                    f"kernel {event.kernel}",
                    judging.draw(case, trace),
                )
    return Examined(looked_at, "invokes of kernels")


def refused_in_init(facts: DelegateFacts) -> CaseStrategy:
    """GetNodeAndRegistration fails in one of the first three inits."""

    def change(application: Application, seed: int) -> Application:
        return replace(application, refused="node-in-init", refused_call=seed % 3)

    return changed(delegates.routing(facts), lambda case: with_target(case, change))


@rule(
    "LIFE-08",
    Level.MUST,
    "A failed init is reported by kTfLiteKernelInitFailed (which 2.14 does not define) or by a prepare that "
    "fails; a kernel that lacks what init was to provide is never invoked.",
    source=f"{_REGISTRATION}.init; tflite/delegates/utils/simple_delegate.cc, GetDelegateKernelRegistration",
    subject="delegate",
    cases=refused_in_init,
    gate=("node lookups",),
)
def reports_a_failed_init(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """GetNodeAndRegistration fails in an init. Who gives right results all the same needs no error.

    A delegate that calls it in no init shows no failure here, and nothing is examined.
    """
    judging.need_callbacks(trace)
    refused = [
        (a, c) for a, calls in judging.refused_applications(trace) for c in calls if c.during == "init"
    ]
    if not refused:
        raise Unsupported("the delegate looks up no node in the init of a kernel", final=False)
    reported = trace.allocate_error or not all(applied.ok for applied in trace.applied)
    if not reported:
        expected = "an error of ModifyGraphWithDelegate or allocate_tensors after an init without its node"
        judging.works(case, trace, expected)
        outputs_are_right(case, trace, f"{expected}, or else the CPU's values")
    return Examined(len(refused), "inits that could not read their node")


def names(facts: DelegateFacts) -> CaseStrategy:
    """Names of kernels, here and on a second interpreter."""
    return changed(delegates.routing(facts), lambda case: replace(case, look=("names",), again="interpreter"))


@rule(
    "LIFE-12",
    Level.MUST,
    "custom_name stays valid as long as a kernel lives: the runtime keeps the pointer.",
    source=f"{_REGISTRATION}.custom_name; tflite/core/subgraph.cc, AddNodeWithParameters copies the struct",
    subject="delegate",
    cases=names,
)
def keeps_its_name(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Reads the name when it is passed, and again at the same place after the last invoke."""
    judging.need_callbacks(trace)
    given = [name for name in trace.spied.names if trace.applied[name.application].is_target]
    mine = [name for name in given if name.text]
    if given and not mine:
        raise Unsupported("the delegate gives its kernels no name, which LIFE-13 judges", final=False)
    for name in mine:
        if name.later != name.text:
            raise Violation(
                f"the name {name.text!r} at the address that was passed to Replace",
                repr(name.later),
                f"application {name.application}, after the last invoke",
                judging.draw(case, trace),
            )
    return Examined(len(mine) if judging.live_target_kernels(trace) else 0, "names of kernels")


@rule(
    "LIFE-13",
    Level.SHOULD,
    "A kernel has a name that is not empty and is the same each time: profiles and error messages show it.",
    source=f"{_REGISTRATION}.custom_name; tflite/core/subgraph.cc, ReportOpError",
    subject="delegate",
    cases=names,
)
def has_a_stable_name(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares the names with those of the same case on a second interpreter."""
    judging.need_callbacks(trace)
    seen = trace.spied.names
    again = trace.spied.names_again
    looked_at = 0
    for position, name in enumerate(seen):
        if not trace.applied[name.application].is_target:
            continue
        looked_at += len(again) == len(seen)
        where = f"application {name.application}"
        if not name.text:
            raise Violation("a name", "custom_name NULL or empty", where, judging.draw(case, trace))
        if len(again) == len(seen) and again[position] != name.text:
            raise Violation(
                f"the name {name.text!r} again", f"{again[position]!r}", f"{where} on a second interpreter"
            )
    return Examined(looked_at, "names of kernels")

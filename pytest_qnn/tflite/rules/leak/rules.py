"""LEAK: what cycles, invokes and failures leave behind, and what many partitions take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from pytest_qnn.core.drawing import changed, listed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Unsupported
from pytest_qnn.tflite.cases.delegate import DelegateCase, Fault
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
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import leaks, scripts
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import chained, decode_graph, size_of
from pytest_qnn.tflite.graph.scales import SOME_PARTITIONS
from pytest_qnn.tflite.strategies import delegates, lifetimes
from pytest_qnn.tflite.strategies.claimed import claimed_kinds
from pytest_qnn.tflite.strategies.delegates import plain_case
from pytest_qnn.tflite.strategies.lifetimes import (
    KEYS,
    Key,
    Plain,
    Strategy,
    make_probe,
    make_target,
    measured_script,
    repetitions,
)
from pytest_qnn.tflite.trace import InterpreterSeen, MeasureCounts, ScriptTrace

_CLEANUP = "tflite/core/subgraph.cc, Subgraph::~Subgraph and CleanupNode"
_WHAT = "cycles measured"
_RESOURCES: tuple[Key, ...] = ("fds", "threads", "mappings", "virtual")


@rule(
    "LEAK-01",
    Level.MUST,
    "Making, applying, using and destroying a delegate leaves the memory that malloc has in use unchanged.",
    source=f"{_CLEANUP}; external_delegate_interface.h, tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=lifetimes.cycles("i0", keys=("malloc",)),
    weight=0.1,
)
def cycles_leave_no_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 after repetitions of cycles, exact to one block for each cycle."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, _WHAT)
    return Examined(leaks.nothing_left(case, trace, ("malloc",), "a delegate's whole life"), _WHAT)


@rule(
    "LEAK-02",
    Level.MUST,
    "Making, applying, using and destroying a delegate leaves the numbers of descriptors, threads and "
    "mappings unchanged.",
    source="external_delegate_interface.h, tflite_plugin_destroy_delegate; proc(5)",
    subject="delegate",
    cases=lifetimes.cycles("i0", scaled=(SOME_PARTITIONS,), keys=_RESOURCES),
    weight=0.05,
)
def cycles_leave_no_resources(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at /proc after repetitions of cycles; joined mappings show in the address space."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, _WHAT)
    return Examined(leaks.nothing_left(case, trace, _RESOURCES, "a delegate's whole life"), _WHAT)


INVOKES = 100


def invokes(facts: DelegateFacts) -> Strategy:
    """One interpreter is invoked again and again."""

    def make(case: DelegateCase) -> ScriptCase:
        steps: list[AnyScriptStep] = []
        for name, target in (("i0", make_target(facts, case)), ("i1", make_probe(case))):
            ready = (Open(name), Apply(name, target.delegate), Allocate(name))
            turns = repetitions((SetInputs(name, case.data_seed), Invoke(name)), INVOKES)
            steps += (target, *ready, *(turns if name == "i0" else lifetimes.compared(turns)))
        return ScriptCase((case.graph,), tuple(steps))

    # Of kilobytes, but cheap to invoke again and again.
    return changed(delegates.routing(facts, scaled=("lengths", "constants")), make)


@rule(
    "LEAK-03",
    Level.MUST,
    "Invokes, in any number, leave the memory and resources in use unchanged.",
    source="tflite/core/c/common.h, TfLiteRegistration.invoke; tflite/core/subgraph.cc, InvokeImpl",
    subject="delegate",
    cases=invokes,
    weight=0.1,
)
def invokes_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at mallinfo2 and /proc after repetitions of invokes of one interpreter."""
    scripts.need_trace(trace)
    if not leaks.target_worked(trace):
        return Examined(0, "invokes measured")
    return Examined(leaks.nothing_left(case, trace, KEYS, "an invoke"), "invokes measured")


_BAD_OPTION = (("no-such-option", "1"),)
_FAULTS: tuple[Fault, ...] = ("prepare", "kernel-prepare", "init")
_KINDS = 6
_FAILURES = _KINDS * len(_FAULTS)


def failures(facts: DelegateFacts) -> Strategy:
    """Something fails, again and again.

    A steerable delegate; create, because of an option; or a delegate that is applied after the
    target, before it has claimed anything.
    """

    def make(case: DelegateCase) -> ScriptCase:
        # From the high bits of the seed, whose byte is spread evenly over the examples of a search.
        number = case.data_seed * _FAILURES >> 16
        kind, fault_number = number % _KINDS, number // _KINDS

        def cycle(target: MakeDelegate) -> Plain:
            if kind == 0:
                option = _BAD_OPTION if target.who == "target" else ()
                refused = msgspec.structs.replace(target, delegate="d9", options=option)
                return (refused, DestroyDelegate("d9"))
            if facts.steerable:
                fault = _FAULTS[fault_number]
                failing = msgspec.structs.replace(target, claim=None, fault=fault)
                use: Plain = (Open("i0"), Apply("i0", target.delegate), Allocate("i0"), Close("i0"))
                return (failing, *use, DestroyDelegate(target.delegate))
            probe = MakeDelegate("p9", "probe", claim=(), fault="prepare")
            ends: Plain = (Close("i0"), DestroyDelegate("p9"), DestroyDelegate(target.delegate))
            return (target, probe, Open("i0"), Apply("i0", target.delegate), Apply("i0", "p9"), *ends)

        return measured_script(facts, case, cycle)

    return changed(delegates.routing(facts, scaled=False), make)


@rule(
    "LEAK-04",
    Level.SHOULD,
    "Failures (a bad option, a failed Prepare, init or prepare, a later delegate's failure) leave nothing "
    "behind.",
    source=f"{_CLEANUP}; tflite/core/interpreter.h, ModifyGraphWithDelegate; "
    "docs/reference/runtimes.md RT-02",
    subject="delegate",
    cases=failures,
    weight=0.4,
)
def failures_leave_nothing(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at repetitions of failures.

    What the runtime forgets to free then (RT-02), a probe in the delegate's place leaves behind too.
    """
    scripts.need_trace(trace)
    failed = any(
        isinstance(step, Apply | MakeDelegate) and not seen.ok and not seen.skipped
        for _, step, seen in scripts.numbered(case, trace)
    )
    if not failed:
        return Examined(0, "failures measured")
    return Examined(leaks.nothing_left(case, trace, KEYS, "a failure"), "failures measured")


_PARTITIONS: Final = (8, 16, 32, 64)
"""Of the target, in one case, each number twice the one before."""
_TIMES: Final = 3
"""What a doubling adds is twice what the one before has added where each partition takes the same, and four
times that where each pair of them does."""
_LEAST_ADDED: Final[dict[Key, int]] = {"malloc": 1 << 14, "fds": 4, "threads": 4, "mappings": 8}
"""By the last doubling: less is nobody's trouble, and what the suite itself takes varies by some of it."""


def partitions(facts: DelegateFacts) -> Strategy:
    """Longer and longer chains of nodes, of which a delegate of the suite's own has claimed every second one.

    Each is prepared and invoked once; then all is done with the suite's own delegate in the target's place.
    """
    # A delegate that wants several nodes at once has them in any chain.
    kinds = [kind._replace(floor=kind.floor._replace(nodes=1)) for kind in claimed_kinds(facts)]
    last = max(0, len(facts.delegates) - 1)
    empty = bytes(size_of(1, 0))
    made = [plain_case(decode_graph(empty, [kind], 0, 1, 1)[0]) for kind in kinds]
    return listed([_divided(graph, last) for graph in dict.fromkeys(made)])


def _divided(graph: Graph, position: int) -> ScriptCase:
    graphs = tuple(chained(graph, 2 * count) for count in _PARTITIONS)
    steps: list[AnyScriptStep] = []
    for who in (MakeDelegate("d0", position=position), MakeDelegate("d0", "probe")):
        # What the first interpreter of all makes for good is not counted.
        for number in (0, *range(len(graphs))):
            others = tuple(range(1, len(graphs[number].nodes), 2))
            steps += (MakeDelegate("p0", "probe", claim=others), Open("i0", number), Apply("i0", "p0"))
            steps += (
                Measure(waits=True),
                who,
                Apply("i0", "d0"),
                Allocate("i0"),
                SetInputs("i0"),
                Invoke("i0"),
            )
            steps += (Measure(), Close("i0"), DestroyDelegate("d0"), DestroyDelegate("p0"))
    return ScriptCase(graphs, tuple(steps))


@rule(
    "LEAK-05",
    Level.SHOULD,
    "What a delegate holds for a graph is in proportion to the number of its partitions: twice as many do "
    "not take four times as much.",
    source="tflite/core/c/common.h, TfLiteDelegateParams: what a kernel is given is of one partition",
    subject="delegate",
    cases=partitions,
)
def partitions_take_no_more_each(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares what each doubling of the number adds with what the one before has added, twice in a row.

    A table that grows by doubling, or a pool of blocks, adds more once and nothing next time. What a probe in
    the delegate's place holds is the runtime's and the suite's, and does not count.
    """
    scripts.need_trace(trace)
    found = scripts.measured(case, trace)
    rounds = 1 + len(_PARTITIONS)
    if len(case.graphs) != len(_PARTITIONS) or len(found) != 4 * rounds:
        return Examined(0, _PARTED)
    if trace.order_lost:
        raise Unsupported("the runtime loses the order of nodes after several calls of Replace (RT-05)")
    claimed, alike = (_kernels(trace.interpreters[half : half + rounds]) for half in (0, rounds))
    if alike != list(_PARTITIONS):  # a case that was made smaller
        return Examined(0, _PARTED)
    many = ", ".join(map(str, claimed))
    if not claimed[0] or any(more < 2 * fewer for fewer, more in pairwise(claimed)):
        raise Unsupported(f"it has {many} partitions where twice as many are offered each time", final=False)
    for key, least in _LEAST_ADDED.items():
        target, probe = (_held(found[half : half + 2 * rounds], key) for half in (0, 2 * rounds))
        if _grows_faster([own - runtimes for own, runtimes in zip(target, probe, strict=True)], least):
            raise Measured(
                "what each partition takes to stay as it is when there are more of them",
                f"{', '.join(map(str, target))} {leaks.WORDS[key]} for {many} partitions",
                f"a probe in its place takes {', '.join(map(str, probe))}",
            )
    return Examined(sum(claimed), _PARTED)


_PARTED = "partitions of larger and larger graphs"


def _kernels(seen: Sequence[InterpreterSeen]) -> list[int]:
    """Of the delegate that was applied last, by interpreter, the first left out."""
    return [sum(kernel.application == 1 for kernel in one.kernels) for one in seen[1:]]


def _held(found: Sequence[MeasureCounts], key: Key) -> list[int]:
    """What was taken between the two measurements of each graph, the first time left out."""
    values: list[int | None] = [getattr(counts, key) for counts in found]
    known = [value or 0 for value in values]
    return [after - before for before, after in zip(known[2::2], known[3::2], strict=True)]


def _grows_faster(held: Sequence[int], least: int) -> bool:
    """Each doubling adds more than in proportion, and the last one enough to matter."""
    added = [more - less for less, more in pairwise(held)]
    return added[-1] > least and all(0 < _TIMES * less < more for less, more in pairwise(added))

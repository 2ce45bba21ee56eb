"""LIFE: what callbacks may call, change, add and keep of the graph."""

from __future__ import annotations

from pytest_qnn.cases import spied_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import spied_support as spied
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import Change, DelegateTrace


@rule(
    "LIFE-06",
    Level.MUST,
    "A kernel's prepare and invoke do not call the context's functions for Prepare: GetExecutionPlan, "
    "GetNodeAndRegistration, Replace, Preview, Acquire- and ReleaseSubgraphContext.",
    source="tflite/core/subgraph.cc, Subgraph::SwitchToKernelContext; interpreter_test.cc, "
    "TestUnsupportedDelegateFunctions",
    subject="delegate",
    cases=cases.calls_of_kernels,
)
def keeps_to_kernel_functions(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at each prepare and invoke of the target's kernels; the six answer with an error there."""
    spied.need_callbacks(trace)
    for call in trace.spied.forbidden:
        if spied.of_target(trace, call):
            raise Violation(
                "no call of a function that is forbidden for kernels",
                f"a call of {call.function}",
                spied.where(trace, call),
                support.draw(case, trace),
            )
    mine = {kernel.kernel for kernel in support.target_kernels(trace)}
    looked_at = sum(event.kind in ("prepare", "invoke") and event.kernel in mine for event in trace.events)
    return Examined(looked_at, "calls of kernel prepare and invoke")


@rule(
    "LIFE-07",
    Level.SHOULD,
    "init copies what it needs: a TfLiteNode or TfLiteRegistration from GetNodeAndRegistration is not used "
    "after Prepare, nor kept for the next one.",
    source="tflite/core/subgraph.cc, Subgraph::AddNodeWithParameters: nodes live in a std::vector that grows "
    "with each kernel",
    subject="delegate",
    cases=cases.lent_nodes,
)
def copies_what_it_needs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Prepare gets copies of the structs, which are emptied when it returns; the kernels' results must stand.

    builtin_data and the operands' lists are the runtime's own and stay valid: only the structs move.
    """
    spied.need_callbacks(trace)
    count = trace.spied.nodes_taken_back if support.target_kernels(trace) else 0
    if count:
        expected = "kernels that work without the nodes that Prepare was lent"
        spied.works(case, trace, expected)
        if not support.failure(trace):
            outputs_are_right(case, trace, f"the CPU's values from {expected}")
    return Examined(count, "nodes lent to Prepare")


@rule(
    "LIFE-09",
    Level.MUST,
    "A kernel's prepare neither reads nor writes data of tensors that are no constants: they may have no "
    "memory yet, or that of the last run.",
    source="tflite/core/subgraph.cc, Subgraph::PrepareOpsAndTensors: memory is assigned after prepare; "
    "tensorflow#62091",
    subject="delegate",
    cases=cases.late_data,
)
def leaves_data_to_invoke(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Applies the delegate when tensors hold the data of an earlier run with other inputs.

    That data must be there still after prepare, and must not have gone into the results of the next run.
    """
    spied.need_work(trace)
    _nothing_changed(case, trace, "prepare")
    if support.failure(trace) or not support.live_target_kernels(trace):
        return Examined(0, "tensors around prepare")
    outputs_are_right(case, trace, "the values of this run's inputs, not of those at the time of prepare")
    return Examined(trace.spied.looked_at, "tensors around prepare")


@rule(
    "LIFE-10",
    Level.MUST,
    "Prepare changes neither data, types nor dimensions of tensors, nor the operands or results of nodes.",
    source="tensorflow#62091; tflite/delegates/utils.cc, FP16GraphPartitionHelper (which puts back what it "
    "remaps when it fails, and remaps operands of fp16 DEQUANTIZE only)",
    subject="delegate",
    cases=cases.graph_around_prepare,
)
def leaves_the_graph_alone(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares nodes and tensors before and after each Prepare; the cases hold no fp16."""
    spied.need_callbacks(trace)
    _nothing_changed(case, trace, "Prepare")
    prepared = any(True for _ in support.targets(trace))
    return Examined(trace.spied.looked_at if prepared else 0, "nodes and tensors around Prepare")


def _nothing_changed(case: DelegateCase, trace: DelegateTrace, during: str) -> None:
    for change in trace.spied.changes:
        if trace.applied[change.application].is_target and change.during == during:
            raise Violation(
                f"{_named(change)} to stay {change.before}",
                change.after,
                f"{change.during} of {trace.applied[change.application].name}",
                support.draw(case, trace),
            )


def _named(change: Change) -> str:
    if change.what in ("inputs", "outputs"):
        return f"the {change.what} of node {change.index}"
    return f"{change.what} of tensor t{change.index}"


@rule(
    "LIFE-11",
    Level.SHOULD,
    "Tensors that a kernel adds with AddTensors are added once, not again at each prepare, nor at invoke.",
    source="tflite/core/subgraph.cc, Subgraph::AddTensors: they are never removed, and beyond 16 "
    "(kTensorsCapacityHeadroom) pointers to tensors move",
    subject="delegate",
    cases=cases.tensors_added,
)
def adds_tensors_once(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Counts tensors around each prepare after a kernel's first, and around each invoke."""
    spied.need_work(trace)
    mine = {kernel.kernel for kernel in support.target_kernels(trace)}
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
                    support.draw(case, trace),
                )
        begun.add(added.kernel)
    return Examined(looked_at, "later calls of kernel prepare, and invokes")

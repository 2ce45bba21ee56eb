"""What the delegate rules share: gates, lookups in a trace, and the picture of a partitioning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_qnn.core.verdict import FailedCall, Unsupported, Violation
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.partition import picture
from pytest_qnn.tflite.trace import Applied, Call, DelegateTrace, EventKind, Kernel

KernelMap = dict[int, Kernel]
_CANCELLED = 8
_SHAPE_NOT_KNOWN = 9
"""The greatest value of TfLiteStatus."""


def need_observation(trace: DelegateTrace) -> None:
    """Raises Unsupported when plans and kernels cannot be read on this runtime."""
    if not trace.observed:
        runtime = trace.facts.runtime if trace.facts else ""
        raise Unsupported(
            f"the private layout of {runtime or 'the runtime'} is not the expected one: no plan"
        )


def need_work(trace: DelegateTrace) -> None:
    """Raises Unsupported when there is no plan to read, or the target failed before it could be judged.

    That it failed is the finding of PART-04 and PART-16, and not of every other rule too. In another case it
    may work.
    """
    need_observation(trace)
    reason = blame(trace)
    if reason:
        raise Unsupported(reason, final=False)
    need_no_conflict(trace.applied)
    _need_memory(trace)


def _need_memory(trace: DelegateTrace) -> None:
    if trace.unallocated:
        raise Unsupported(
            f"the delegate took the whole graph without memory (RT-07): {line(trace.unallocated)}"
        )


_REFUSED = "Cannot allow dynamic tensors due to previous delegation"
"""The runtime's own words (tflite/core/subgraph.cc, ModifyGraphWithDelegateImpl)."""
_WITHOUT_TEXT = ("", "RuntimeError")


def need_no_conflict(applications: Iterable[Applied]) -> None:
    """Raises Unsupported when the runtime refused a delegate because tensors were dynamic.

    It lets none that allows no dynamic tensors stand beside them: if a kernel makes its outputs dynamic, a
    static delegate before it has all undone, and one after it is not even prepared, without a word
    (delegate_test.cc, DynamicTensorBeforeStaticDelegate and DynamicTensorAfterStaticDelegate).
    """
    stands = False  # a delegate before the one that is looked at
    for applied in applications:
        unasked = stands and not applied.prepared and applied.message.strip() in _WITHOUT_TEXT
        if not applied.ok and (unasked or _REFUSED in applied.message):
            raise Unsupported(
                f"the runtime refused {applied.name}: of two delegates only one allows dynamic tensors",
                final=False,
            )
        stands = stands or applied.ok


def targets(trace: DelegateTrace) -> Iterator[tuple[int, Applied]]:
    """The applications of the target whose Prepare was called, with their positions."""
    return ((i, a) for i, a in enumerate(trace.applied) if a.is_target and a.prepared)


def wrong_status(status: int, facts: DelegateFacts | None, *, shape_may_be_unknown: bool = False) -> str:
    """What is wrong with a status that nobody's cancellation explains, in words; empty: nothing is.

    Source: tflite/core/c/c_api_types.h, TfLiteStatus. TensorFlow Lite 2.14 does not define 9, and later only
    a kernel's prepare has a use for it.
    """
    if status == _CANCELLED:
        return "8 (kTfLiteCancelled), although nothing was cancelled"
    is_old = facts is not None and facts.runtime == "tflite_runtime"
    if status == _SHAPE_NOT_KNOWN and (is_old or not shape_may_be_unknown):
        return "9 (kTfLiteOutputShapeNotKnown)"
    return "" if 0 <= status <= _SHAPE_NOT_KNOWN else f"{status}, which is no TfLiteStatus"


def target_kernels(trace: DelegateTrace) -> tuple[Kernel, ...]:
    """The kernels that delegates of the target made."""
    return tuple(k for k in trace.kernels if trace.applied[k.application].is_target)


def target_claim(case: DelegateCase, trace: DelegateTrace) -> tuple[int, ...]:
    """The nodes of the graph that delegates of the target claimed, ascending."""
    nodes = range(len(case.graph.nodes))
    calls = [replace for applied in trace.applied if applied.is_target for replace in applied.replaces]
    return tuple(sorted({index for call in calls for index in call.nodes if index in nodes}))


def live_kernels(trace: DelegateTrace) -> KernelMap:
    """Kernels that stand in the final plan, by plan node index.

    A kernel node is known by its owner and its boundary tensors: no two kernels share an output.
    """
    known = {(k.application, k.inputs, k.outputs): k for k in trace.kernels}
    return {
        node.index: known[node.owner, node.inputs, node.outputs]
        for node in trace.plan
        if (node.owner, node.inputs, node.outputs) in known
    }


def live_target_kernels(trace: DelegateTrace) -> tuple[Kernel, ...]:
    """The target's kernels that stand in the final plan."""
    return tuple(k for k in live_kernels(trace).values() if trace.applied[k.application].is_target)


def kernel_nodes(trace: DelegateTrace) -> dict[int, Kernel]:
    """Every kernel node index that some application's plan showed, with its kernel."""
    known = {(k.application, k.inputs, k.outputs): k for k in trace.kernels}
    found = {}
    for applied in trace.applied:
        for node in applied.plan_after:
            kernel = known.get((node.owner, node.inputs, node.outputs))
            if kernel is not None:
                found[node.index] = kernel
    return found


def originals(kernel: Kernel, kernels: dict[int, Kernel]) -> tuple[int, ...]:
    """The original nodes that a kernel stands for, kernels it swallowed opened up."""
    opened: list[int] = []
    for node in kernel.nodes:
        inner = kernels.get(node)
        opened += originals(inner, kernels) if inner is not None and inner is not kernel else (node,)
    return tuple(opened)


def statuses(trace: DelegateTrace, kind: EventKind, kernel: Kernel) -> tuple[int, ...]:
    """Statuses of one kind of callback of a kernel, in order."""
    return tuple(e.status for e in trace.events if e.kind == kind and e.kernel == kernel.kernel)


def failure(trace: DelegateTrace) -> str:
    """The first thing that failed in the case, or an empty text."""
    for position, applied in enumerate(trace.applied):
        if not applied.ok:
            return f"application {position} ({applied.name}) failed: {line(applied.message)}"
    if trace.allocate_error:
        return f"allocate_tensors failed: {line(trace.allocate_error)}"
    for number, error in enumerate(trace.invoke_errors):
        if error:
            return f"invoke {number} failed: {line(error)}"
    return ""


def blame(trace: DelegateTrace) -> str:
    """The first failure that a delegate of the target caused, or an empty text.

    A failed ModifyGraphWithDelegate is the delegate's own only when one of its callbacks reported it:
    the runtime may also refuse a delegate because of a failed one before it (RT-01).
    """
    for position, applied in targets(trace):
        if applied.prepare_status and not any(r.status for r in applied.replaces):
            return f"Prepare of application {position} ({applied.name}) returned {applied.prepare_status}"
    for event in trace.events:
        if event.status and event.kind != "Prepare" and trace.applied[event.application].is_target:
            name = trace.applied[event.application].name
            return f"{event.kind} of kernel {event.kernel} ({name}) returned {event.status}"
    return ""


def runs_end_to_end(case: DelegateCase, trace: DelegateTrace) -> None:
    """Raises Violation when the case failed and neither a probe nor the runtime is the cause.

    After a failed delegate, the runtime refuses others whose kernels write the same tensors (RT-01). It
    takes control edges, which are positions in the original plan, for positions in the plan that an earlier
    delegate has shrunk (RT-05).

    Raises:
        Unsupported: the case failed, and one of these is the likely cause.
        Violation: it failed.
    """
    seen = blame(trace)
    if not seen and failure(trace):
        need_no_conflict(trace.applied)
        if any(application.fault for application in case.applications):
            raise Unsupported("a probe that fails on purpose disturbs the runtime (RT-01)", final=False)
        if case.graph.control_edges and len(trace.applied) > 1:
            raise Unsupported("control edges with several delegates disturb it (RT-05)", final=False)
    seen = seen or failure(trace)
    if seen:
        raise FailedCall(
            "every application, allocate_tensors and invoke to succeed", seen, picture=draw(case, trace)
        )
    _need_memory(trace)


def draw(case: DelegateCase, trace: DelegateTrace, mark: int | None = None, *, joined: bool = False) -> str:
    """The picture of the partitioning (`pytest_qnn.tflite.partition.picture`).

    Args:
        case: with the graph.
        trace: of it.
        mark: a node to point at.
        joined: what is expected is as if each delegate had claimed all its nodes in one call.
    """
    outputs = case.graph.outputs
    expected = picture.expected_landing(trace.plan_before, trace.applied, outputs, joined=joined)
    return picture.draw(case.graph, trace.applied, landing(trace), expected, mark)


def landing(trace: DelegateTrace) -> picture.Landing:
    """Where the nodes of the graph run, by the plan at the time of invoke."""
    live, kernels = live_kernels(trace), kernel_nodes(trace)
    return tuple(
        picture.Entry(node.index, live[node.index].kernel, originals(live[node.index], kernels))
        if node.index in live
        else picture.Entry(node.index, -1, (node.index,))
        for node in trace.plan
    )


def line(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split()) or "(no text)"


def need_callbacks(trace: DelegateTrace) -> None:
    """Raises Unsupported when the target's callbacks cannot be seen."""
    need_observation(trace)
    for applied in trace.applied:
        operator = any(member == "registration_external" for r in applied.replaces for member, *_ in r.tail)
        if applied.is_target and ((applied.ok and not applied.prepared) or operator):
            raise Unsupported(f"the callbacks of the opaque delegate {applied.name} are not seen")


def need_spied_work(trace: DelegateTrace) -> None:
    """Raises Unsupported when callbacks cannot be seen, or the target failed before it could be judged."""
    need_callbacks(trace)
    need_work(trace)


def of_target(trace: DelegateTrace, call: Call) -> bool:
    """A delegate of the target made the call."""
    return trace.applied[call.application].is_target


def where(trace: DelegateTrace, call: Call) -> str:
    """The callback in words."""
    name = trace.applied[call.application].name
    if call.kernel >= 0:
        return f"{call.during} of kernel {call.kernel} ({name})"
    return f"{'an init within Prepare' if call.during == 'init' else 'Prepare'} of {name}"


def refused_applications(trace: DelegateTrace) -> list[tuple[Applied, list[Call]]]:
    """Applications of the target in which calls were refused, up to the first one that failed.

    What comes after a failed one may be refused by the runtime for its own reasons (RT-01).
    """
    found = []
    for position, applied in enumerate(trace.applied):
        calls = [call for call in trace.spied.refused if call.application == position]
        if applied.is_target and calls:
            found.append((applied, calls))
        if not applied.ok:
            break
    return found


def works(case: DelegateCase, trace: DelegateTrace, expected: str, kind: type[Violation] = Violation) -> None:
    """Raises a violation of this kind when an allocate or invoke failed."""
    error = trace.allocate_error or next(filter(None, trace.invoke_errors), "")
    if error:
        seen = f"allocate_tensors fails: {error}" if trace.allocate_error else f"invoke fails: {error}"
        raise kind(expected, " ".join(seen.split()), picture=draw(case, trace))


def freed_once(case: DelegateCase, trace: DelegateTrace) -> int:
    """The number of the target's kernels that were looked at.

    The runtimes themselves forget to free a kernel that a later delegate swallowed, and, when a Replace
    call fails midway, the kernels it has made (RT-02) and on LiteRT 2.3 also those of earlier delegates:
    for these, no free at all is accepted too.

    Raises:
        Violation: a kernel was freed twice or never, or what was freed is no kernel's user_data.
    """
    for event in trace.events:
        if event.kind == "free" and event.kernel < 0 and trace.applied[event.application].is_target:
            raise Violation(
                "free of user_data that init returned", "free of something else, or a second free"
            )
    kernels = [k for k in target_kernels(trace) if statuses(trace, "init", k) == (0,)]
    for kernel in kernels:
        times = len(statuses(trace, "free", kernel))
        if times != 1 and not (times == 0 and _forgotten(trace, kernel)):
            raise Violation(
                "one free for one init",
                f"{times} calls of free",
                f"kernel {kernel.kernel} of nodes {list(kernel.nodes)}",
                draw(case, trace),
            )
    return len(kernels)


def _forgotten(trace: DelegateTrace, kernel: Kernel) -> bool:
    later = trace.applied[kernel.application :]
    if any(replace.status for applied in later for replace in applied.replaces):
        return True
    numbers = {k.kernel: index for index, k in kernel_nodes(trace).items()}
    index = numbers.get(kernel.kernel)
    return any(index in other.nodes for other in trace.kernels if other.application > kernel.application)

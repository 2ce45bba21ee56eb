"""Traces as a faulty runtime would leave them, made from true ones.

The runtimes cannot be mutated. PART-05 and LIFE-04 judge the delegate together with the runtime: what a
delegate does wrong there shows only through a runtime that lets it pass.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pytest_qnn.mutants.delegates import faulty_runtime
from pytest_qnn.rules.delegate_support import DELEGATE
from pytest_qnn.trace import Applied, DelegateTrace, Event
from pytest_qnn.trace import Kernel as SeenKernel

Distort = Callable[[DelegateTrace], DelegateTrace]


def _kernels(change: Callable[[SeenKernel], SeenKernel]) -> Distort:
    def distort(trace: DelegateTrace) -> DelegateTrace:
        return replace(trace, kernels=tuple(map(change, trace.kernels)))

    return distort


def _applied(change: Callable[[Applied], Applied]) -> Distort:
    def distort(trace: DelegateTrace) -> DelegateTrace:
        return replace(trace, applied=tuple(map(change, trace.applied)))

    return distort


def _events(change: Callable[[tuple[Event, ...]], tuple[Event, ...]]) -> Distort:
    def distort(trace: DelegateTrace) -> DelegateTrace:
        return replace(trace, events=change(trace.events))

    return distort


@faulty_runtime("runtime-steals", "A later delegate's kernel takes a claimed node.", "PREC-01")
def _steals(trace: DelegateTrace) -> DelegateTrace:
    """The first kernel of each later application runs a node of the very first kernel too."""
    first = trace.kernels[:1]
    kernels = tuple(
        replace(k, nodes=k.nodes + f.nodes[:1]) if k.application > f.application else k
        for f in first
        for k in trace.kernels
    )
    return replace(trace, kernels=kernels)


@faulty_runtime("runtime-runs-twice", "A CPU node is in a kernel too.", "PART-05")
def _runs_twice(trace: DelegateTrace) -> DelegateTrace:
    """A kernel also runs a node that stayed with the CPU."""
    on_cpu = tuple(node.index for node in trace.plan if node.op != DELEGATE)[:1]
    return replace(trace, kernels=tuple(replace(k, nodes=k.nodes + on_cpu) for k in trace.kernels))


@faulty_runtime("runtime-stays-delegated", "A failure undoes nothing.", "PREC-06", "ERR-03")
def _stays_delegated(trace: DelegateTrace) -> DelegateTrace:
    """The plan of the first delegate stands although a later one failed."""
    failed = any(not applied.ok for applied in trace.applied)
    return replace(trace, plan=trace.applied[0].plan_after) if failed else trace


def _hides_kernels(applied: Applied) -> Applied:
    seen = tuple(replace(node, op=0) if node.op == DELEGATE else node for node in applied.plan_seen)
    return replace(applied, plan_seen=seen)


def _forgets_frees(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(event for event in events if event.kind != "free")


def _frees_twice(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return events + tuple(event for event in events if event.kind == "free")


def _initialises_late(events: tuple[Event, ...]) -> tuple[Event, ...]:
    late = tuple(event for event in events if event.kind == "init")
    return tuple(event for event in events if event.kind != "init") + late


faulty_runtime("runtime-loses-node", "The last node of each partition is carried out by nobody.", "PART-05")(
    _kernels(lambda k: replace(k, nodes=k.nodes[:-1]))
)
faulty_runtime("runtime-reverses-plan", "The plan runs backwards.", "PART-06")(
    _applied(lambda a: replace(a, plan_after=a.plan_after[::-1]))
)
faulty_runtime("runtime-drops-input", "A kernel's first input is not told.", "PART-07")(
    _kernels(lambda k: replace(k, inputs=k.inputs[1:]))
)
faulty_runtime("runtime-drops-output", "A kernel's last output is not told.", "PART-08")(
    _kernels(lambda k: replace(k, outputs=k.outputs[:-1]))
)
faulty_runtime("runtime-reverses-partition", "A kernel's nodes are in reverse.", "PART-09")(
    _kernels(lambda k: replace(k, nodes=k.nodes[::-1]))
)
faulty_runtime("runtime-hides-kernels", "A later delegate sees kernels as builtin operators.", "PREC-02")(
    _applied(_hides_kernels)
)
faulty_runtime("runtime-inits-late", "init comes after prepare.", "LIFE-01")(_events(_initialises_late))
faulty_runtime("runtime-never-frees", "free is never called.", "LIFE-04", "ERR-03")(_events(_forgets_frees))
faulty_runtime("runtime-frees-twice", "free is called twice.", "LIFE-04", "ERR-03")(_events(_frees_twice))

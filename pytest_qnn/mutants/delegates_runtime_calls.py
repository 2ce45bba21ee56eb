"""Traces as a runtime would leave them that breaks the rules on previews, order, redo and removal."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pytest_qnn.mutants.delegates import faulty_runtime, faulty_runtime_of_scripts
from pytest_qnn.rules.delegate_support import DELEGATE
from pytest_qnn.trace import DelegateTrace, ScriptTrace, Spied

Distort = Callable[[DelegateTrace], DelegateTrace]


def _spied(change: Callable[[Spied], Spied]) -> Distort:
    return lambda trace: replace(trace, spied=change(trace.spied))


@faulty_runtime("runtime-never-prepares", "Kernels are invoked unprepared.", "LIFE-03")
def _never_prepares(trace: DelegateTrace) -> DelegateTrace:
    return replace(trace, events=tuple(e for e in trace.events if e.kind != "prepare"))


def _previews_too_little(spied: Spied) -> Spied:
    return replace(spied, previews=tuple(replace(p, partitions=p.partitions[:-1]) for p in spied.previews))


def _previews_in_reverse(spied: Spied) -> Spied:
    previews = (
        replace(p, partitions=tuple((n[::-1], i, o) for n, i, o in p.partitions)) for p in spied.previews
    )
    return replace(spied, previews=tuple(previews))


def _redoes_in_reverse(spied: Spied) -> Spied:
    return replace(spied, order=spied.order[:2] + tuple(order[::-1] for order in spied.order[2:]))


@faulty_runtime("runtime-bars-others", "A failed delegate bars all others.", "ERR-09")
def _bars_others(trace: DelegateTrace) -> DelegateTrace:
    """A failed delegate bars every later one."""
    first, *later = trace.applied
    if first.ok or not later:
        return trace
    kernels = tuple(kernel for kernel in trace.kernels if not kernel.application)
    return replace(trace, kernels=kernels, applied=(first, *(replace(a, ok=False) for a in later)))


@faulty_runtime_of_scripts(
    "runtime-keeps-kernels", "Kernels stay in the plan when delegates are removed.", "ERR-10"
)
def _keeps_kernels(trace: ScriptTrace) -> ScriptTrace:
    """The plan keeps its kernels whatever is removed."""
    interpreters = tuple(
        replace(seen, plans=tuple((at, p) for at, p in seen.plans if any(n.op == DELEGATE for n in p)))
        for seen in trace.interpreters
    )
    return replace(trace, interpreters=interpreters)


faulty_runtime("runtime-previews-less", "A preview lacks the last partition.", "PART-19")(
    _spied(_previews_too_little)
)
faulty_runtime("runtime-previews-reversed", "A preview gives nodes in reverse.", "PART-19")(
    _spied(_previews_in_reverse)
)
faulty_runtime("runtime-redoes-reversed", "A redo applies delegates in reverse.", "PREC-05")(
    _spied(_redoes_in_reverse)
)

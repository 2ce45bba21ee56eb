"""Cases with graphs of their own: delegate cases, scripts, calls of a plugin."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from pytest_qnn.core.target import Control, Death
from pytest_qnn.isolation.executor import Executing
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.reduce import smaller_delegate, smaller_plugin, smaller_script, with_more_outputs
from pytest_qnn.tflite.cases.script import (
    Open,
    ScriptCase,
    aligned,
    flat,
    needs_child,
    without_delegates,
    without_edges,
    without_guards,
)
from pytest_qnn.tflite.controls import around, controls
from pytest_qnn.tflite.controls.large import of_samples
from pytest_qnn.tflite.controls.refused import of_refusals
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.runner.run import IN_HISTORY, phase_name
from pytest_qnn.tflite.runner.spec import CODEC
from pytest_qnn.tflite.target.deaths import described
from pytest_qnn.tflite.target.histories import of_histories
from pytest_qnn.tflite.trace import ScriptTrace


def smaller(case: Any) -> Iterator[Any]:
    """Smaller cases of the same kind; see `OpenTarget.smaller`."""
    if isinstance(case, DelegateCase):
        return smaller_delegate(case)
    return smaller_script(case) if isinstance(case, ScriptCase) else smaller_plugin(case)


def _looks_at_heap(case: Any) -> bool:
    """The process has another heap behind such a case."""
    return isinstance(case, DelegateCase) and "heap" in case.look


class Graphs:
    """Carries out cases with graphs, and answers what is asked about them, as a target does."""

    def __init__(
        self, executor: Executing, facts: DelegateFacts, distort: Mapping[type[Any], Callable[[Any], Any]]
    ) -> None:
        """``distort``: by type of trace, what a mutant of the runtime does to it."""
        self._executor = executor
        self._facts = facts
        self._distort = distort

    def run(self, case: Any) -> Any:
        """Carry out the case; how a child died is in the trace."""
        guarded = needs_child(case) if isinstance(case, ScriptCase) else _looks_at_heap(case)
        try:
            answer = self._executor.run(case, guarded=guarded)
        except RunnerFailure as failure:
            return self._of_failure(case, failure)
        if isinstance(answer, Death):
            return self._of_death(case, answer)
        if isinstance(case, DelegateCase) and case.again == "process":
            fresh = self._executor.run_fresh(case)
            died = isinstance(fresh, Death)
            answer = fresh if died else msgspec.structs.replace(answer, again=fresh.outputs)
        return self.seen(case, answer)

    def run_fresh(self, case: Any) -> Any:
        """The same in a process of its own."""
        try:
            answer = self._executor.run_fresh(case)
        except RunnerFailure as failure:
            return self._of_failure(case, failure)
        return self._of_death(case, answer) if isinstance(answer, Death) else self.seen(case, answer)

    def bears_company(self, case: Any) -> bool:
        """Not a case with control edges: what the runtime writes by RT-05 may end the next case."""
        if isinstance(case, DelegateCase):
            return case.again != "process" and not _looks_at_heap(case)
        return not (isinstance(case, ScriptCase) and (needs_child(case) or without_edges(case) is not case))

    def smaller(self, case: Any) -> Iterator[Any]:
        """See `pytest_qnn.tflite.cases.reduce`."""
        return smaller(case)

    def revealing(self, case: Any) -> Iterator[Any]:
        """Of a delegate case with a wrong number, the same with results inside its graph as outputs.

        The first of them that still fails names the node with which the error began.
        """
        return with_more_outputs(case) if isinstance(case, DelegateCase) else iter(())

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:
        """See `pytest_qnn.tflite.controls`; behind those of any case those of what only some cases have."""
        yield from controls(case, died=died)
        yield from of_refusals(case, died=died)
        yield from of_samples(case, died=died)
        yield from of_histories(case, died=died)

    def around(self, facts: DelegateFacts, case: Any) -> DelegateFacts:
        """See `pytest_qnn.tflite.controls`."""
        return around(facts, case)

    def seen(self, case: Any, answer: Any) -> Any:
        """The trace of a case that gave this answer: an empty one where its process died."""
        if isinstance(answer, Death):
            place = _place(case, len(self._facts.delegates), answer.step)
            death = described(answer, place, functools.partial(_with_operators, case))
            if death.kind == "large":
                death = msgspec.structs.replace(death, of_case=self._is_large_alone(case))
            return CODEC.empty_trace(case)(death=death, facts=self._facts)
        trace = msgspec.structs.replace(answer, facts=self._facts)
        distort = self._distort.get(type(trace))
        return distort(trace) if distort else trace

    def _of_death(self, case: Any, death: Death) -> Any:
        """The trace of a case that ended its process; empty where it was not the delegate that did."""
        if isinstance(case, ScriptCase) and not death.lost and death.kind != "large":
            if needs_child(case) and _in_a_step(death) and self._misaligned(case):
                return ScriptTrace(misaligned=True, facts=self._facts)
            if self._lost_the_order(case):
                return ScriptTrace(order_lost=True, facts=self._facts)
            if _may_die_alone(case) and _in_a_step(death) and self._dies_alone(case):
                return ScriptTrace(died_alone=True, facts=self._facts)
        return self.seen(case, death)

    def _of_failure(self, case: Any, failure: RunnerFailure) -> Any:
        """The trace of a case in which our own code failed: by RT-05 the runtime may have written over it.

        Raises:
            RunnerFailure: for all other cases.
        """
        if isinstance(case, ScriptCase) and self._lost_the_order(case):
            return ScriptTrace(order_lost=True, facts=self._facts)
        raise failure

    def _lost_the_order(self, case: ScriptCase) -> bool:
        """Whether it was the runtime that ended the process, by RT-05 (docs/reference/runtimes.md).

        Control edges are places in the plan, and the runtime goes on using them after a delegate's first
        Replace has shortened it. Whether there was a second one is seen without the edges.
        """
        bare = without_edges(case)
        if bare is case:
            return False
        answer = self._executor.run(bare)
        return not isinstance(answer, Death) and any(
            len(applied.claims()) > 1 for seen in answer.interpreters for applied in seen.applied
        )

    def _is_large_alone(self, case: Any) -> bool:
        """Whether what the CPU gives of the case's tensors is too much for an answer by itself."""
        if isinstance(case, DelegateCase):
            alone: Any = msgspec.structs.replace(case, applications=(), look=(), history=None)
        elif isinstance(case, ScriptCase):
            alone = without_delegates(case)
        else:
            return False
        answer = self._executor.run(alone)
        return isinstance(answer, Death) and answer.kind == "large"

    def _dies_alone(self, case: ScriptCase) -> bool:
        alone = without_delegates(case)
        in_child = self._executor.isolated or needs_child(alone)
        return in_child and _in_a_step(self._executor.run(alone, guarded=True))

    def _misaligned(self, case: ScriptCase) -> bool:
        """Whether the case ends the process without guard pages too, and does not with aligned buffers.

        A client that passes SkipAlignCheck is warned that it may crash (tflite/core/interpreter.h).
        """
        bare = without_guards(case)
        return bare != case and (
            _in_a_step(self._executor.run(bare, guarded=True))
            and not isinstance(self._executor.run(aligned(bare), guarded=True), Death)
        )


def _may_die_alone(case: ScriptCase) -> bool:
    """The runtime is given a model, or kernels, that end the process on some versions of it."""
    steps = flat(case.steps)
    return bool(case.edits) or any(isinstance(step, Open) and step.resolver == "reference" for step in steps)


def _in_a_step(answer: Any) -> bool:
    """Whether this is a death, and the case had begun: the process is first made ready with the delegate."""
    return isinstance(answer, Death) and answer.step >= 0


def _place(case: Any, chain_length: int, step: int) -> str:
    """The step or phase in words; ``chain_length``: delegates that the target consists of."""
    if isinstance(case, DelegateCase):
        return phase_name(case, chain_length, step)
    if isinstance(case, ScriptCase) and case.history is not None and step < 0:
        return IN_HISTORY
    steps = flat(case.steps) if isinstance(case, ScriptCase) else case.steps
    if step == len(steps):
        return "destroying what is left"
    return f"step {step} ({type(steps[step]).__name__})" if 0 <= step < len(steps) else ""


_NODES = re.compile(r"(?<=, node)s? [\d, ]+$")


def _with_operators(case: Any, name: str) -> str:
    """The name of a kernel's callback, with the operators of its nodes where the case has one graph."""
    graphs = case.graphs if isinstance(case, ScriptCase) else (case.graph,)
    if len(graphs) > 1 or graphs[0].subgraphs:
        return name
    nodes = graphs[0].nodes

    def named(found: re.Match[str]) -> str:
        index = int(found[0])
        return f"{index} ({nodes[index].op})" if index < len(nodes) else found[0]

    return _NODES.sub(lambda found: re.sub(r"\d+", named, found[0]), name)

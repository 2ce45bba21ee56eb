"""What the rules about shapes, loops and variables share: what a script read, and what it should have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pytest_qnn.core.verdict import Unsupported, WrongOutput
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import Apply, Invoke, MakeDelegate, Read, ScriptCase, SetInputs, flat
from pytest_qnn.tflite.checks.judging import line
from pytest_qnn.tflite.checks.numbers import arithmetic, gravely_wrong
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.numerics.flat import flattened
from pytest_qnn.tflite.numerics.precision import EXACT, Arithmetic
from pytest_qnn.tflite.trace import DELEGATE, InterpreterSeen, PlanNode, ScriptTrace

ALLOW_DYNAMIC = 1
"""kTfLiteDelegateFlagsAllowDynamicTensors."""
REQUIRE_PROPAGATED = 2
"""kTfLiteDelegateFlagsRequirePropagatedShapes."""

Plan = tuple[PlanNode, ...]


class Reading(NamedTuple):
    """One Read of an interpreter's outputs."""

    step: int
    graph: Graph
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    cpu: tuple[Array, ...]
    computed: Arithmetic = EXACT
    """In what the target computes."""

    def wrong(self) -> str:
        """What is gravely wrong with the outputs; empty: nothing, or the CPU itself gives none."""
        if self.outputs == self.cpu or not self.cpu:
            return ""
        values = [array.numpy() for array in self.inputs]
        return gravely_wrong(flattened(self.graph, values), values, self.outputs, self.cpu, self.computed)

    def check(self, expected: str) -> bool:
        """Whether there was something to compare with: the CPU may refuse what was asked.

        Raises:
            WrongOutput: the outputs are gravely wrong.
        """
        seen = self.wrong()
        if seen:
            shapes = ", ".join(str(list(array.shape)) for array in self.inputs)
            raise WrongOutput(expected, seen, f"step {self.step}, inputs of shapes {shapes}")
        return bool(self.cpu)


def readings(case: ScriptCase, trace: ScriptTrace, seen: InterpreterSeen) -> Iterator[Reading]:
    """What was read of the interpreter, in order, with the inputs of the invoke before."""
    contents: tuple[Array, ...] = ()
    inputs: tuple[Array, ...] = ()
    graph = case.graphs[seen.graph]
    for number, step in enumerate(flat(case.steps)):
        if named(step, "interpreter") != seen.name or not trace.steps[number].ok:
            continue
        given = trace.steps[number]
        if isinstance(step, SetInputs) and len(given.outputs) == len(graph.inputs):
            contents = given.outputs
        elif isinstance(step, Invoke) and not given.skipped:
            inputs = contents
        elif isinstance(step, Read) and inputs:
            yield Reading(number, graph, inputs, given.outputs, given.cpu, arithmetic(trace.facts))


def the_interpreter(trace: ScriptTrace) -> InterpreterSeen:
    """The only interpreter of the case.

    Raises:
        Unsupported: its plan cannot be read on this runtime, or none was opened.
    """
    if not trace.observed:
        raise Unsupported("the private layout of the runtime is not the expected one: no plan")
    if not trace.interpreters:
        raise Unsupported("no interpreter was opened", final=False)
    return trace.interpreters[0]


def made(case: ScriptCase, seen: InterpreterSeen) -> list[MakeDelegate]:
    """How the delegates were made that were applied, in the order of application."""
    steps = {step.delegate: step for step in flat(case.steps) if isinstance(step, MakeDelegate)}
    return [steps[name] for name in seen.delegates]


def applied_interpreter(trace: ScriptTrace) -> InterpreterSeen:
    """As `the_interpreter`, to which the target was applied with success.

    Raises:
        Unsupported: it was not. That a delegate fails is the finding of PART-04 and PART-16.
    """
    seen = the_interpreter(trace)
    for applied in seen.applied:
        if applied.is_target and not applied.ok:
            if not applied.prepared:
                raise Unsupported("the delegate allows no dynamic tensors, so the runtime does not apply it")
            raise Unsupported(f"{applied.name} failed: {line(applied.message)}", final=False)
    if not any(applied.is_target for applied in seen.applied):
        raise Unsupported("the delegate could not be made", final=False)
    return seen


def plan_at(seen: InterpreterSeen, step: int) -> Plan:
    """The plan as it stood after a step."""
    plan = seen.plan_before
    for number, changed in seen.plans:
        if number <= step:
            plan = changed
    return plan


def target_nodes(seen: InterpreterSeen, plan: Plan) -> list[PlanNode]:
    """The kernels of the target in a plan."""
    mine = {position for position, applied in enumerate(seen.applied) if applied.is_target}
    return [node for node in plan if node.op == DELEGATE and node.owner in mine]


def flags_of(seen: InterpreterSeen) -> int:
    """TfLiteDelegateFlags of the target, as first seen."""
    for applied, flags in zip(seen.applied, seen.flags, strict=True):
        if applied.is_target and flags:
            return flags[0]
    return 0


def step_failure(case: ScriptCase, trace: ScriptTrace, first: int = 0) -> tuple[int, str]:
    """The first step from ``first`` on that failed, with what it said; (-1, "") if none did."""
    known = False
    for number, step in enumerate(flat(case.steps)):
        known = known or isinstance(step, SetInputs)
        if number < first or isinstance(step, Apply) or (isinstance(step, Invoke) and not known):
            continue  # what was never set may be any shape
        for given in (trace.steps[number].first, trace.steps[number]):
            if given is not None and not given.ok and not given.skipped:
                return number, f"{type(step).__name__} (step {number}) failed: {line(given.message)}"
    return -1, ""

"""Comparing outputs: bit for bit with the CPU, within the operators' bounds, or for grave errors only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.core.verdict import Violation, WrongOutput, WrongShape
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.samples import of_length
from pytest_qnn.tflite.checks import judging
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.numerics.bounds import Expected, expected_outputs
from pytest_qnn.tflite.numerics.kernels import run_graph
from pytest_qnn.tflite.numerics.precision import EVERY_OP, EXACT, Arithmetic
from pytest_qnn.tflite.trace import DelegateTrace

_MARGIN = 16.0
"""Multiple of the operators' own tolerance below which a difference is a matter of precision."""
_RELATIVE = 2.0**-6
"""Part of the largest magnitude on the way to an output below which a float difference is one too.

float16 rounds by 2**-11 of a value; a difference of large values keeps that error and loses their size.
"""
_UNITS = 48.0
"""The same for int8, in units: a few of them grow where a result has a finer scale than its operands."""
_HUGE = 1e30
"""Beyond, float32 overflow is near and kernels legally differ."""


def arithmetic(facts: DelegateFacts | None, base: Arithmetic = EXACT) -> Arithmetic:
    """In what a target with these facts computes float32 graphs: ``base``, and float16 where that is known.

    Whether float16 may be used at all is NUM-08's question. Every other rule judges by the bounds of what the
    target does, so that one choice is one finding.
    """
    if facts is None:
        return base
    return base.with_half(EVERY_OP if facts.precision == "float16" else facts.half)


def same_bits(case: DelegateCase, trace: DelegateTrace, expected: str) -> None:
    """Raises Violation where an output of an invoke is not the CPU's, bit for bit."""
    for number, outputs in enumerate(trace.outputs):
        for tensor, seen, cpu in zip(case.graph.outputs, outputs, trace.cpu, strict=True):
            if seen != cpu:
                raise Violation(
                    f"{expected}: {_numbers(cpu)}",
                    _numbers(seen),
                    f"graph output t{tensor}, invoke {number}",
                    judging.draw(case, trace),
                )


def outputs_are_right(
    case: DelegateCase,
    trace: DelegateTrace,
    expected: str,
    *,
    units: float = _UNITS,
    among: Collection[int] | None = None,
) -> None:
    """Raises WrongOutput where an output is gravely wrong, as by a value that took the wrong way.

    Rules about partitions and lifetimes use it. They leave precision to NUM: a difference within 16 times
    the operators' own tolerance, or 1/64 of the largest magnitude that went into the output (int8: 48
    units), is none of their business. A value that was not written, or is another tensor's, is off by its
    own magnitude. Of a single int8 node, whose operands are exact, no ``units`` need to be allowed.
    Of another shape than was expected it raises WrongShape.

    Args:
        case: with the graph.
        trace: of it.
        expected: in words.
        units: of int8, below which a difference is a matter of precision.
        among: the outputs that are looked at; None: all.
    """
    bounds: list[Expected] | None = None
    largest: dict[int, float] = {}
    for number, outputs in enumerate(trace.outputs):
        for position, (seen, cpu) in enumerate(zip(outputs, trace.cpu, strict=True)):
            if seen == cpu or (among is not None and case.graph.outputs[position] not in among):
                continue
            if bounds is None:
                inputs = [array.numpy() for array in trace.inputs]
                bounds = expected_outputs(case.graph, inputs, arithmetic(trace.facts))
                largest = _magnitudes(case.graph, inputs)
            magnitude = largest[case.graph.outputs[position]]
            wrong = _gravely_wrong(bounds[position], seen.numpy(), magnitude, units)
            if wrong:
                kind = WrongOutput if seen.numpy().shape == bounds[position].value.shape else WrongShape
                raise kind(
                    expected,
                    wrong,
                    f"graph output t{case.graph.outputs[position]}, invoke {number}",
                    judging.draw(case, trace),
                )


def gravely_wrong(
    graph: Graph,
    inputs: Sequence[npt.NDArray[Any]],
    outputs: Sequence[Array],
    cpu: Sequence[Array],
    computed: Arithmetic,
) -> str:
    """What is gravely wrong with the outputs of ``graph`` for ``inputs``, as `outputs_are_right` has it.

    An empty text where nothing is. ``outputs`` and ``cpu`` are in the order of the graph's outputs;
    ``computed``: see `arithmetic`.
    """
    bounds: list[Expected] | None = None
    largest: dict[int, float] = {}
    for position, (seen, right) in enumerate(zip(outputs, cpu, strict=True)):
        if seen == right:
            continue
        if bounds is None:
            bounds = expected_outputs(graph, inputs, computed)
            largest = _magnitudes(graph, list(inputs))
        wrong = _gravely_wrong(bounds[position], seen.numpy(), largest[graph.outputs[position]], _UNITS)
        if wrong:
            return f"output {position}: {wrong}"
    return ""


def first_wrong(
    graph: Graph,
    places: npt.NDArray[np.int64],
    inputs: Sequence[npt.NDArray[Any]],
    elements: npt.NDArray[Any],
    cpu: npt.NDArray[Any],
    computed: Arithmetic,
) -> str:
    """The first gravely wrong of some elements of an element-wise graph's only output; empty: none is.

    Args:
        graph: any shapes; it is computed with those elements alone.
        places: where they are in the tensor, as it lies in memory.
        inputs: of each input the elements there.
        elements: of the output.
        cpu: the same by the runtime's own kernels.
        computed: see `arithmetic`.
    """

    def wrong(first: int, last: int) -> str:
        some = [values[first:last] for values in inputs]
        ours, theirs = (Array.of(values[first:last]) for values in (elements, cpu))
        return gravely_wrong(of_length(graph, last - first), some, (ours,), (theirs,), computed)

    first, last = 0, len(places)
    if not wrong(first, last):
        return ""
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (first, middle) if wrong(first, middle) else (middle, last)
    what = elements[first].item(), float(cpu[first])
    return f"{what[0]!r} instead of {what[1]!r} in element {int(places[first])}"


def judged_outputs(
    case: DelegateCase, trace: DelegateTrace
) -> Iterator[tuple[str, Expected, npt.NDArray[Any]]]:
    """(where, expected, seen) of each graph output that a kernel of the target wrote."""
    written = {tensor for kernel in judging.live_target_kernels(trace) for tensor in kernel.outputs}
    if judging.failure(trace) or not written.intersection(case.graph.outputs):
        return
    inputs = [array.numpy() for array in trace.inputs]
    bounds = expected_outputs(case.graph, inputs, arithmetic(trace.facts))
    for number, outputs in enumerate(trace.outputs):
        for expected, seen in zip(bounds, outputs, strict=True):
            # An output of another shape is PART-03's.
            if expected.tensor in written and seen.numpy().shape == expected.value.shape:
                yield f"graph output t{expected.tensor}, invoke {number}", expected, seen.numpy()


def _magnitudes(graph: Graph, inputs: list[npt.NDArray[Any]]) -> dict[int, float]:
    """Tensor -> the largest finite magnitude in it and in all that it is computed from."""
    values = run_graph(graph, inputs)
    largest = {
        index: float(np.abs(value[np.abs(value) < _HUGE], dtype=np.float64).max(initial=0.0))
        for index, value in enumerate(values)
    }
    for node in graph.nodes:
        for output in node.outputs:
            largest[output] = max(largest[output], *(largest[index] for index in node.inputs if index >= 0))
    return largest


def _gravely_wrong(expected: Expected, seen: npt.NDArray[Any], largest: float, units: float) -> str:
    """What is wrong, or an empty text."""
    value = expected.value
    if seen.shape != value.shape:
        return f"shape {seen.shape} instead of {value.shape}"
    slack = units if seen.dtype == np.int8 else _RELATIVE * largest
    with np.errstate(invalid="ignore"):
        near = np.abs(seen.astype(np.float64) - value) <= _MARGIN * expected.tolerance + slack
        wrong = ~near & (np.abs(value) < _HUGE) & ~np.isinf(expected.tolerance)
    if not wrong.any():
        return ""
    at = int(wrong.argmax())
    return (
        f"{seen.ravel()[at].item()!r} instead of {float(value.ravel()[at])!r} in element {at}, "
        f"{int(wrong.sum())} of {wrong.size} wrong"
    )


def _numbers(array: Array) -> str:
    values = array.numpy().ravel()
    shown = ", ".join(repr(value.item()) for value in values[:6])
    return f"[{shown}{', ...' if values.size > 6 else ''}]"


def undone_to_cpu(case: DelegateCase, trace: DelegateTrace) -> None:
    """Raises Violation unless the plan is the original one and gives the CPU's results, bit for bit."""
    plan_is_undone(case, trace)
    same_bits(case, trace, "the CPU's own results, bit for bit, after the failed application")


def plan_is_undone(case: DelegateCase, trace: DelegateTrace) -> None:
    """Raises Violation unless the plan is the original one, and runs."""
    before, after = ([(n.index, n.op) for n in plan] for plan in (trace.plan_before, trace.plan))
    if after != before:
        raise Violation(
            f"the original plan {[index for index, _ in before]}",
            f"{[index for index, _ in after]}",
            "after the failed application",
            judging.draw(case, trace),
        )
    error = trace.allocate_error or next(filter(None, trace.invoke_errors), "")
    if error:
        raise Violation("the graph to run on the CPU", error, "after the failed application")

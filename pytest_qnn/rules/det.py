"""DET: outputs are a function of the inputs, and all of them are written."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases import numeric_strategies as numeric
from pytest_qnn.cases.arrays import Array
from pytest_qnn.cases.data import inputs_of
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.oracle.kernels import run_graph
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import DelegateTrace


@rule(
    "DET-01",
    Level.MUST,
    "Repeated invokes with the same inputs give bit-identical outputs in one interpreter.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=cases.repeated,
)
def repeats_itself(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares every later invoke with the first; inputs that a kernel changed are MEM-02's affair."""
    support.need_work(trace)
    kernels = support.live_target_kernels(trace)
    if not kernels or support.failure(trace) or trace.inputs_after != trace.inputs:
        return Examined(0, "outputs compared with the first invoke's")
    looked_at = 0
    for number, outputs in enumerate(trace.outputs[1:], 1):
        for tensor, first, again in zip(case.graph.outputs, trace.outputs[0], outputs, strict=True):
            looked_at += 1
            if first.data != again.data:
                element = _first_difference(first.numpy(), again.numpy())
                raise Violation(
                    f"{first.numpy().ravel()[element]!r} again, as from invoke 0",
                    f"{again.numpy().ravel()[element]!r}",
                    f"element {element} of graph output t{tensor}, invoke {number}",
                    support.draw(case, trace),
                )
    return Examined(looked_at, "outputs compared with the first invoke's")


def _first_difference(first: npt.NDArray[Any], again: npt.NDArray[Any]) -> int:
    bits = f"u{first.itemsize}"
    return int(np.flatnonzero(first.ravel().view(bits) != again.ravel().view(bits))[0])


@rule(
    "DET-04",
    Level.MUST,
    "Every element of an output is written by invoke: what stood there before does not survive.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=cases.poisoned,
)
def overwrites_outputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at graph outputs that a kernel of the target writes, filled with another byte before each invoke.

    An element counts as not written only when it shows the fill of the first invoke after the first, and
    the different fill of the second after the second: no value of its own can do that.
    """
    support.need_work(trace)
    if support.failure(trace) or len(case.poison) < 2 or len(trace.outputs) < 2:
        return Examined(0, "output elements")
    written = {tensor for kernel in support.live_target_kernels(trace) for tensor in kernel.outputs}
    looked_at = 0
    for position, tensor in enumerate(case.graph.outputs):
        if tensor not in written:
            continue
        stale = _filled(trace, position, 0, case.poison[0]) & _filled(trace, position, 1, case.poison[1])
        if stale.any():
            first, second = case.poison[:2]
            raise Violation(
                "every element written",
                f"the fills {first:#x} and {second:#x} left in {stale.sum()} of {stale.size} elements",
                f"element {int(stale.argmax())} of graph output t{tensor}",
                support.draw(case, trace),
            )
        looked_at += stale.size
    return Examined(looked_at, "output elements")


def _filled(trace: DelegateTrace, position: int, invoke: int, byte: int) -> npt.NDArray[np.bool_]:
    array = trace.outputs[invoke][position].numpy()
    bytes_of = array.ravel().view(np.uint8).reshape(array.size, array.itemsize)
    return np.asarray((bytes_of == byte).all(axis=1))


@rule(
    "DET-02",
    Level.MUST,
    "Outputs depend on the inputs of their invoke, not on earlier invokes.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=numeric.revisited,
)
def forgets_earlier_invokes(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Inputs A, B, A: the second A gives the bits of the first, and B gives B's values, not A's."""
    support.need_work(trace)
    what = "outputs of inputs seen before, and of others"
    seeds = case.reseed
    if not support.live_target_kernels(trace) or support.failure(trace) or len(seeds) < 3:
        return Examined(0, what)
    if seeds[0] != seeds[2] or len(trace.outputs) < 3:
        return Examined(0, what)
    for tensor, first, again in zip(case.graph.outputs, trace.outputs[0], trace.outputs[2], strict=True):
        if first.data != again.data:
            element = _first_difference(first.numpy(), again.numpy())
            raise Violation(
                f"{first.numpy().ravel()[element]!r} again, as from the same inputs in invoke 0",
                f"{again.numpy().ravel()[element]!r}",
                f"element {element} of graph output t{tensor}, invoke 2, after other inputs in invoke 1",
                support.draw(case, trace),
            )
    other = [Array.of(array) for array in inputs_of(msgspec.structs.replace(case, data_seed=seeds[1]))]
    values = run_graph(case.graph, [array.numpy() for array in other])
    right = tuple(Array.of(values[tensor]) for tensor in case.graph.outputs)
    outputs = (right, trace.outputs[1])  # what stands in place of invoke 0 is right by definition
    second = msgspec.structs.replace(trace, inputs=tuple(other), cpu=right, outputs=outputs)
    outputs_are_right(case, second, "the values of the second inputs, not of the first")
    return Examined(2 * len(case.graph.outputs), what)


@rule(
    "DET-03",
    Level.SHOULD,
    "Two interpreters of one model give equal outputs, in one process and in two.",
    source="an inference is a function of model and inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=numeric.twice,
    weight=0.25,
)
def agrees_with_another_interpreter(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares bit for bit with a second interpreter beside the first, or with one in a fresh process."""
    support.need_work(trace)
    what = "outputs compared with another interpreter's"
    if not support.live_target_kernels(trace) or support.failure(trace) or not trace.again:
        return Examined(0, what)
    elsewhere = "a fresh process" if case.again == "process" else "a second interpreter beside it"
    looked_at = 0
    for number, (here, there) in enumerate(zip(trace.outputs, trace.again, strict=True)):
        if not there:
            raise Violation("a second success", "a failed invoke", f"invoke {number} in {elsewhere}")
        for tensor, first, again in zip(case.graph.outputs, here, there, strict=True):
            looked_at += 1
            if first.data != again.data:
                element = _first_difference(first.numpy(), again.numpy())
                raise Violation(
                    f"{first.numpy().ravel()[element]!r}, as on the first interpreter",
                    f"{again.numpy().ravel()[element]!r}",
                    f"element {element} of graph output t{tensor}, invoke {number} in {elsewhere}",
                    support.draw(case, trace),
                )
    return Examined(looked_at, what)

"""DET: outputs are a function of the inputs, and all of them are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import changed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Violation, WrongOutput
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.checks import judging
from pytest_qnn.tflite.checks.numbers import outputs_are_right
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import Graph, Op
from pytest_qnn.tflite.graph.kinds import Claims
from pytest_qnn.tflite.numerics.kernels import run_graph
from pytest_qnn.tflite.strategies.claimed import claimed_kinds, mixed_kinds, need_claims, taken
from pytest_qnn.tflite.strategies.delegates import POISON, delegate_cases, target_application
from pytest_qnn.tflite.strategies.numeric import numeric_cases
from pytest_qnn.tflite.trace import DelegateTrace


def repeated(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph and claim, invoked four times."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (target_application(facts, claims[0], choice),), invokes=4)

    return delegate_cases(mixed_kinds(facts), make, 1, max_nodes=10)


@rule(
    "DET-01",
    Level.MUST,
    "Repeated invokes with the same inputs give bit-identical outputs in one interpreter.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=repeated,
)
def repeats_itself(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares every later invoke with the first; inputs that a kernel changed are MEM-02's affair."""
    judging.need_work(trace)
    kernels = judging.live_target_kernels(trace)
    if not kernels or judging.failure(trace) or trace.inputs_after != trace.inputs:
        return Examined(0, "outputs compared with the first invoke's")
    looked_at = 0
    for number, outputs in enumerate(trace.outputs[1:], 1):
        for tensor, first, again in zip(case.graph.outputs, trace.outputs[0], outputs, strict=True):
            looked_at += 1
            if first.data != again.data:
                element = _first_difference(first.numpy(), again.numpy())
                raise WrongOutput(
                    f"{first.numpy().ravel()[element]!r} again, as from invoke 0",
                    f"{again.numpy().ravel()[element]!r}",
                    f"element {element} of graph output t{tensor}, invoke {number}",
                    judging.draw(case, trace),
                )
    return Examined(looked_at, "outputs compared with the first invoke's")


def _first_difference(first: npt.NDArray[Any], again: npt.NDArray[Any]) -> int:
    bits = f"u{first.itemsize}"
    return int(np.flatnonzero(first.ravel().view(bits) != again.ravel().view(bits))[0])


def poisoned(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Any graph and claim, invoked twice with different bytes in the outputs beforehand."""
    need_claims(facts)

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, (target_application(facts, claims[0], choice),), invokes=2, poison=POISON)

    return delegate_cases(mixed_kinds(facts), make, 1, max_nodes=10)


@rule(
    "DET-04",
    Level.MUST,
    "Every element of an output is written by invoke: no earlier content of its memory remains.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=poisoned,
)
def overwrites_outputs(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at graph outputs that a kernel of the target writes, filled with another byte before each invoke.

    An element counts as not written only when it shows the fill of the first invoke after the first, and
    the different fill of the second after the second: no value of its own can do that.
    """
    judging.need_work(trace)
    if judging.failure(trace) or len(case.poison) < 2 or len(trace.outputs) < 2:
        return Examined(0, "output elements")
    written = {tensor for kernel in judging.live_target_kernels(trace) for tensor in kernel.outputs}
    looked_at = 0
    for position, tensor in enumerate(case.graph.outputs):
        if tensor not in written:
            continue
        stale = _filled(trace, position, 0, case.poison[0]) & _filled(trace, position, 1, case.poison[1])
        if stale.any():
            first, second = case.poison[:2]
            raise WrongOutput(
                "every element written",
                f"the fills {first:#x} and {second:#x} left in {stale.sum()} of {stale.size} elements",
                f"element {int(stale.argmax())} of graph output t{tensor}",
                judging.draw(case, trace),
            )
        looked_at += stale.size
    return Examined(looked_at, "output elements")


def _filled(trace: DelegateTrace, position: int, invoke: int, byte: int) -> npt.NDArray[np.bool_]:
    array = trace.outputs[invoke][position].numpy()
    bytes_of = array.ravel().view(np.uint8).reshape(array.size, array.itemsize)
    return np.asarray((bytes_of == byte).all(axis=1))


def _returning(case: DelegateCase) -> DelegateCase:
    seed = case.data_seed
    return msgspec.structs.replace(case, reseed=(seed, seed + case.reseed[1], seed))


_LAYERS: Final[tuple[Op, ...]] = ("FULLY_CONNECTED",)


def revisited(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Inputs A, then B, then A again, on one interpreter; every second graph is one layer, if it is claimed.

    Weights may be inputs, too.
    """
    need_claims(facts)
    has_layers = any(kind.op in _LAYERS and kind.dtype == "float32" for kind in taken(facts))
    single = claimed_kinds(facts, ops=_LAYERS, dtypes=("float32",)) if has_layers else ()

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        return DelegateCase(graph, invokes=3, reseed=(0, choice + 1, 0))

    return changed(numeric_cases(mixed_kinds(facts), make, 0, max_nodes=6, single=single), _returning)


@rule(
    "DET-02",
    Level.MUST,
    "Outputs depend on the inputs of their invoke, not on earlier invokes.",
    source="an inference is a function of its inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=revisited,
)
def forgets_earlier_invokes(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Inputs A, B, A: the second A gives the bits of the first, and B gives B's values, not A's."""
    judging.need_work(trace)
    what = "outputs of inputs seen before, and of others"
    seeds = case.reseed
    if not judging.live_target_kernels(trace) or judging.failure(trace) or len(seeds) < 3:
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
                judging.draw(case, trace),
            )
    other = [Array.of(array) for array in inputs_of(msgspec.structs.replace(case, data_seed=seeds[1]))]
    values = run_graph(case.graph, [array.numpy() for array in other])
    right = tuple(Array.of(values[tensor]) for tensor in case.graph.outputs)
    outputs = (right, trace.outputs[1])  # what stands in place of invoke 0 is right by definition
    second = msgspec.structs.replace(trace, inputs=tuple(other), cpu=right, outputs=outputs)
    outputs_are_right(case, second, "the values of the second inputs, not of the first")
    return Examined(2 * len(case.graph.outputs), what)


_AGAIN: tuple[Literal["interpreter", "process"], ...] = ("interpreter",) * 6 + ("process",)


def twice(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """The same case on a second interpreter, one in seven in a process of its own.

    All results are outputs, which hold the same bytes before: what a kernel does not write is equal, and
    DET-04's.
    """
    need_claims(facts)

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        outputs = dict.fromkeys((*graph.outputs, *_results(graph)))
        seen = msgspec.structs.replace(graph, outputs=tuple(outputs))
        return DelegateCase(seen, invokes=2, poison=POISON, again=_AGAIN[choice % len(_AGAIN)])

    return numeric_cases(mixed_kinds(facts), make, 0, max_nodes=6)


def _results(graph: Graph) -> Iterator[int]:
    return (tensor for node in graph.nodes for tensor in node.outputs)


@rule(
    "DET-03",
    Level.SHOULD,
    "Two interpreters of one model give equal outputs, in one process and in two.",
    source="an inference is a function of model and inputs (interpreter.h: Interpreter::Invoke)",
    subject="delegate",
    cases=twice,
    weight=0.25,
)
def agrees_with_another_interpreter(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Compares bit for bit with a second interpreter beside the first, or with one in a fresh process.

    Not where a result could hold anything before: a kernel that leaves some of it is DET-04's.
    """
    judging.need_work(trace)
    what = "outputs compared with another interpreter's"
    filled = case.poison and set(_results(case.graph)) <= set(case.graph.outputs)
    if not (filled and judging.live_target_kernels(trace) and trace.again) or judging.failure(trace):
        return Examined(0, what)
    elsewhere = "a fresh process" if case.again == "process" else "a second interpreter beside it"
    looked_at = 0
    for number, (here, there) in enumerate(zip(trace.outputs, trace.again, strict=True)):
        if not there:
            raise FailedCall("a second success", "a failed invoke", f"invoke {number} in {elsewhere}")
        for tensor, first, again in zip(case.graph.outputs, here, there, strict=True):
            looked_at += 1
            if first.data != again.data:
                element = _first_difference(first.numpy(), again.numpy())
                raise Violation(
                    f"{first.numpy().ravel()[element]!r}, as on the first interpreter",
                    f"{again.numpy().ravel()[element]!r}",
                    f"element {element} of graph output t{tensor}, invoke {number} in {elsewhere}",
                    judging.draw(case, trace),
                )
    return Examined(looked_at, what)

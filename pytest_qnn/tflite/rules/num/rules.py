"""NUM: the numbers. Tolerances belong to the operators: see `pytest_qnn.tflite.numerics.bounds`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded, listed
from pytest_qnn.core.rule import NothingToJudge, rule
from pytest_qnn.core.verdict import Divergence, Examined, Level, Unsupported, WrongOutput
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.samples import periods
from pytest_qnn.tflite.cases.script import Allocate, Apply, MakeDelegate, Open, Resize, Sample, ScriptCase
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import arithmetic, first_wrong, judged_outputs
from pytest_qnn.tflite.facts import LIMITS, DelegateFacts
from pytest_qnn.tflite.graph.constants import float_weights, integers, single
from pytest_qnn.tflite.graph.graph import Activation, DType, Graph, Node, Op, Tensor
from pytest_qnn.tflite.graph.kinds import Claims, copied
from pytest_qnn.tflite.graph.operators import SUMS
from pytest_qnn.tflite.graph.scales import TWO_SHAPES, all_and
from pytest_qnn.tflite.numerics import special
from pytest_qnn.tflite.numerics.bounds import Expected, Mismatch, expected_outputs, mismatch
from pytest_qnn.tflite.numerics.half import is_of_halved_operands
from pytest_qnn.tflite.numerics.kernels import constant_value
from pytest_qnn.tflite.numerics.precision import EVERY_OP, EXACT, SINGLE, Arithmetic, is_half
from pytest_qnn.tflite.numerics.real import InUnits, real_outputs
from pytest_qnn.tflite.strategies.claimed import and_larger, claimed_kinds, mixed_kinds, need_claims, taken
from pytest_qnn.tflite.strategies.delegates import claimed_alone, delegate_cases
from pytest_qnn.tflite.strategies.large import plain_kinds, plain_tensor, two_nodes
from pytest_qnn.tflite.strategies.numeric import numeric_cases
from pytest_qnn.tflite.trace import DelegateTrace, SampleCounts, ScriptTrace

Array = npt.NDArray[Any]
Wanted = Callable[[Graph, Node], bool]


class Judged(NamedTuple):
    """One graph output with all that is known of what it must be."""

    tensor: int
    node: int
    """Index of the node that writes it."""
    expected: Expected
    real: InUnits | None
    """int8: what it is in real numbers."""
    cpu: Array


def need_claim(case: DelegateCase, trace: DelegateTrace) -> None:
    """Raise Unsupported where the target has no kernel: another case may show some."""
    judging.need_work(trace)
    if not judging.live_target_kernels(trace):
        dtype = case.graph.tensors[case.graph.outputs[0]].dtype
        raise Unsupported(f"the delegate left every {dtype} node of these cases to the CPU", final=False)


def within_bounds(
    case: DelegateCase,
    trace: DelegateTrace,
    wanted: Wanted | None = None,
    base: Arithmetic = SINGLE,
    *,
    ends: bool = True,
    rounding: bool = False,
    of: Collection[Op] = (),
) -> int:
    """The number of elements that the target wrote, all of them within the bounds of their operators.

    Quantised results are judged three ways: against the chain of results rounded once each, against real
    numbers, and beside the runtime's own int8 kernels. Outputs that the CPU itself gets wrong are left out:
    that is the runtime's defect.

    Args:
        case: with the graph.
        trace: of it.
        wanted: counts only results of such nodes; None: of all.
        base: what float32 operators may be off by, but for those that are known to compute in float16.
        ends: judges elements whose expected value is an end of the range too.
        rounding: judges whether int8 results are rounded to the nearest unit too, which NUM-03 alone demands.
        of: judges what such nodes may have got wrong; empty: what any node has.

    Raises:
        Divergence: an element is out of its bounds; it names the first such output in order of execution.
        Unsupported: the target has no kernel in it.
    """
    need_claim(case, trace)
    if judging.failure(trace):
        return 0
    written = {tensor for kernel in judging.live_target_kernels(trace) for tensor in kernel.outputs}
    outputs = _judged(case, trace, arithmetic(trace.facts, base))
    looked_at = 0
    for number, seen in enumerate(trace.outputs):
        right = {i for i, tensor in enumerate(case.graph.tensors) if tensor.data} | set(case.graph.inputs)
        for judged in outputs:
            values = seen[case.graph.outputs.index(judged.tensor)].numpy()
            if values.shape != judged.expected.value.shape:
                continue  # of another shape than was asked for: PART-03
            if not ends:
                values = np.where(_at_an_end(judged.expected), judged.cpu, values)
            wrong = _mismatch(judged, values, rounding=rounding)
            if wrong is None:
                right.add(judged.tensor)
            elif (
                judged.tensor in written
                and (not of or _may_be_of(case.graph, judged.tensor, right, of))
                and _mismatch(judged, judged.cpu, rounding=rounding) is None
            ):
                raise _divergence(case, trace, judged, wrong, right, number, values)
            node = case.graph.nodes[judged.node]
            if judged.tensor in written and (wanted is None or wanted(case.graph, node)):
                looked_at += values.size
    return looked_at


def _at_an_end(expected: Expected) -> npt.NDArray[np.bool_]:
    return np.asarray((expected.value == expected.least) | (expected.value == expected.greatest))


def _judged(case: DelegateCase, trace: DelegateTrace, computed: Arithmetic) -> list[Judged]:
    """The outputs that nodes write, in the order of the nodes."""
    graph = case.graph
    inputs = [array.numpy() for array in trace.inputs]
    makers = {tensor: index for index, node in enumerate(graph.nodes) for tensor in node.outputs}
    real: dict[int, InUnits] = {}
    if graph.tensors[graph.nodes[0].outputs[0]].dtype == "int8":
        real = real_outputs(graph, inputs)
    found = [
        Judged(expected.tensor, makers[expected.tensor], expected, real.get(expected.tensor), cpu.numpy())
        for expected, cpu in zip(expected_outputs(graph, inputs, computed), trace.cpu, strict=True)
        if expected.tensor in makers
    ]
    return sorted(found, key=lambda judged: judged.node)


def _mismatch(judged: Judged, seen: Array, *, rounding: bool = False) -> Mismatch | None:
    wrong = mismatch(judged.expected, seen, rounding=rounding)
    if wrong is not None or judged.real is None:
        return wrong
    off = np.abs(seen.astype(np.float64) - judged.real.value) > judged.real.off
    if not off.any():
        return None
    index = tuple(int(place) for place in np.unravel_index(int(off.argmax()), seen.shape))
    why = "against real numbers: 3/2 LSB for each operator, propagated"
    value, bound = float(judged.real.value[index]), float(judged.real.off[index])
    return Mismatch(index, value, float(seen[index]), bound, int(off.sum()), why)


def origin(graph: Graph, tensor: int, right: Collection[int] | None = None) -> tuple[int, bool, str]:
    """(index of the node that writes ``tensor``, whether an error in it began there, the same in words).

    ``right``: the tensors whose contents were seen to be right; None: inputs, constants and outputs.
    """
    index, node = next((i, node) for i, node in enumerate(graph.nodes) if tensor in node.outputs)
    if right is None:
        constants = {number for number, one in enumerate(graph.tensors) if one.data is not None}
        right = constants.union(graph.inputs, graph.outputs)
    unseen = sorted({operand for operand in node.inputs if operand >= 0}.difference(right))
    if not unseen:
        return index, True, f"node {index} ({node.op}) writes it: the first node that diverges"
    named = " and ".join(f"t{operand}" for operand in unseen)
    return index, False, f"node {index} ({node.op}) writes it, and what it reads, {named}, was not seen right"


def _may_be_of(graph: Graph, tensor: int, right: Collection[int], ops: Collection[Op]) -> bool:
    """Whether what is wrong in the tensor may come of a node with one of these operators."""
    waiting, known = [tensor], {*right}
    while waiting:
        known.add(current := waiting.pop())
        node = graph.nodes[origin(graph, current, right)[0]]
        if node.op in ops:
            return True
        waiting += {operand for operand in node.inputs if operand >= 0} - known
    return False


def _divergence(
    case: DelegateCase,
    trace: DelegateTrace,
    judged: Judged,
    wrong: Mismatch,
    right: Collection[int],
    invoke: int,
    seen: Array,
) -> Divergence:
    bound = f" +- {wrong.tolerance:.3g}" if wrong.tolerance else " exactly"
    expected = f"{wrong.expected!r}{bound} ({wrong.derivation})"
    if judged.real is not None and wrong.index:
        real = float(judged.real.value[wrong.index])
        expected += f"; it is {real:.2f} in real numbers, and {int(judged.cpu[wrong.index])} on the CPU"
    where = f"element {list(wrong.index)} of graph output t{judged.tensor}, invoke {invoke}"
    _, is_first, begun = origin(case.graph, judged.tensor, right)
    return Divergence(
        expected,
        f"{wrong.seen!r}, {wrong.count} of {seen.size} elements off",
        f"{where}; {begun}",
        judging.draw(case, trace, judged.node),
        node=judged.node,
        is_first=is_first,
    )


_MEASURED = "held by the CPU kernels and XNNPACK of both runtimes (tests/tflite/numerics/test_bounds.py)"
_QUANTISATION = "TensorFlow Lite 8-bit quantisation specification"

ELEMENTWISE: tuple[Op, ...] = (
    "ADD",
    "SUB",
    "MUL",
    "MAXIMUM",
    "RELU",
    "ABS",
    "NEG",
    "PRELU",
    "RESHAPE",
    "CONCATENATION",
)
"""Operators with one correctly rounded operation (or none) per element of the result."""


def elementwise(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Up to three float32 element-wise nodes, all for the target."""
    return delegate_cases(
        claimed_kinds(facts, ops=ELEMENTWISE, dtypes=("float32",)), claimed_alone, 0, max_nodes=3
    )


@rule(
    "NUM-01",
    Level.SHOULD,
    "float32 element-wise operators (ADD, SUB, MUL, MAXIMUM, RELU, ABS, NEG, PRELU, RESHAPE, CONCATENATION) "
    "give exactly the values of the CPU.",
    source=f"IEEE 754, one correctly rounded operation per element; {_MEASURED}",
    subject="delegate",
    cases=elementwise,
    gate=("float32",),
)
def computes_elements_exactly(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Zeros of either sign are equal: kernels of the runtime's own differ there.

    What is further off than it may be is NUM-10's finding. What computes in float16 is judged by its bounds.
    """
    try:
        return Examined(within_bounds(case, trace, base=EXACT), "elements")
    except Divergence:
        try:
            within_bounds(case, trace)
        except Divergence:
            raise Unsupported("the results are further off than NUM-10 allows", final=False) from None
        raise


def _alone(graph: Graph, _: Claims, __: int) -> DelegateCase:
    return DelegateCase(graph)


_MORE_SHAPES = all_and(TWO_SHAPES, TWO_SHAPES)
"""What is computed of the other operand, or of the wrong one of its elements, shows in such nodes only."""


def long_elementwise(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Up to three float32 element-wise nodes; every second case is a single one with more elements."""
    kinds = claimed_kinds(facts, ops=ELEMENTWISE, dtypes=("float32",))
    single = tuple(kind._replace(large=True) for kind in kinds)
    return numeric_cases(kinds, _alone, 0, max_nodes=3, single=single, scaled=_MORE_SHAPES)


@rule(
    "NUM-10",
    Level.MUST,
    "float32 element-wise operators are within 4 units in the last place of the IEEE 754 result, propagated "
    "through the operators of the graph; operators that round nothing are exact.",
    source="tflite/core/c/common.h, TfLiteContext.allow_fp32_relax_to_fp16 (false by default); "
    f"tflite/numerics/precision.py; {_MEASURED}",
    subject="delegate",
    cases=long_elementwise,
    gate=("float32",),
)
def computes_elements_in_float32(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Operators that are known to compute in float16 are judged by its bounds: NUM-08 says if they may."""
    return Examined(within_bounds(case, trace), "elements")


def sums(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One float32 node that adds up terms, for the target."""
    return delegate_cases(claimed_kinds(facts, ops=SUMS, dtypes=("float32",)), claimed_alone, 0, max_nodes=1)


@rule(
    "NUM-02",
    Level.MUST,
    "float32 sums of products are within 4 eps (sum |a b| + |bias|) of the exact result.",
    source=f"standard error bound of a sum in any order (tflite/numerics/bounds.py); {_MEASURED}",
    subject="delegate",
    cases=sums,
    gate=("float32 sums",),
)
def adds_up_in_float32(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """MEAN, FULLY_CONNECTED and CONV_2D against float64; what another node got wrong is not this rule's."""
    return Examined(within_bounds(case, trace, of=SUMS), "elements")


def quantised_graphs(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One to five int8 nodes, for the target.

    Every second case is a single node with enough elements for statistics on how they are rounded.
    """
    kinds = claimed_kinds(facts, dtypes=("int8",))
    single = tuple(kind._replace(large=True) for kind in kinds)
    larger = and_larger(kinds)
    return numeric_cases(larger, _alone, 0, min_nodes=2, max_nodes=7, single=single, scaled=_MORE_SHAPES)


@rule(
    "NUM-03",
    Level.MUST,
    "int8 results are rounded to the nearest unit, and are within one unit per operator of the real-valued "
    "result, propagated through the operators of the graph; RESHAPE, CONCATENATION and MAXIMUM are exact.",
    source=f"{_QUANTISATION}; {_MEASURED}",
    subject="delegate",
    cases=quantised_graphs,
    gate=("int8",),
)
def rounds_to_the_nearest_unit(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Graphs of up to five nodes, each judged three ways: see `within_bounds`."""
    return Examined(within_bounds(case, trace, rounding=True), "elements")


def saturating_graphs(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One to three int8 nodes with inputs of -128 and 127 only, for the target."""
    return numeric_cases(claimed_kinds(facts, dtypes=("int8",)), _alone, 0, max_nodes=3, fills=(_ENDS,))


_ENDS: Final = "extreme"
"""Contents of the inputs of NUM-04's cases."""


@rule(
    "NUM-04",
    Level.MUST,
    "int8 results that leave the range of int8, or of the fused activation, are clamped to it.",
    source=f"{_QUANTISATION}: restricted range of the output",
    subject="delegate",
    cases=saturating_graphs,
    gate=("int8",),
)
def saturates(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at elements whose expected value is an end of the range.

    In a control, whose inputs are any, none where other elements are wrong too: then the result is computed
    wrong, whatever becomes of its ends, and NUM-03 says so.
    """
    need_claim(case, trace)
    looked_at = 0
    for where, expected, seen in judged_outputs(case, trace):
        low, high = expected.least, expected.greatest
        at_end = _at_an_end(expected)
        outside = (seen < low) | (seen > high)
        off = np.abs(seen.astype(np.float64) - expected.value) > expected.tolerance
        if case.fill != _ENDS and (off & ~at_end & ~outside).any():
            continue
        wrong = outside | (at_end & off)
        if wrong.any():
            at = int(wrong.argmax())
            node, is_first, begun = origin(case.graph, expected.tensor)
            raise Divergence(
                f"{int(expected.value.ravel()[at])}, in the range {low:g} to {high:g}",
                f"{int(seen.ravel()[at])}",
                f"element {at} of {where}; {begun}",
                judging.draw(case, trace, node),
                node=node,
                is_first=is_first,
            )
        looked_at += int(at_end.sum())
    return Examined(looked_at, "clamped elements")


_WEIGHTED: tuple[Op, ...] = ("FULLY_CONNECTED", "CONV_2D")


def _with_channels(graph: Graph) -> Graph:
    """The graph with scales s, s/2, s/3, ... of the channels of all int8 weights, and biases to match."""
    tensors = list(graph.tensors)
    for node in graph.nodes:
        if node.op not in _WEIGHTED:
            continue
        value, weights = (tensors[index] for index in node.inputs[:2])
        scales = tuple(single(weights.scales[0] / (1 + unit)) for unit in range(weights.shape[0]))
        zeros = (0,) * len(scales)
        tensors[node.inputs[1]] = msgspec.structs.replace(weights, scales=scales, zero_points=zeros, axis=0)
        for index in node.inputs[2:]:
            steps = tuple(single(value.scales[0] * scale) for scale in scales)
            tensors[index] = msgspec.structs.replace(tensors[index], scales=steps, zero_points=zeros)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


_ZERO_POINT = 7
"""Instead of zero points of 0, which a delegate may ignore without being found."""


def _with_zero_points(graph: Graph) -> Graph:
    """The graph without zero points of 0, but for weights and biases, which must have them."""
    fixed = {index for node in graph.nodes if node.op in _WEIGHTED for index in node.inputs[1:]}
    tensors = tuple(
        msgspec.structs.replace(tensor, zero_points=(_ZERO_POINT,))
        if tensor.zero_points == (0,) and index not in fixed
        else tensor
        for index, tensor in enumerate(graph.tensors)
    )
    return msgspec.structs.replace(graph, tensors=tensors)


def per_channel(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One or two int8 nodes: distinct scales for each channel of weights, and zero points that are not 0."""

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        return DelegateCase(_with_zero_points(_with_channels(graph) if choice < 224 else graph))

    kinds = claimed_kinds(facts, ops=(*_WEIGHTED, "ADD", "SUB", "MUL", "MEAN"), dtypes=("int8",))
    return numeric_cases(kinds, make, 0, max_nodes=2, fills=("mixed", "extreme"))


@rule(
    "NUM-05",
    Level.MUST,
    "A kernel applies the scale of each channel of weights, and zero points that are not 0.",
    source=f"tflite/core/c/common.h, TfLiteAffineQuantization; {_QUANTISATION}: per-axis weights",
    subject="delegate",
    cases=per_channel,
    gate=("int8",),
)
def honours_channels_and_zero_points(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Counts the results of nodes with weights of several scales, or with a zero point.

    What must be clamped and is not is NUM-04's finding.
    """
    looked_at = within_bounds(case, trace, _has_parameters, ends=False)
    return Examined(looked_at, "elements of channels or with zero points")


def _has_parameters(graph: Graph, node: Node) -> bool:
    tensors = [graph.tensors[index] for index in (*node.inputs, *node.outputs) if index >= 0]
    return any(len(set(tensor.scales)) > 1 or any(tensor.zero_points) for tensor in tensors)


FUSING: tuple[Op, ...] = ("ADD", "SUB", "MUL", "FULLY_CONNECTED", "CONV_2D")
"""Operators that take a fused activation."""


def activated(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One to three nodes, each with a fused activation that its operator can have."""

    def make(graph: Graph, _: Claims, choice: int) -> DelegateCase:
        fused: tuple[Activation, ...] = ("RELU", "RELU6", "RELU6")
        nodes = tuple(
            msgspec.structs.replace(node, activation=fused[(choice >> number) % len(fused)])
            if node.op in FUSING  # some are left out of large graphs, and another stands in their place
            else node
            for number, node in enumerate(graph.nodes)
        )
        return DelegateCase(msgspec.structs.replace(graph, nodes=nodes))

    return numeric_cases(claimed_kinds(facts, ops=FUSING), make, 0, max_nodes=3, fills=("mixed", "ramp"))


@rule(
    "NUM-06",
    Level.MUST,
    "A kernel applies fused activations: RELU and RELU6, in float32 and int8, alone and inside a partition.",
    source="tflite/core/c/builtin_op_data.h, TfLiteFusedActivation",
    subject="delegate",
    cases=activated,
    gate=("fused activations",),
)
def applies_fused_activations(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at elements that some activation changes, that of the node which writes them or of one before.

    A result is wrong when it lies outside the activation's range, or out of its operator's bounds: what is
    so without an activation, a control shows.
    """
    need_claim(case, trace)
    bare = _without_activations(case, trace)
    looked_at = 0
    for where, expected, seen in judged_outputs(case, trace):
        outside = (seen < expected.least) | (seen > expected.greatest)
        if outside.any():
            at = int(outside.argmax())
            raise WrongOutput(
                f"nothing outside {expected.least:g} to {expected.greatest:g}, the range of the activation",
                f"{seen.ravel()[at].item()!r}",
                f"element {at} of {where}",
                judging.draw(case, trace),
            )
        looked_at += int((bare[expected.tensor] != expected.value).sum())
    if looked_at:
        within_bounds(case, trace)
    return Examined(looked_at, "elements that an activation changes")


def _without_activations(
    case: DelegateCase, trace: DelegateTrace
) -> dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Output -> its values if no node had an activation."""
    nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in case.graph.nodes)
    bare = msgspec.structs.replace(case.graph, nodes=nodes)
    found = expected_outputs(bare, [array.numpy() for array in trace.inputs])
    return {each.tensor: each.value for each in found}


LONG = 2048
"""Terms of a sum that is long enough to tell half precision from single."""


def _long_mean(batch: int, _: int, __: int) -> Graph:
    tensors = (Tensor((batch, LONG)), integers((1,)), Tensor((batch,)))
    return Graph(tensors, (Node("MEAN", (0, 1), (2,)),), (0,), (2,))


def _long_dense(batch: int, units: int, seed: int) -> Graph:
    tensors = (Tensor((batch, LONG)), *float_weights((units, LONG), seed, 1), Tensor((batch, units)))
    return Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, 2), (3,)),), (0,), (3,))


def _long_convolution(batch: int, units: int, seed: int) -> Graph:
    weights = float_weights((units, 1, 1, LONG), seed, 1)
    tensors = (Tensor((1, 1, batch, LONG)), *weights, Tensor((1, 1, batch, units)))
    return Graph(tensors, (Node("CONV_2D", (0, 1, 2), (3,)),), (0,), (3,))


_LONG_SUMS: dict[Op, Callable[[int, int, int], Graph]] = {
    "MEAN": _long_mean,
    "FULLY_CONNECTED": _long_dense,
    "CONV_2D": _long_convolution,
}
"""(batch, units, seed of the weights) -> graph."""


def long_sums(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One float32 sum of `LONG` terms of either sign: a mean, a dense layer or a 1 x 1 convolution.

    Of a target that claims none: an element-wise node.
    """
    if facts.precision == "float16":
        raise NothingToJudge("declared: --tflite-delegate-precision=float16", unsupported=True)
    known = {kind.op for kind in taken(facts) if kind.dtype == "float32"}
    makers = [make for op, make in _LONG_SUMS.items() if op in known]
    if not makers:
        return delegate_cases(
            claimed_kinds(facts, dtypes=("float32",)), claimed_alone, 0, max_nodes=1, scaled=False
        )

    def decode(data: bytes) -> DelegateCase:
        batch, units = 1 + data[1] % 3, 1 + data[2] % 3
        make = makers[data[0] % len(makers)]
        seed = 1 + int.from_bytes(data[3:], "big")
        graph = make(batch, units, 1 + seed % 15)
        return DelegateCase(copied(graph, facts.floor.nodes), data_seed=seed)

    return decoded(5, decode)


@rule(
    "NUM-08",
    Level.MUST,
    "float32 graphs are not computed in half precision unless that is declared "
    "(--tflite-delegate-precision=float16): what float32 does not allow is not what float16 gives.",
    source="tflite/core/c/common.h, TfLiteContext.allow_fp32_relax_to_fp16 (false by default)",
    subject="delegate",
    cases=long_sums,
    gate=("float32", "no declared float16"),
    weight=0.3,
)
def computes_in_single_precision(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Sums of 2048 terms, and nodes whose results are nothing but float16 numbers.

    Terms of either sign keep the partial sums small, so that no order of adding comes near float32's bound;
    rounding the operands to half precision alone is ten times beyond it (tests/tflite/numerics). What fits
    neither float32 nor float16 is a wrong number, which NUM-02 and NUM-10 report, and so are zeros alone:
    float16 has them too, and they say nothing of it.
    """
    if trace.facts and trace.facts.precision == "float16":
        raise Unsupported("declared: --tflite-delegate-precision=float16")
    need_claim(case, trace)
    if judging.failure(trace):
        return Examined(0, "elements")
    written = {tensor for kernel in judging.live_target_kernels(trace) for tensor in kernel.outputs}
    single = [judged for judged in _judged(case, trace, SINGLE) if judged.tensor in written]
    half = {judged.tensor: judged for judged in _judged(case, trace, SINGLE.with_half(EVERY_OP))}
    looked_at = 0
    for number, outputs in enumerate(trace.outputs):
        for judged in single:
            seen = outputs[case.graph.outputs.index(judged.tensor)].numpy()
            looked_at += seen.size
            wrong = _mismatch(judged, seen)
            if (
                wrong
                and seen.any()
                and _mismatch(judged, judged.cpu) is None
                and _is_half(case, trace, half[judged.tensor], seen)
            ):
                right = {i for i, tensor in enumerate(case.graph.tensors) if tensor.data} | set(
                    case.graph.inputs
                )
                found = _divergence(case, trace, judged, wrong, right, number, seen)
                found.seen += (
                    "; all of them are what float16 gives, which allow_fp32_relax_to_fp16 does not allow. A "
                    "delegate that is meant to compute so is declared: --tflite-delegate-precision=float16"
                )
                raise found
    return Examined(looked_at, "elements")


def _is_half(case: DelegateCase, trace: DelegateTrace, judged: Judged, seen: Array) -> bool:
    """The output is within float16's bounds, and the operator's: computed in float16, or of such operands."""
    if _mismatch(judged, seen) is not None:
        return False
    node = case.graph.nodes[judged.node]
    facts = trace.facts
    known = facts is not None and node.op in facts.half
    return known or is_half(seen) or is_of_halved_operands(case.graph, _inputs(trace), judged.tensor, seen)


def _inputs(trace: DelegateTrace) -> list[Array]:
    return [array.numpy() for array in trace.inputs]


def cut_anywhere(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """Graphs cut into partitions of every kind.

    By a claim, by a probe that takes nodes first, and by a plugin's own limits on partitions.
    """
    need_claims(facts)
    limits = [option for option in LIMITS if facts.limits.get(option, "unknown") == ""]

    def make(graph: Graph, claims: Claims, choice: int) -> DelegateCase:
        steered = facts.steerable and choice & 1
        options = ((limits[choice % len(limits)], str(1 + choice % 3)),) if limits and choice & 4 else ()
        target = Application(claim=claims[0] if steered else None, options=options)
        probe = Application("probe", claims[1])
        return DelegateCase(graph, (probe, target) if choice & 2 else (target,))

    return numeric_cases(mixed_kinds(facts), make, 2, min_nodes=2, max_nodes=9)


@rule(
    "NUM-09",
    Level.SHOULD,
    "Results do not depend on how the graph is partitioned: for any claimed subset they are within the "
    "bounds of their operators.",
    source="standard error bounds of the operators, propagated through the graph (tflite/numerics/bounds.py)",
    subject="delegate",
    cases=cut_anywhere,
)
def computes_alike_however_cut(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Partitions of one node and of many; a probe takes nodes first where the target is not steerable."""
    return Examined(within_bounds(case, trace), "elements")


_MANY: Final = ((1 << 24) + 64,), ((1 << 12) + 1, 1 << 12)
"""Shapes of more elements than float32 counts one by one, and than 24 bits count. Both are whole blocks of 64
elements: what is left behind blocks is the affair of small tensors."""
_FEW: Final = 1 << 24
"""Elements of a tensor that is none of these."""
_KINDS_OF_MANY: Final = 2
"""Operators of each type: one for each shape. An inference takes a tenth of a second or several."""
_SAMPLED: Final = "elements of large tensors"


def many_elements(facts: DelegateFacts) -> SearchStrategy[ScriptCase]:
    """Two element-wise nodes with millions of elements, of each type, and of a rank that is claimed."""
    kinds = plain_kinds(facts)
    least: dict[tuple[DType, Op], int] = {}
    for kind in taken(facts):
        least[kind.dtype, kind.op] = min(kind.rank, least.get((kind.dtype, kind.op), kind.rank))
    cases = []
    for dtype in dict.fromkeys(dtype for dtype, _ in kinds):
        # What rounds nothing is computed fastest.
        ops = sorted((op for other, op in kinds if other == dtype), key=_FASTEST.index)[:_KINDS_OF_MANY]
        for op, shape in zip(ops, _MANY, strict=False):
            ones = (1,) * (least[dtype, op] - len(shape))
            cases.append(_of_many(facts, dtype, op, ones + shape))
    if not cases:
        raise NothingToJudge(
            "the delegate claims no operator that takes operands of any shape", unsupported=True
        )
    return listed(cases)


_FASTEST: Final[tuple[Op, ...]] = ("MAXIMUM", "RELU", "ABS", "NEG", "ADD", "SUB", "MUL")


def _of_many(facts: DelegateFacts, dtype: DType, op: Op, shape: tuple[int, ...]) -> ScriptCase:
    graph = two_nodes(op, plain_tensor(tuple(min(length, 2) for length in shape), dtype))
    made = MakeDelegate("d0", position=max(0, len(facts.delegates) - 1))
    # Resized behind the application: before it the result would state another shape than it has (HOS-01).
    steps = (made, Open("i0"), Apply("i0", "d0"), Resize("i0", 0, shape), Allocate("i0"), Sample("i0", 1))
    return ScriptCase((graph,), steps)


@rule(
    "NUM-11",
    Level.MUST,
    "Each element of a tensor of more than 2**24 elements is computed as one of a small tensor is.",
    source="tflite/core/c/common.h: TfLiteIntArray has lengths of 32 bits, TfLiteTensor.bytes is a size_t; "
    "NUM-03, NUM-10",
    subject="delegate",
    cases=many_elements,
)
def computes_each_of_many(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Only grave errors count: precision is the same as in small tensors, and others judge it there."""
    scripts.need_trace(trace)
    found = scripts.interpreter(trace)
    looked_at = 0
    for _, step, seen in scripts.numbered(case, trace):
        if not isinstance(step, Sample) or seen.skipped or not seen.cpu or found is None:
            continue
        counts = seen.counted(SampleCounts)
        if counts.elements <= _FEW:  # of a reduced case, or a result of another shape: others judge these
            continue
        if not any(kernel.nodes and found.applied[kernel.application].is_target for kernel in found.kernels):
            raise Unsupported("the delegate leaves nodes of so many elements to the CPU", final=False)
        places, elements = (array.numpy() for array in seen.outputs)
        graph = case.graphs[0]
        inputs = [period[places % len(period)] for period in periods(graph, step.seed)]
        wrong = first_wrong(graph, places, inputs, elements, seen.cpu[0].numpy(), arithmetic(trace.facts))
        if wrong:
            where = f"a tensor of {counts.elements} elements, {counts.otherwise} of which are not the CPU's"
            raise WrongOutput("the value of a small tensor with these elements", wrong, where)
        looked_at += len(places)
    failed = [seen for _, _, seen in scripts.numbered(case, trace) if not seen.ok and not seen.skipped]
    if failed and not looked_at:
        said = " ".join(failed[0].message.split())
        raise Unsupported(f"it fails with tensors of so many elements: {said}", final=False)
    return Examined(looked_at, _SAMPLED)


def special_values(facts: DelegateFacts) -> SearchStrategy[DelegateCase]:
    """One float32 node that computes or copies elements, on NaN, infinities, zeros and denormal numbers."""

    def make(graph: Graph, _: Claims, __: int) -> DelegateCase:
        nodes = tuple(msgspec.structs.replace(node, activation="NONE") for node in graph.nodes)
        return DelegateCase(msgspec.structs.replace(graph, nodes=nodes))

    kinds = claimed_kinds(facts, ops=ELEMENTWISE, dtypes=("float32",))
    return numeric_cases(kinds, make, 0, max_nodes=1, fills=(_SPECIAL,))


_SPECIAL: Final = "special"
"""Contents of the inputs of NUM-07's cases."""


@rule(
    "NUM-07",
    Level.SHOULD,
    "NaN and infinities propagate as IEEE 754 allows, and copies preserve signs of zeros and denormal "
    "numbers.",
    source="IEEE 754-2019; what the CPU kernels and XNNPACK of both runtimes do (tflite/numerics/special.py)",
    subject="delegate",
    cases=special_values,
    gate=("float32",),
)
def propagates_special_values(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at elements of the target's results that are, or are computed from, special values.

    And at all others of its own cases. In a control, whose inputs are any, at none where an element is wrong
    that comes of none of them: then the operator is computed wrong, which NUM-10 says.
    """
    need_claim(case, trace)
    written = {tensor for kernel in judging.live_target_kernels(trace) for tensor in kernel.outputs}
    looked_at = 0
    for number, outputs in enumerate(trace.outputs if not judging.failure(trace) else ()):
        for index, node, operands in _judgeable(case, trace):
            tensor = node.outputs[0]
            if tensor not in written or tensor not in case.graph.outputs:
                continue
            seen = outputs[case.graph.outputs.index(tensor)].numpy()
            if seen.shape != case.graph.tensors[tensor].shape:
                continue  # another rule's, and no element is in its place
            results = special.allowed(node, operands, seen.shape)
            wrong = special.wrong_elements(node, results, seen)
            if node.op in arithmetic(trace.facts).half:
                wrong &= special.wrong_in_half(special.allowed_in_half(node, operands, seen.shape), seen)
            if case.fill != _SPECIAL and (wrong & ~special.comes_of_special(node, operands, results)).any():
                continue
            if wrong.any():
                at = int(wrong.argmax())
                raise Divergence(
                    f"{_any_of(results, at)} (IEEE 754)",
                    f"{_shown(seen, at)}, {int(wrong.sum())} of {seen.size} elements off",
                    f"element {at} of graph output t{tensor}, {_call(node, operands, at)}, invoke {number}",
                    judging.draw(case, trace, index),
                    node=index,
                    is_first=True,
                )
            looked_at += int(special.is_special(seen).sum())
    return Examined(looked_at, "special values")


def _judgeable(case: DelegateCase, trace: DelegateTrace) -> Iterator[tuple[int, Node, list[Array]]]:
    """float32 nodes that read only graph inputs and constants: (index, node, contents of its operands)."""
    tensors = case.graph.tensors
    known = {i: array.numpy() for i, array in zip(case.graph.inputs, trace.inputs, strict=True)}
    known |= {
        index: constant_value(tensor.data, tensor.dtype, tensor.shape)
        for index, tensor in enumerate(tensors)
        if tensor.data is not None
    }
    for index, node in enumerate(case.graph.nodes):
        plain = node.op in special.JUDGED and node.activation == "NONE"
        if plain and tensors[node.outputs[0]].dtype == "float32" and known.keys() >= set(node.inputs):
            yield index, node, [known[operand] for operand in node.inputs]


def _any_of(results: list[Array], at: int) -> str:
    return " or ".join(dict.fromkeys(_shown(result, at) for result in results))


def _shown(values: Array, at: int) -> str:
    return repr(values.ravel()[at].item())


def _call(node: Node, operands: list[Array], at: int) -> str:
    """The operator with the values that element ``at`` is computed from, where each is plain to see."""
    if node.op in special.MOVED:
        return node.op
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    return f"{node.op}({', '.join(_shown(np.broadcast_to(one, shape), at) for one in operands)})"

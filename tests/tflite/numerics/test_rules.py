from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from delegate_doubles import Factory
from fast_run import first
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from kept import keep
from msgspec.structs import replace
from reducing import Reducing, revealing, smaller

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.verdict import Divergence, Examined, Outcome, Violation
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import SPECIAL, inputs_of
from pytest_qnn.tflite.cases.valid import check_delegate
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.constants import int8_weights
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.numerics import special
from pytest_qnn.tflite.numerics.bounds import expected_outputs, mismatch
from pytest_qnn.tflite.numerics.real import real_outputs
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.fused import FusedDelegate
from pytest_qnn.tflite.rules.det.rules import revisited, twice
from pytest_qnn.tflite.rules.num import rules as numeric
from pytest_qnn.tflite.runner.run import run_delegate_case
from pytest_qnn.tflite.runtime.runtime import load_runtime
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import DelegateTrace

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
STEERABLE = DelegateFacts(steerable=True)
FACTORIES = [
    numeric.quantised_graphs,
    numeric.saturating_graphs,
    numeric.per_channel,
    numeric.activated,
    numeric.special_values,
    numeric.cut_anywhere,
    revisited,
    twice,
    numeric.long_sums,
]
Make = Callable[[DelegateFacts], SearchStrategy[DelegateCase]]


def drawn(make: Make, count: int = 40, facts: DelegateFacts = STEERABLE) -> list[DelegateCase]:
    found: list[DelegateCase] = []

    @seed(1)
    @settings(
        max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(make(facts))
    def draw(case: DelegateCase) -> None:
        found.append(case)

    draw()
    return found


class Double(Reducing):
    """A target of delegates of one class."""

    facts = None

    def __init__(self, runtime: str, create: type[ReferenceDelegate]) -> None:
        self._runtime = load_runtime(runtime)
        self._chain = (Factory("mine", create),)

    def run(self, case: DelegateCase) -> DelegateTrace:
        return run_delegate_case(case, self._chain, self._runtime)


@pytest.fixture(scope="module", params=RUNTIMES)
def reference(request: pytest.FixtureRequest) -> Iterator[DelegateTarget]:
    target = open_delegate_target([("reference", {})], request.param, "off", 10.0)
    yield target
    target.close()


# The cases.


@pytest.mark.parametrize("make", FACTORIES, ids=lambda make: make.__name__)
def test_every_case_and_every_smaller_one_may_be_run(make: Make) -> None:
    for case in drawn(make, 15):
        check_delegate(case)
        for candidate in (*smaller(case), *revealing(case)):
            check_delegate(candidate)


@pytest.mark.parametrize("make", FACTORIES, ids=lambda make: make.__name__)
def test_a_native_target_is_never_told_what_to_claim(make: Make) -> None:
    for case in drawn(make, facts=DelegateFacts(steerable=False)):
        assert all(one.claim is None for one in case.applications if one.who == "target")


def test_graphs_are_cut_by_the_limits_that_a_plugin_has() -> None:
    facts = DelegateFacts(limits={"min_nodes_per_partition": "", "max_delegated_partitions": "refused"})
    options = {one.options for case in drawn(numeric.cut_anywhere, 80, facts) for one in case.applications}
    assert {option for pairs in options for option, _ in pairs} == {"min_nodes_per_partition"}
    assert {value for pairs in options for _, value in pairs} == {"1", "2", "3"}


def test_channels_have_distinct_scales_and_biases_to_match() -> None:
    layers = [
        (case.graph.tensors[node.inputs[0]], *(case.graph.tensors[i] for i in node.inputs[1:]))
        for case in drawn(numeric.per_channel, 60)
        for node in case.graph.nodes
        if node.op in ("FULLY_CONNECTED", "CONV_2D")
    ]
    channels = [layer for layer in layers if len(layer[1].scales) > 1]
    assert channels
    for value, weights, bias in channels:
        assert len(set(weights.scales)) == weights.shape[0]
        assert np.allclose(bias.scales, np.multiply(weights.scales, value.scales[0]), rtol=1e-6)
        assert not any(weights.zero_points)


def test_no_activation_of_the_per_channel_cases_has_a_zero_point_of_nought() -> None:
    for case in drawn(numeric.per_channel):
        for index in (*case.graph.inputs, *case.graph.outputs):
            assert case.graph.tensors[index].zero_points != (0,)


def test_special_inputs_hold_every_special_value() -> None:
    graph = Graph((Tensor((400,)), Tensor((400,))), (Node("ABS", (0,), (1,)),), (0,), (1,))
    (values,) = inputs_of(DelegateCase(graph, fill="special"))
    bits = set(values.view(np.uint32).tolist())
    assert set(SPECIAL.view(np.uint32).tolist()) <= bits
    assert np.isfinite(values).sum() > 200


def test_more_new_seeds_than_invokes_are_refused() -> None:
    graph = Graph((Tensor((2,)), Tensor((2,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
    with pytest.raises(BadCase, match="new seeds"):
        check_delegate(DelegateCase(graph, invokes=1, reseed=(1, 2)))


# The oracles.


def int8_chain(scale: float = 0.05) -> Graph:
    """ADD, then a dense layer, then RELU: each result rounded."""
    value = Tensor((2, 4), "int8", (0.0625,), (3,))
    weights, bias = int8_weights((3, 4), 4, 0.07, per_channel=False)
    tensors = (
        value,
        value,
        Tensor((2, 4), "int8", (0.07,), (-5,)),
        weights,
        bias,
        Tensor((2, 3), "int8", (scale,), (9,)),
        Tensor((2, 3), "int8", (0.04,), (0,)),
    )
    nodes = (
        Node("ADD", (0, 1), (2,)),
        Node("FULLY_CONNECTED", (2, 3, 4), (5,)),
        Node("RELU", (5,), (6,)),
    )
    return Graph(tensors, nodes, (0, 1), (2, 5, 6))


def test_the_real_bound_of_one_operator_is_three_halves_of_a_unit() -> None:
    graph = replace(int8_chain(), outputs=(2,))
    real = real_outputs(graph, inputs_of(DelegateCase(graph, data_seed=3)))[2]
    assert np.allclose(real.off, 1.5, atol=1e-5)


def test_the_real_bound_is_propagated_by_the_weights() -> None:
    graph = int8_chain()
    contents = inputs_of(DelegateCase(graph, data_seed=3))
    weights = np.frombuffer(graph.tensors[3].data or b"", np.int8).reshape(3, 4) * graph.tensors[3].scales[0]
    carried = 1.5 * 0.07 * np.abs(weights).sum(1) / 0.05 + 1.5
    assert np.allclose(real_outputs(graph, contents)[5].off, carried, atol=1e-4)


def test_a_bound_that_outgrows_all_numbers_is_infinite_and_no_warning() -> None:
    """Each product multiplies it by its operand: 400 of them by 1e400."""
    tensors = tuple(Tensor((2,), "int8", (0.1,), (0,)) for _ in range(402))
    nodes = tuple(Node("MUL", (place, place), (place + 1,)) for place in range(401))
    graph = Graph(tensors, nodes, (0,), (401,))
    with np.errstate(all="raise"):
        real = real_outputs(graph, [np.array([127, -128], np.int8)])[401]
    assert not (np.abs(np.array([127.0, -128.0]) - real.value) > real.off).any()


def test_real_values_are_clamped_inside_the_graph() -> None:
    tensors = tuple(Tensor((2,), "int8", (scale,), (0,)) for scale in (0.11, 0.031, 0.11))
    nodes = (Node("ADD", (0, 0), (1,)), Node("ABS", (1,), (2,)))
    graph = Graph(tensors, nodes, (0,), (2,))
    real = real_outputs(graph, [np.array([127, -128], np.int8)])[2]
    assert np.allclose(real.value, [127 * 0.031 / 0.11, 128 * 0.031 / 0.11])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_cpu_is_within_the_real_bounds(runtime: str) -> None:
    target = Double(runtime, ReferenceDelegate)
    for case in drawn(numeric.quantised_graphs, 80):
        trace = target.run(case)
        real = real_outputs(case.graph, [array.numpy() for array in trace.inputs])
        for tensor, cpu in zip(case.graph.outputs, trace.cpu, strict=True):
            if tensor in real:
                assert (np.abs(cpu.numpy() - real[tensor].value) <= real[tensor].off).all()


def one(op: Any, count: int = 1) -> Node:
    return Node(op, tuple(range(count)), (count,))


def allowed(op: Any, *operands: list[float]) -> list[set[str]]:
    """By element: the values that are allowed, as text."""
    arrays = [np.array(operand, np.float32) for operand in operands]
    results = special.allowed(one(op, len(arrays)), arrays, arrays[0].shape)
    return [{repr(abs(result[at].item())) for result in results} for at in range(len(operands[0]))]


def test_infinite_results_may_be_clamped_by_arithmetic_only() -> None:
    most = repr(np.finfo(np.float32).max.item())
    assert allowed("ADD", [np.inf], [1]) == [{"inf", most}]
    assert allowed("ABS", [-np.inf]) == [{"inf"}]


def test_nan_stays_nan_but_for_the_maximum() -> None:
    assert allowed("MUL", [np.nan], [0]) == [{"nan"}]
    assert allowed("MAXIMUM", [np.nan], [2]) == [{"nan", "2.0"}]
    assert allowed("RELU", [np.nan]) == [{"nan", "0.0"}]
    assert allowed("NEG", [np.nan]) == [{"nan"}]


def test_infinity_minus_infinity_and_nought_times_infinity_are_nan() -> None:
    assert allowed("SUB", [np.inf], [np.inf]) == [{"nan"}]
    assert allowed("MUL", [np.inf], [0]) == [{"nan"}]


def test_denormal_numbers_may_be_taken_for_nought_but_not_by_copies() -> None:
    tiny = np.float32(1e-40).item()
    assert allowed("ABS", [tiny]) == [{repr(tiny), "0.0"}]
    copied = special.allowed(Node("RESHAPE", (0, 1), (2,)), [np.float32([tiny]), np.int32([1])], (1,))
    assert [result.tolist() for result in copied] == [[tiny]]


def test_copies_keep_the_sign_of_nought_and_others_need_not() -> None:
    minus, plus = np.float32([-0.0]), np.float32([0.0])
    assert special.wrong_elements(Node("RESHAPE", (0, 1), (2,)), [minus], plus).all()
    assert not special.wrong_elements(one("NEG"), [minus], plus).any()


def test_a_nan_of_other_bits_is_the_same_nan() -> None:
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert not special.wrong_elements(Node("RESHAPE", (0, 1), (2,)), [np.float32([np.nan])], other).any()


# Half precision and long sums.


def long_cases() -> list[tuple[DelegateCase, npt.NDArray[Any]]]:
    return [(case, inputs_of(case)[0]) for case in drawn(numeric.long_sums, 40)]


def in_order(case: DelegateCase, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sum as a plain loop makes it: each partial sum rounded to float32."""
    (node,) = case.graph.nodes
    shape = case.graph.tensors[node.outputs[0]].shape
    rows = value.reshape(-1, numeric.LONG)
    if node.op == "MEAN":
        return (np.cumsum(rows, 1, dtype=np.float32)[:, -1] / np.float32(numeric.LONG)).reshape(shape)
    weights, bias = (np.frombuffer(case.graph.tensors[i].data or b"", np.float32) for i in node.inputs[1:])
    terms = rows[:, None, :] * weights.reshape(1, -1, numeric.LONG)
    return (np.cumsum(terms, 2, dtype=np.float32)[..., -1] + bias).reshape(shape)


def test_adding_up_in_order_is_within_the_bound_of_long_sums() -> None:
    for case, value in long_cases():
        (expected,) = expected_outputs(case.graph, [value])
        assert mismatch(expected, in_order(case, value)) is None


def test_rounding_operands_to_half_precision_is_beyond_the_bound_of_long_sums() -> None:
    beyond = []
    for case, value in long_cases():
        (expected,) = expected_outputs(case.graph, [value])
        seen = in_order(case, value.astype(np.float16).astype(np.float32))
        beyond.append(float((np.abs(seen - expected.value) / expected.tolerance).max()))
    assert np.median(beyond) > 2.5
    assert sum(ratio > 1 for ratio in beyond) > 0.8 * len(beyond)


# The rules.


@pytest.mark.parametrize("rule_id", first(["NUM-03", "NUM-09", "NUM-04", "NUM-05", "NUM-06"], 2))
@pytest.mark.parametrize("runtime", first(RUNTIMES))
def test_more_precision_inside_a_partition_is_no_violation(rule_id: str, runtime: str) -> None:
    rule = catalogue()[rule_id]
    target: Any = Double(runtime, FusedDelegate)
    plain: Any = Double(runtime, ReferenceDelegate)
    differs = 0
    for case in drawn(rule.cases, 60):
        found = judge_case(rule, target, case)
        assert not isinstance(found, Violation), (found, case)
        differs += target.run(case).outputs != plain.run(case).outputs
    assert differs or rule_id != "NUM-03"


def halved_in_large_partitions(runtime: str) -> DelegateTarget:
    return keep(open_delegate_target([("mutant:halves-large-partitions", {})], runtime, "off", 10.0))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_failure_in_a_large_partition_names_the_node_with_which_it_begins(runtime: str) -> None:
    verdict = judge(catalogue()["NUM-09"], halved_in_large_partitions(runtime), PROFILES["default"], seed=1)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.finding is not None
    assert "the first node that diverges" in verdict.finding.where
    assert "<-- wrong" in verdict.finding.picture


class _SpoilsSecond(ReferenceDelegate):
    """Node 1 of any partition of three nodes and more gives something else."""

    def compute_node(self, kernel: Any, node: Node, operands: Any) -> npt.NDArray[Any]:
        result = super().compute_node(kernel, node, operands)
        return result + np.float32(1) if len(kernel.steps) > 2 and node is kernel.steps[1] else result


FOUR = Graph(
    tensors=tuple(Tensor((3,)) for _ in range(5)),
    nodes=tuple(Node("ABS" if k else "NEG", (k,), (k + 1,)) for k in range(4)),
    inputs=(0,),
    outputs=(4,),
)


def diverges(case: DelegateCase, target: Any) -> Divergence:
    found = judge_case(catalogue()["NUM-09"], target, case)
    assert isinstance(found, Divergence)
    return found


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_cutting_the_graph_finds_where_an_error_began(runtime: str) -> None:
    target = Double(runtime, _SpoilsSecond)
    end = diverges(DelegateCase(FOUR), target)
    assert (end.node, end.is_first) == (3, False)
    assert "t3, was not seen right" in end.where
    begin = diverges(next(revealing(DelegateCase(FOUR))), target)
    assert (begin.node, begin.is_first) == (1, True)
    assert begin.picture.splitlines()[2].endswith("<-- wrong")


def test_results_inside_a_graph_become_outputs_all_at_once_and_one_by_one() -> None:
    found = [case.graph.outputs for case in revealing(DelegateCase(FOUR))]
    assert found == [(1, 2, 3, 4), (1, 4), (2, 4), (3, 4)]
    assert list(revealing(next(revealing(DelegateCase(FOUR))))) == []


def test_a_quantised_failure_is_told_three_ways(reference: DelegateTarget) -> None:
    case = DelegateCase(int8_chain(), data_seed=3)
    trace = reference.run(case)
    wrong = trace.outputs[0][2].numpy().copy()
    wrong[0, 0] ^= 0x40
    spoiled = replace(trace, outputs=((*trace.outputs[0][:2], Array.of(wrong)),))
    with pytest.raises(Divergence) as caught:
        catalogue()["NUM-03"].check(case, spoiled)
    assert "in real numbers" in caught.value.expected
    assert f"{int(trace.cpu[2].numpy()[0, 0])} on the CPU" in caught.value.expected


def test_how_results_are_rounded_is_the_matter_of_one_rule(reference: DelegateTarget) -> None:
    """Rounded down they stay within a unit, which is all that zero points, activations and cuts demand."""
    operand, result = (Tensor((16, 16), "int8", (scale,), (3,)) for scale in (0.05, 0.11))
    node = Node("ADD", (0, 1), (2,), activation="RELU")
    case = DelegateCase(Graph((operand, operand, result), (node,), (0, 1), (2,)), data_seed=3)
    trace = reference.run(case)
    (expected,) = expected_outputs(case.graph, [array.numpy() for array in trace.inputs])
    assert expected.real is not None
    down = np.clip(np.floor(expected.real), expected.least, expected.greatest).astype(np.int8)
    rounded_down = replace(trace, outputs=((Array.of(down),),))
    with pytest.raises(Divergence, match="a quarter are off"):
        catalogue()["NUM-03"].check(case, rounded_down)
    for rule_id in ("NUM-05", "NUM-06", "NUM-09"):
        assert catalogue()[rule_id].check(case, rounded_down).count > 0


def test_what_the_cpu_gets_wrong_itself_is_no_violation(reference: DelegateTarget) -> None:
    case = DelegateCase(int8_chain(), data_seed=3)
    trace = reference.run(case)
    wrong = Array.of(trace.cpu[2].numpy() ^ 0x40)
    spoiled = replace(trace, outputs=((*trace.outputs[0][:2], wrong),), cpu=(*trace.cpu[:2], wrong))
    examined = catalogue()["NUM-03"].check(case, spoiled)
    assert examined == Examined(8 + 6 + 6, "elements")


@pytest.mark.parametrize("rule_id", ["NUM-05", "NUM-06", "NUM-07", "NUM-08", "NUM-09", "DET-02", "DET-03"])
def test_each_rule_looks_at_something_on_the_reference(rule_id: str, reference: DelegateTarget) -> None:
    verdict = judge(catalogue()[rule_id], reference, PROFILES["quick"], seed=3)
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.examined > 0


# Determinism.


def test_inputs_change_between_invokes_and_come_back(reference: DelegateTarget) -> None:
    case = DelegateCase(FOUR, invokes=3, data_seed=4, reseed=(4, 9, 4))
    trace = reference.run(case)
    assert trace.outputs[0] == trace.outputs[2] != trace.outputs[1]


@pytest.mark.parametrize("again", ["interpreter", "process"])
def test_a_case_is_carried_out_again(again: Any, reference: DelegateTarget) -> None:
    trace = reference.run(DelegateCase(FOUR, invokes=2, again=again))
    assert trace.again == trace.outputs != ()


def test_a_fresh_process_is_another_process() -> None:
    target = open_delegate_target([("mutant:depends-on-the-process", {})], RUNTIMES[0], "off", 10.0)
    try:
        beside = target.run(DelegateCase(FOUR, again="interpreter"))
        fresh = target.run(DelegateCase(FOUR, again="process"))
    finally:
        target.close()
    assert beside.again == beside.outputs
    assert fresh.again != fresh.outputs


def test_results_of_other_inputs_that_are_those_of_the_first_are_found(reference: DelegateTarget) -> None:
    case = DelegateCase(FOUR, invokes=3, data_seed=4, reseed=(4, 9, 4))
    trace = reference.run(case)
    stuck = replace(trace, outputs=(trace.outputs[0],) * 3)
    with pytest.raises(Violation, match="second inputs"):
        catalogue()["DET-02"].check(case, stuck)

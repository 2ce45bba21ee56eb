from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
from fast_run import first, later

from pytest_qnn.core.engine import judge, judge_with_owners
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.facts import DelegateFacts, Precision
from pytest_qnn.tflite.graph.graph import DType, Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import OPS, decode_graph, size_of
from pytest_qnn.tflite.numerics import special
from pytest_qnn.tflite.numerics.bounds import expected_outputs, mismatch
from pytest_qnn.tflite.numerics.kernels import run_graph, run_node
from pytest_qnn.tflite.numerics.precision import EVERY_OP, SINGLE, Array, is_half, to_half
from pytest_qnn.tflite.target import open_delegate_target

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
HALF = SINGLE.with_half(EVERY_OP)
RULES = (
    *(f"NUM-{number:02}" for number in range(1, 11)),
    *(
        "DET-01",
        "DET-02",
        "DET-03",
        "DET-04",
        "PART-03",
        "PART-10",
        "PART-11",
        "PREC-03",
        "PREC-07",
        "PREC-08",
    ),
)
FINE = (Outcome.PASS, Outcome.UNSUPPORTED)


def single_nodes(count: int, seed: int, dtype: DType = "float32") -> list[Graph]:
    random = np.random.default_rng(seed)
    choices = ((dtype, OPS[dtype]),)
    return [decode_graph(random.bytes(size_of(1, 0)), choices, 0, 1, 1)[0] for _ in range(count)]


def in_half(graph: Graph, inputs: list[Array], rounded: Callable[[Array], Array] = to_half) -> list[Array]:
    """The graph's outputs if each node rounds its operands and its result to float16."""
    values = dict(zip(graph.inputs, map(rounded, inputs), strict=True))
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is not None:
            contents = np.frombuffer(tensor.data, tensor.dtype).reshape(tensor.shape)
            values[index] = rounded(contents) if tensor.dtype == "float32" else contents
    for node in graph.nodes:
        operands = [values[index] if index >= 0 else None for index in node.inputs]
        values[node.outputs[0]] = rounded(run_node(node, graph.tensors, operands))
    values.update(zip(graph.inputs, inputs, strict=True))
    return [values[index] for index in graph.outputs]


def add(first: list[float], second: list[float]) -> Graph:
    data = np.array(second, np.float32).tobytes()
    tensors = (Tensor((len(first),)), Tensor((len(second),), data=data), Tensor((len(first),)))
    return Graph(tensors, (Node("ADD", (0, 1), (2,)),), (0,), (2,))


# The bounds.


def test_four_units_in_the_last_place_are_right_and_five_are_wrong() -> None:
    graph, value = add([1.0, -3.0, 1e-3], [2.0, 0.5, 7.0]), np.array([1.0, -3.0, 1e-3], np.float32)
    (expected,) = expected_outputs(graph, [value], SINGLE)
    exact = np.array([3.0, -2.5, np.float32(1e-3) + np.float32(7)], np.float32)
    unit = np.spacing(np.abs(exact))
    for units, is_right in ((0, True), (4, True), (-4, True), (5, False), (-5, False), (8, False)):
        assert (mismatch(expected, exact + np.float32(units) * unit) is None) is is_right


def test_a_copy_and_a_maximum_have_no_tolerance_in_single_precision() -> None:
    tensors = (Tensor((3,)), Tensor((3,)))
    for op in ("RELU", "ABS", "NEG"):
        graph = Graph(tensors, (Node(op, (0,), (1,)),), (0,), (1,))
        (expected,) = expected_outputs(graph, [np.array([1, 2, 3], np.float32)], SINGLE)
        assert not expected.tolerance.any()


def test_graphs_in_float16_are_within_its_bounds_and_beyond_those_of_float32() -> None:
    beyond = 0
    for number, graph in enumerate(single_nodes(300, 1)):
        inputs = inputs_of(DelegateCase(graph, data_seed=number + 1))
        seen = in_half(graph, inputs)
        for single, half, values in zip(
            expected_outputs(graph, inputs, SINGLE), expected_outputs(graph, inputs, HALF), seen, strict=True
        ):
            assert mismatch(half, values) is None, graph
            beyond += mismatch(single, values) is not None
    assert beyond > 150


def test_graphs_in_bfloat16_are_seldom_within_the_bounds_of_float16() -> None:
    def bfloat(values: Array) -> Array:
        if values.dtype != np.float32:
            return values
        bits = np.ascontiguousarray(values).view(np.uint32)
        return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)

    wrong = judged = 0
    for number, graph in enumerate(single_nodes(200, 2)):
        if graph.nodes[0].op in ("MEAN", "FULLY_CONNECTED", "CONV_2D"):
            continue
        inputs = inputs_of(DelegateCase(graph, data_seed=number + 1))
        (expected, *_), (seen, *_) = expected_outputs(graph, inputs, HALF), in_half(graph, inputs, bfloat)
        judged += 1
        wrong += mismatch(expected, seen) is not None
    assert wrong > judged / 2


@pytest.mark.parametrize("terms", [2, 64, 2048])
def test_a_sum_that_is_accumulated_in_float16_is_within_the_bounds(terms: int) -> None:
    random = np.random.default_rng(terms)
    weights = random.random((1, terms), np.float32)
    tensors = (Tensor((1, terms)), Tensor((1, terms), data=weights.tobytes()), Tensor((1, 1)))
    graph = Graph(tensors, (Node("FULLY_CONNECTED", (0, 1), (2,)),), (0,), (2,))
    value = random.random((1, terms), np.float32)
    total = np.float16(0)
    for one, other in zip(value[0].astype(np.float16), weights[0].astype(np.float16), strict=True):
        total = np.float16(total + one * other)
    (expected,) = expected_outputs(graph, [value], HALF)
    assert mismatch(expected, np.array([[total]], np.float32)) is None


@pytest.mark.parametrize("seen", [np.inf, np.nan, 65504.0, 70000.0])
def test_what_leaves_float16_is_not_judged(seen: float) -> None:
    graph, value = add([4e4, 1.0], [4e4, 1.0]), np.array([4e4, 1.0], np.float32)
    (expected,) = expected_outputs(graph, [value], HALF)
    assert mismatch(expected, np.array([seen, 2.0], np.float32)) is None
    assert mismatch(expected, np.array([seen, 2.1], np.float32)) is not None


def test_int8_has_the_same_bounds_whatever_float32_is_computed_in() -> None:
    for number, graph in enumerate(single_nodes(40, 3, "int8")):
        inputs = inputs_of(DelegateCase(graph, data_seed=number))
        for one, other in zip(
            expected_outputs(graph, inputs, SINGLE), expected_outputs(graph, inputs, HALF), strict=True
        ):
            assert np.array_equal(one.tolerance, other.tolerance)


def test_the_cpus_own_values_are_within_the_bounds_of_single_precision() -> None:
    for number, graph in enumerate(single_nodes(200, 4)):
        inputs = inputs_of(DelegateCase(graph, data_seed=number, fill=("mixed", "extreme")[number % 2]))
        values = run_graph(graph, inputs)
        for expected in expected_outputs(graph, inputs, SINGLE):
            assert mismatch(expected, values[expected.tensor]) is None


def test_special_values_in_float16() -> None:
    node = Node("MUL", (0, 1), (2,))
    one = np.array([np.nan, np.inf, 3e38, 1e-7, 1.001, 2.0], np.float32)
    other = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], np.float32)
    results = special.allowed_in_half(node, [one, other], (6,))
    right = ([np.nan, np.inf, np.inf, 0.0, 1.0009766, 2.0], [np.nan, 65504, 65504, 1.1920929e-07, 1.0, 2.0])
    for seen in right:
        assert not special.wrong_in_half(results, np.array(seen, np.float32)).any()
    wrong = special.wrong_in_half(results, np.array([0.0, 1.0, -np.inf, 1.0, 1.1, np.nan], np.float32))
    assert wrong.all()


def test_numbers_of_float16_are_told_apart() -> None:
    assert is_half(np.array([1.0, 65504, np.inf, np.nan, 2.0**-24], np.float32))
    assert not is_half(np.array([1.0, 1.0001], np.float32))


# What is learned.


def facts_of(spec: str, precision: Precision | None = None) -> tuple[DelegateFacts, str]:
    with closing(open_delegate_target([(spec, {})], RUNTIMES[0], "off", 10.0, precision)) as target:
        return target.facts, target.provenance()["precision"]


@pytest.mark.parametrize(
    "spec",
    first(["reference", "xnnpack", "reference:other-order", "reference:int8-only", "reference:nothing"], 2),
)
def test_a_delegate_in_single_precision_is_known_as_such(spec: str) -> None:
    assert facts_of(spec)[0].half == ()
    assert facts_of(spec)[1] == "float32"


@pytest.mark.parametrize(
    "spec", ["mutant:adds-a-thousandth", "mutant:eight-units-off", "mutant:approximates", "mutant:rounds-up"]
)
def test_wrong_numbers_are_not_taken_for_float16(spec: str) -> None:
    assert facts_of(spec)[0].half == ()


def test_a_delegate_in_half_precision_is_known_as_such() -> None:
    facts, text = facts_of("reference:half")
    assert set(facts.half) == EVERY_OP
    assert text == "float16, not declared"
    facts, text = facts_of("reference:half", "float16")
    assert facts.half == ()
    assert text == "float16, as declared"


def test_sums_alone_in_half_precision_are_known_as_such() -> None:
    facts, text = facts_of("mutant:adds-up-in-half")
    assert set(facts.half) == {"MEAN", "FULLY_CONNECTED", "CONV_2D"}
    assert "MEAN" in text


# The rules.


def verdicts(spec: str, runtime: str, precision: Precision | None, examples: int = 25) -> list[Verdict]:
    profile = Profile("few", examples, examples)
    with closing(open_delegate_target([(spec, {})], runtime, "off", 10.0, precision)) as target:
        return [judge(catalogue()[rule_id], target, profile, seed=5) for rule_id in RULES]


@pytest.mark.parametrize("runtime", first(RUNTIMES))
def test_float16_that_nobody_declares_fails_one_rule(runtime: str) -> None:
    failed = [verdict for verdict in verdicts("reference:half", runtime, None) if verdict.outcome not in FINE]
    assert [verdict.rule for verdict in failed] == ["NUM-08"]
    assert failed[0].finding is not None
    assert "--tflite-delegate-precision=float16" in failed[0].finding.seen


@pytest.mark.parametrize(
    ("runtime", "examples"), [(RUNTIMES[1], 6), *(later(runtime, 25) for runtime in RUNTIMES)]
)
def test_float16_that_is_declared_fails_none(runtime: str, examples: int) -> None:
    found = {verdict.rule: verdict for verdict in verdicts("reference:half", runtime, "float16", examples)}
    assert [verdict for verdict in found.values() if verdict.outcome not in FINE] == []
    assert found["NUM-08"].outcome is Outcome.UNSUPPORTED
    assert found["NUM-08"].reason == "declared: --tflite-delegate-precision=float16"


@pytest.mark.parametrize("name", ["adds-a-thousandth", later("eight-units-off")])
def test_a_wrong_operator_fails_a_must_and_only_that(name: str) -> None:
    rules, profile = catalogue(), Profile("few", 25, 25)
    with closing(open_delegate_target([(f"mutant:{name}", {})], RUNTIMES[0], "off", 10.0, None)) as target:
        found = [judge_with_owners(rules[each], target, profile, 5, rules.__getitem__) for each in RULES]
    own = [judged.verdict for judged in found if judged.verdict.outcome not in (*FINE, Outcome.INCONCLUSIVE)]
    assert [verdict.rule for verdict in own if verdict.level == "MUST"] == ["NUM-10"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_delegate_that_computes_in_single_precision_may_be_declared_float16(runtime: str) -> None:
    profile = Profile("few", 12, 12)
    with closing(open_delegate_target([("reference", {})], runtime, "off", 10.0, "float16")) as target:
        for rule_id in ("NUM-01", "NUM-02", "NUM-07", "NUM-09", "NUM-10"):
            assert judge(catalogue()[rule_id], target, profile, seed=5).outcome is Outcome.PASS


def test_what_is_declared_is_among_the_options_that_select_the_target_again() -> None:
    with closing(open_delegate_target([("reference", {})], "auto", "off", 10.0, "float16")) as target:
        assert target.options[:2] == ("--tflite-runtime=auto", "--tflite-delegate-precision=float16")

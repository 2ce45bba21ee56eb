from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
from fast_run import first
from hypothesis import HealthCheck, find, given, settings
from hypothesis.errors import HypothesisWarning
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoder_of, strings
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import ScriptCase
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.rules.det.rules import poisoned, repeated
from pytest_qnn.tflite.rules.err.rules import hostile
from pytest_qnn.tflite.rules.mem.rules import recording_writes
from pytest_qnn.tflite.rules.num.rules import elementwise, sums
from pytest_qnn.tflite.rules.part.rules import fan_out, nothing_to_claim, single_nodes, twice
from pytest_qnn.tflite.rules.prec.rules import beside_foreign_kernels, permuted
from pytest_qnn.tflite.strategies import delegates as cases

STEERABLE = DelegateFacts(steerable=True)
NATIVE = DelegateFacts(steerable=False)
FACTORIES = [
    cases.anything,
    cases.routing,
    fan_out,
    cases.behind_a_probe,
    cases.between_probes,
    permuted,
    single_nodes,
    twice,
    beside_foreign_kernels,
    cases.before_probes,
    cases.before_a_failure,
    nothing_to_claim,
    recording_writes,
    repeated,
    poisoned,
    elementwise,
    sums,
    cases.quantised,
    cases.saturating,
]
Factory = Callable[[DelegateFacts], SearchStrategy[DelegateCase]]
FEW = settings(max_examples=30, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


def _finds(strategy: SearchStrategy[DelegateCase], wanted: Callable[[DelegateCase], bool]) -> DelegateCase:
    # Graphs of many partitions are long as text, which Hypothesis warns of.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)
        return find(strategy, wanted, settings=settings(max_examples=500, database=None, derandomize=True))


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: factory.__name__)
def test_a_native_target_is_never_told_what_to_claim(factory: Factory) -> None:
    @FEW
    @given(factory(NATIVE))
    def check(case: DelegateCase) -> None:
        assert all(one.claim is None for one in case.applications if one.who == "target")

    check()


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: factory.__name__)
def test_every_case_applies_the_target_once_and_claims_nodes_of_its_graph(factory: Factory) -> None:
    @FEW
    @given(factory(STEERABLE))
    def check(case: DelegateCase) -> None:
        assert [one.who for one in case.applications].count("target") == 1
        claimed = {index for one in case.applications for index in one.claim or ()}
        assert claimed <= set(range(len(case.graph.nodes)))

    check()


@pytest.mark.parametrize(
    "order", ["probe target", "target probe", "probe target probe", "probe probe target"]
)
def test_the_target_meets_probes_before_and_after_it(order: str) -> None:
    def ordered(case: DelegateCase) -> bool:
        return [one.who for one in case.applications] == order.split()

    _finds(cases.between_probes(STEERABLE), ordered)


@pytest.mark.parametrize("fault", first(["prepare", "init", "kernel-prepare"], 2))
def test_a_failing_probe_comes_after_the_target(fault: str) -> None:
    def failing(case: DelegateCase) -> bool:
        return case.applications[-1].fault == fault

    case = _finds(cases.before_a_failure(STEERABLE), failing)
    assert [one.who for one in case.applications] == ["target", "probe"]


@pytest.mark.parametrize("refused", ["plan", "replace", "node", "preview", "node-in-init"])
def test_each_function_of_the_context_fails_a_delegate_that_must_survive(refused: str) -> None:
    def refusing(case: DelegateCase | ScriptCase) -> bool:
        return isinstance(case, DelegateCase) and any(one.refused == refused for one in case.applications)

    known = decoder_of(hostile(NATIVE))
    assert known is not None
    drawn = map(known.decode, itertools.islice(strings(known.size, 1), 500))
    assert any(map(refusing, drawn))


def test_fan_out_graphs_have_outputs_that_their_own_nodes_read() -> None:
    def shared(case: DelegateCase) -> bool:
        read = {tensor for node in case.graph.nodes for tensor in node.inputs}
        made = {tensor for node in case.graph.nodes for tensor in node.outputs}
        return bool(read & made & set(case.graph.outputs))

    case = _finds(fan_out(NATIVE), shared)
    assert len(case.poison) == case.invokes == 2
    assert case.poison[0] != case.poison[1]


def test_poisoned_outputs_have_odd_numbers_of_elements_too() -> None:
    def odd(case: DelegateCase) -> bool:
        shape = case.graph.tensors[case.graph.outputs[0]].shape
        return all(length % 2 for length in shape) and max(shape) > 1

    _finds(poisoned(NATIVE), odd)


def test_routing_leaves_fused_activations_to_other_rules() -> None:
    @FEW
    @given(cases.routing(NATIVE))
    def check(case: DelegateCase) -> None:
        assert {node.activation for node in case.graph.nodes} == {"NONE"}

    check()


def test_cases_shrink_to_one_plain_node() -> None:
    case = _finds(cases.anything(STEERABLE), lambda case: case.invokes == 1)
    assert len(case.graph.nodes) == 1
    assert case.data_seed == 0
    assert case.applications[0].claim is None

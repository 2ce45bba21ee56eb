from __future__ import annotations

import functools

import pytest
from fast_run import first, later
from kept import keep

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.graph.constants import float_weights
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.strategies.claimed import taken
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

pytestmark = pytest.mark.usefixtures("lessons")

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
FEW = Profile("few", in_process_examples=3, isolated_examples=3)
RULES = sorted(rule.id for rule in catalogue().values() if rule.subject == "delegate")
INNOCENT = (Outcome.PASS, Outcome.UNSUPPORTED, Outcome.INCONCLUSIVE)
WITHOUT_WORK = {"PART-02", "PART-04", "PART-16"}
"""Rules that look at what Prepare leaves alone: a delegate that claims nothing obeys them visibly."""


@functools.cache
def _target(name: str, runtime: str) -> DelegateTarget:
    return keep(open_delegate_target([(f"reference:{name}", {})], runtime, "off", 10.0))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("area", ["PART", "PREC", "DET", "NUM"])
def test_a_variant_that_claims_nothing_leaves_the_rules_about_its_work_open(area: str, runtime: str) -> None:
    rules = [catalogue()[rule_id] for rule_id in RULES if rule_id.startswith(area)]
    for rule in rules:
        if rule.self_check or rule.id in WITHOUT_WORK:
            continue
        verdict = judge(rule, _target("nothing", runtime), FEW, seed=1)
        assert verdict.outcome is not Outcome.PASS, verdict


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_variant_that_claims_nothing_passes_more_than_ten_rules(runtime: str) -> None:
    target = _target("nothing", runtime)
    rules = [
        rule_id for rule_id in RULES if rule_id.startswith(("ABI", "DYN", "ERR", "LIFE", "PART", "PREC"))
    ]
    verdicts = [judge(catalogue()[rule_id], target, FEW, seed=1) for rule_id in rules]
    assert sum(verdict.outcome is Outcome.PASS for verdict in verdicts) > 10


@pytest.mark.parametrize("name", ["one-operator", "int8-only", "nothing"])
def test_a_narrow_variant_claims_what_its_name_says(name: str) -> None:
    kinds = {claim.kind for claim in _target(name, RUNTIMES[0]).facts.claims if claim.outcome == "claimed"}
    expected = {
        "one-operator": {("ADD", "float32")},
        "int8-only": {(kind.op, "int8") for kind in kinds},
        "nothing": set(),
    }
    assert {(kind.op, kind.dtype) for kind in kinds} == expected[name]
    assert kinds == taken(_target(name, RUNTIMES[0]).facts)


def test_the_other_order_of_a_sum_gives_other_bits_within_the_bounds() -> None:
    tensors = (Tensor((1, 64)), *float_weights((4, 64), 3, 1), Tensor((1, 4)))
    graph = Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, 2), (3,)),), (0,), (3,))
    traces = {
        spec: [_target(spec, RUNTIMES[0]).run(DelegateCase(graph, data_seed=seed)) for seed in range(1, 9)]
        for spec in ("preview", "other-order")
    }
    usual, other = ([trace.outputs for trace in found] for found in traces.values())
    assert usual != other
    verdict = judge(
        catalogue()["NUM-02"], _target("other-order", RUNTIMES[0]), Profile("many", 60, 60), seed=1
    )
    assert verdict.outcome is Outcome.PASS


@pytest.mark.parametrize("rule_id", first(["PART-12", "PREC-04", "PART-13", "PART-14", "PART-17"], 2))
@pytest.mark.parametrize(
    "value",
    ["max_delegated_partitions=1", later("max_delegated_partitions=2"), "min_nodes_per_partition=2"],
)
@pytest.mark.parametrize("examples", [20, later(60)])
def test_a_delegate_that_is_limited_by_its_user_is_not_accused(
    value: str, rule_id: str, examples: int
) -> None:
    key, _, number = value.partition("=")
    target = open_delegate_target([("reference:limited", {key: number})], RUNTIMES[0], "off", 10.0)
    verdict = judge(catalogue()[rule_id], target, Profile("more", examples, examples), seed=1)
    target.close()
    assert verdict.outcome in INNOCENT, verdict.finding


@pytest.mark.parametrize(
    ("options", "told"),
    [({"threads": "2"}, "has no option threads"), ({"max_delegated_partitions": "x"}, "refuses its options")],
)
def test_the_limited_variant_takes_its_options_and_no_others(options: dict[str, str], told: str) -> None:
    with pytest.raises(TargetUnusable, match=told):
        open_delegate_target([("reference:limited", options)], "auto", "off", 10.0)


def test_a_name_that_no_variant_has_is_told_with_those_there_are() -> None:
    with pytest.raises(TargetUnusable, match="none of the reference's variants: one-operator, int8-only"):
        open_delegate_target([("reference:unheard-of", {})], "auto", "off", 10.0)


@pytest.mark.parametrize("runtime", first(RUNTIMES))
def test_a_variant_that_claims_nothing_has_one_red_line(runtime: str) -> None:
    areas = ("ABI", "CTRL", "DET", "ERR", "NUM", "PART", "PREC", "RSZ")
    rules = [catalogue()[rule_id] for rule_id in RULES if rule_id.startswith(areas)]
    quick = Profile("quick", 20, 20)
    verdicts = [judge(rule, _target("nothing", runtime), quick, seed=1) for rule in rules]
    red = [verdict for verdict in verdicts if verdict.outcome not in (Outcome.PASS, Outcome.UNSUPPORTED)]
    assert [(verdict.rule, verdict.outcome) for verdict in red] == [("PART-03", Outcome.INCONCLUSIVE)]
    assert "claimed none of the" in red[0].reason

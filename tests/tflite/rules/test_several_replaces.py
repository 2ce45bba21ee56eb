"""A delegate may call Replace several times in a Prepare; what RT-05 makes of it is not its fault."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from fast_run import first
from hypothesis import HealthCheck, settings
from msgspec.structs import replace
from native_plugins import plugin

from pytest_qnn.core.engine import judge, judge_case
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Examined, Outcome
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import ScriptCase, without_edges
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

RULE = catalogue()["PART-18"]


@pytest.fixture(scope="module", params=["tflite_runtime", "ai_edge_litert"])
def in_halves(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DelegateTarget]:
    library: Path = plugin(tmp_path_factory.mktemp("plugin"), IN_HALVES="1")
    target = open_delegate_target([(str(library), {})], request.param, "fork", 10.0)
    yield target
    target.close()


@pytest.mark.parametrize("seed", first(range(1, 4)))
def test_several_replaces_are_no_fault_and_nor_is_what_the_runtime_does_of_them(
    seed: int, in_halves: DelegateTarget
) -> None:
    verdict = judge(RULE, in_halves, PROFILES["default"], seed)
    assert verdict.outcome is Outcome.PASS, verdict.finding


def test_as_many_replaces_as_subgraphs_need_not_be_one_for_each(in_halves: DelegateTarget) -> None:
    case = with_one_neg_in_the_body(drawn(in_halves, loops_after_several_nodes))
    found = judge_case(RULE, in_halves, case)
    assert isinstance(found, Examined), found
    assert found.count


def loops_after_several_nodes(case: ScriptCase) -> bool:
    graph = case.graphs[0]
    return len(graph.subgraphs) == 2 and sum(node.op == "NEG" for node in graph.nodes) > 1


def with_one_neg_in_the_body(case: ScriptCase) -> ScriptCase:
    """Two calls in the main graph and one in the body: as many as there are subgraphs with the condition."""
    graph = case.graphs[0]
    condition, body = graph.subgraphs
    others = tuple(node for node in body.nodes if node.op != "NEG")
    body = replace(body, nodes=(*others, Node("NEG", body.inputs[-1:], body.outputs[-1:])))
    return replace(case, graphs=(replace(graph, subgraphs=(condition, body)),))


def drawn(target: DelegateTarget, wanted: Any) -> ScriptCase:
    quick = settings(max_examples=2000, database=None, suppress_health_check=list(HealthCheck))
    case: ScriptCase = hypothesis.find(RULE.cases(target.facts), wanted, settings=quick)
    return case


def with_edges(case: ScriptCase) -> bool:
    """Neighbouring NEGs in an order that the metadata asks for."""
    return bool(case.graphs[0].control_edges) and sum(node.op == "NEG" for node in case.graphs[0].nodes) > 1


def test_a_death_by_control_edges_is_the_runtimes_in_a_fresh_child_too(
    in_halves: DelegateTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = drawn(in_halves, with_edges)
    monkeypatch.setattr(in_halves._executor, "run_fresh", lambda _: Death("signal", "SIGSEGV"))
    assert in_halves.run_fresh(case).order_lost


def test_so_is_memory_of_the_suites_own_that_it_overwrites(
    in_halves: DelegateTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = drawn(in_halves, with_edges)
    run = in_halves._executor.run

    def failing(each: ScriptCase, *, guarded: bool = False) -> Any:
        if each is case:
            raise RunnerFailure("the runner itself failed")
        return run(each, guarded=guarded)

    monkeypatch.setattr(in_halves._executor, "run", failing)
    assert in_halves.run(case).order_lost
    monkeypatch.setattr(in_halves._executor, "run_fresh", lambda _: failing(case))
    assert in_halves.run_fresh(case).order_lost
    with pytest.raises(RunnerFailure):
        in_halves.run_fresh(without_edges(case))


def test_cases_with_control_edges_share_no_child(in_halves: DelegateTarget) -> None:
    case = drawn(in_halves, with_edges)
    assert [alone for _, alone in in_halves.run_all([case] * 3)] == [True] * 3

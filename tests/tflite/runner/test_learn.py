from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from native import delegate_library

from pytest_qnn.core.target import Death
from pytest_qnn.tflite.facts import LIMITS, DelegateFacts
from pytest_qnn.tflite.graph.combinations import GRID, combination_of
from pytest_qnn.tflite.graph.floors import LONGER, Floor
from pytest_qnn.tflite.graph.kinds import graph_of
from pytest_qnn.tflite.runner.learn import Question, learn_claims
from pytest_qnn.tflite.target import open_delegate_target

RUNTIMES = ("tflite_runtime", "ai_edge_litert")


def learned(
    spec: str, runtime: str = RUNTIMES[0], sandbox: str = "off", timeout: float = 10.0, **options: str
) -> DelegateFacts:
    target = open_delegate_target([(spec, options)], runtime, sandbox, timeout)
    target.close()
    facts: DelegateFacts = target.facts
    return facts


def outcomes(facts: DelegateFacts) -> Counter[str]:
    return Counter(claim.outcome for claim in facts.claims)


def test_each_kind_of_the_grid_is_asked_about_by_a_graph_of_that_kind() -> None:
    assert [combination_of(graph, graph.nodes[0]) for graph in map(graph_of, GRID)] == list(GRID)
    assert len(set(GRID)) == len(GRID)
    assert 150 <= len(GRID) <= 400


def test_a_graph_of_several_nodes_of_a_kind_has_as_many_results() -> None:
    graph = graph_of(GRID[0], Floor(nodes=3))
    assert len(graph.nodes) == len(set(graph.outputs)) == 3
    assert {node.inputs for node in graph.nodes} == {graph.nodes[0].inputs}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("sandbox", ["off", "fork"])
def test_the_reference_claims_the_whole_grid(runtime: str, sandbox: str) -> None:
    facts = learned("reference", runtime, sandbox)
    assert [claim.kind for claim in facts.claims] == list(GRID)
    assert outcomes(facts) == {"claimed": len(GRID)}
    assert facts.deaths == ()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_delegate_of_one_operator_is_known_by_type_and_parameters(runtime: str) -> None:
    claimed = [
        claim.kind
        for claim in learned("reference:one-operator", runtime).claims
        if claim.outcome == "claimed"
    ]
    assert {(kind.op, kind.dtype, kind.activation) for kind in claimed} == {("ADD", "float32", "NONE")}
    assert {kind.rank for kind in claimed} == {1, 2, 3, 4}
    assert {kind.form for kind in claimed} == {"", "constant"}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_delegate_that_claims_nothing_is_asked_with_several_nodes_too(runtime: str) -> None:
    facts = learned("reference:nothing", runtime)
    assert outcomes(facts) == {"refused": len(GRID)}
    assert facts.floor == Floor()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_delegate_that_leaves_small_partitions_alone_is_learned_with_more_nodes(runtime: str) -> None:
    facts = learned("reference:limited", runtime, min_nodes_per_partition="3")
    assert outcomes(facts) == {"claimed": len(GRID)}
    assert facts.floor == Floor(nodes=LONGER)


def test_a_kind_that_kills_the_target_is_named_and_costs_no_other(tmp_path: Path) -> None:
    facts = learned(
        str(delegate_library(tmp_path, on_prepare="raise(SIGSEGV)", before=_SIGNALS)), sandbox="fork"
    )
    by_op = {op: {c.outcome for c in facts.claims if c.kind.op == op} for op in ("ADD", "MUL", "CONV_2D")}
    assert by_op == {"ADD": {"claimed"}, "MUL": {"died", "unknown"}, "CONV_2D": {"claimed"}}
    assert [death.partition(":")[0] for death in facts.deaths] == [
        "claiming MUL float32 rank 1",
        "claiming MUL float32 rank 1 RELU",
        "claiming MUL int8 rank 1",
        "claiming MUL int8 rank 1 RELU",
    ]
    assert all("SIGSEGV" in death for death in facts.deaths)


def test_a_kind_that_hangs_the_target_is_named_and_the_rest_is_unknown(tmp_path: Path) -> None:
    library = delegate_library(tmp_path, on_prepare="for (;;) pause()", before="#include <unistd.h>\n")
    facts = learned(str(library), sandbox="fork", timeout=0.5)
    assert len(facts.deaths) == 2
    assert outcomes(facts)["died"] == 2
    assert {claim.outcome for claim in facts.claims if claim.kind.op == "CONV_2D"} == {"unknown"}


def test_a_kind_whose_application_fails_is_told_from_one_that_is_refused(tmp_path: Path) -> None:
    facts = learned(str(delegate_library(tmp_path, on_prepare="return kError")))
    assert {claim.outcome for claim in facts.claims if claim.kind.op == "MUL"} == {"failed"}
    assert {claim.outcome for claim in facts.claims if claim.kind.op == "ADD"} == {"claimed"}


def test_slow_answers_are_asked_for_in_parts() -> None:
    asked: list[Question] = []

    def slow(question: Question) -> Sequence[str]:
        if question.together:
            return []
        asked.append(question)
        return ["claimed"] * min(100, question.last - question.first)

    assert {claim.outcome for claim in learn_claims(slow).claims} == {"claimed"}
    assert [question.first for question in asked] == [0, 100, 200, 300]


def alone(outcome: Callable[[int], str], together: Sequence[str] | Death) -> tuple[list[str], int]:
    """What is learned of a target with these outcomes of kinds alone, and how many kinds were asked alone."""
    asked = 0

    def ask(question: Question) -> Sequence[str] | Death:
        nonlocal asked
        if question.together:
            return together
        places = question.only or range(question.first, question.last)
        asked += len(places)
        return [outcome(place) for place in places]

    return [claim.outcome for claim in learn_claims(ask).claims], asked


def test_what_is_claimed_beside_others_is_asked_about_alone_for_some_of_each_operator_and_type() -> None:
    answer = ["claimed" if place % 2 else "refused" for place in range(len(GRID))]
    found, asked = alone(answer.__getitem__, answer)
    assert found == answer
    assert 2 * len({(kind.op, kind.dtype) for kind in GRID}) <= asked < len(GRID) // 4


@pytest.mark.parametrize("together", [Death("signal", "SIGSEGV"), [], ["claimed"] * 7])
def test_where_no_model_of_all_kinds_can_be_shown_each_is_asked_about(
    together: Sequence[str] | Death,
) -> None:
    assert alone(lambda _: "claimed", together) == (["claimed"] * len(GRID), len(GRID))


@pytest.mark.parametrize(
    "kind", [("ADD", "float32"), ("CONV_2D", "int8"), ("NEG", "float32"), ("MEAN", "int8")]
)
def test_one_that_chooses_by_what_stands_beside_is_asked_about_each(kind: tuple[str, str]) -> None:
    """Of one operator and type it takes what is alone only."""
    beside = ["refused" if (each.op, each.dtype) == kind else "claimed" for each in GRID]
    found, asked = alone(lambda _: "claimed", beside)
    assert found == ["claimed"] * len(GRID)
    assert asked > len(GRID)


def test_one_that_takes_its_first_nodes_only_is_asked_about_each() -> None:
    found, _ = alone(lambda _: "claimed", ["claimed"] * 3 + ["refused"] * (len(GRID) - 3))
    assert found == ["claimed"] * len(GRID)


def test_a_death_without_a_place_ends_the_lesson() -> None:
    lesson = learn_claims(lambda _: Death("garbage", "gone"))
    assert {claim.outcome for claim in lesson.claims} == {"unknown"}
    assert len(lesson.deaths) == 1


def test_a_delegate_with_the_options_is_told_from_one_without() -> None:
    limits = learned("reference:limited").limits
    assert {option for option, reason in limits.items() if not reason} == set(LIMITS)
    assert all("refuses the option" in reason for reason in learned("reference").limits.values())


def test_a_delegate_that_takes_any_option_is_not_taken_to_have_these(tmp_path: Path) -> None:
    reasons = learned(str(delegate_library(tmp_path))).limits.values()
    assert all("takes any option" in reason for reason in reasons)


_SIGNALS = "#include <signal.h>\n"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_delegate_that_writes_to_constants_spoils_its_own_models_only(runtime: str) -> None:
    learned("mutant:packs-weights", runtime)
    assert outcomes(learned("reference", runtime)) == {"claimed": len(GRID)}

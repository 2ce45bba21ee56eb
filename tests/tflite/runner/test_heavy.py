"""A delegate that takes long: its price is measured first, and rules have fewer and shorter cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from fast_run import later
from native_plugins import plugin

from pytest_qnn import effort
from pytest_qnn.core import engine
from pytest_qnn.core.drawing import listed
from pytest_qnn.core.search import Search
from pytest_qnn.core.target import Death
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.report import claims
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.table import cells_of
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.target.beside import NOT_ALONE, learn_beside
from pytest_qnn.tflite.trace import CellSeen, DomainTrace

NAP = "usleep(130000)"
"""Each time a delegate is made: a little more than an eighth of a second."""


NEGS = cells_of("NEG")


def opened(library: Path, timeout: float = 10.0, sandbox: str = "fork") -> DelegateTarget:
    return open_delegate_target([(str(library), {})], "tflite_runtime", sandbox, timeout)


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DelegateTarget]:
    target = opened(plugin(tmp_path_factory.mktemp("heavy"), IN_CREATE=NAP))
    yield target
    target.close()


def judged(target: DelegateTarget, rule: str) -> Verdict:
    profile = effort.profile("default").for_cases_of(target.facts.seconds)
    return engine.judge(catalogue()[rule], target, profile, seed=1)


def test_the_price_is_a_power_of_two_and_says_how_long_a_case_may_be(heavy: DelegateTarget) -> None:
    assert (heavy.facts.seconds, heavy.facts.most_lives) == (0.125, 80)


def test_one_that_takes_no_time_has_no_price_and_the_same_claims(
    heavy: DelegateTarget, tmp_path: Path
) -> None:
    light = opened(plugin(tmp_path))
    assert (light.facts.seconds, light.facts.most_lives) == (0.0, 0)
    assert light.facts.claims == heavy.facts.claims
    assert {claim.kind.op for claim in light.facts.claims if claim.outcome == "claimed"} == {"NEG"}
    light.close()


def test_all_kinds_are_learned_of_few_delegates(tmp_path: Path) -> None:
    """One for each kind would take forty minutes here."""
    counted = tmp_path / "made"
    library = plugin(tmp_path, IN_CREATE=f'usleep(130000); system("printf . >> {counted}")')
    target = opened(library)
    assert len(target.facts.claims) == len(GRID)
    assert "unknown" not in {claim.outcome for claim in target.facts.claims}
    assert counted.stat().st_size < 100
    target.close()


def test_the_report_says_so(heavy: DelegateTarget) -> None:
    said = [line for line in claims.lines(heavy.learned()) if line.startswith("a plain case takes")]
    text = (
        "a plain case takes 0.125 s: no case has a history, or more than 80 delegates; rules have fewer "
        "examples, but for --qnn-profile=thorough"
    )
    assert said == [text]


def test_a_rule_is_judged_by_fewer_examples(heavy: DelegateTarget) -> None:
    verdict = judged(heavy, "LIFE-02")
    assert verdict.outcome is Outcome.PASS
    planned = effort.profile("default").examples(catalogue()["LIFE-02"], isolated=True)
    assert verdict.examples == min(planned, 40)


def test_a_rule_of_long_cases_only_is_unsupported_and_says_why(heavy: DelegateTarget) -> None:
    verdict = judged(heavy, "LEAK-01")
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "takes too long where a plain one takes 0.125 s: they have at most 80" in verdict.reason


def test_in_this_process_no_cells_are_shown_beside_others(tmp_path: Path) -> None:
    """There a kernel of the runtime that ends the process would end pytest; more time is for more cells."""
    target = opened(plugin(tmp_path, IN_CREATE=NAP), sandbox="off")
    verdict = judged(target, "DOM-01")
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "takes too long where a plain one takes 0.125 s: they have at most 80" in verdict.reason
    assert not target.covered(whole=True)
    case = DomainCase(NEGS[:100])
    assert target.unfit(case)
    target.facts = msgspec.structs.replace(target.facts, most_lives=100)
    assert not target.unfit(case)
    target.close()


def outcomes(trace: DomainTrace) -> list[str]:
    return [seen.outcome for seen in trace.cells]


def test_cells_of_many_operators_are_shown_in_few_models(tmp_path: Path) -> None:
    """And what becomes of them is what becomes of each in a model of its own."""
    counted = tmp_path / "made"
    heavy = opened(plugin(tmp_path, IN_CREATE=f'usleep(130000); system("printf . >> {counted}")'))
    light = opened(plugin(tmp_path))
    before = counted.stat().st_size
    for name in ("NEG", "EXP", "RESHAPE"):  # of the last some have dynamic tensors, which fail alone
        cells = DomainCase(cells_of(name))
        assert outcomes(heavy.run(cells)) == outcomes(light.run(cells))
    assert counted.stat().st_size - before <= 12
    assert "computed" in outcomes(heavy.run(DomainCase(NEGS)))
    for target in (heavy, light):
        target.close()


def judged_on_negs(target: DelegateTarget) -> Verdict:
    rule = dataclasses.replace(catalogue()["DOM-01"], cases=lambda _: listed([DomainCase(NEGS)]))
    return engine.judge(rule, target, effort.profile("default").for_cases_of(0.125), seed=1)


@pytest.mark.parametrize(
    ("macro", "answer", "outcome", "letter"),
    [
        later("IN_INVOKE", "return kError", Outcome.FAIL, "f"),
        ("IN_INVOKE", "{ memset(out->data, 0, out->bytes); return kOk; }", Outcome.FAIL, "w"),
        later("IN_INVOKE", "abort()", Outcome.CRASH, "d"),
        later("IN_KERNEL_PREPARE", "return kError", Outcome.PASS, "n"),
        later("IN_KERNEL_PREPARE", "abort()", Outcome.CRASH, "d"),
    ],
)
def test_what_goes_wrong_beside_others_is_found_alone(
    tmp_path: Path, macro: str, answer: str, outcome: Outcome, letter: str
) -> None:
    """A delegate that fails while it is applied is undone, which is no fault of its cell."""
    rank = "dims->size" if macro == "IN_KERNEL_PREPARE" else "in->dims->size"
    with closing(opened(plugin(tmp_path, IN_CREATE=NAP, **{macro: f"if ({rank} == 7) {answer}"}))) as target:
        verdict = judged_on_negs(target)
        known = {row.dtype: row.ranks for row in target.covered(whole=False) if row.op == "NEG"}
    assert verdict.outcome is outcome
    assert known["float32"] == f"ccccccc{letter}c"
    if outcome is not Outcome.PASS:
        assert verdict.finding is not None
        assert verdict.finding.where == "NEG float32 rank 7"


@pytest.mark.full
def test_of_many_that_go_wrong_some_are_not_tried_alone(tmp_path: Path) -> None:
    """Nothing is called covered then, and the rule fails by the others."""
    library = plugin(tmp_path, IN_CREATE=NAP, IN_INVOKE="{ memset(out->data, 0, out->bytes); return kOk; }")
    target = opened(library, timeout=1.0)
    assert target.facts.most_lives == 8
    assert judged_on_negs(target).outcome is Outcome.FAIL
    (row,) = [row for row in target.covered(whole=False) if (row.op, row.dtype) == ("NEG", "float32")]
    assert set(row.ranks) == {"w", "?"}
    assert any("not tried alone: making a delegate takes long" in reason for reason in row.reasons)
    target.close()


def test_a_hang_beside_others_is_asked_about_twice() -> None:
    asked: list[int] = []

    def ask(cells: Sequence[Cell]) -> Death:
        asked.append(len(cells))
        return Death("hang", "no answer", step=2 * len(cells))

    learned = learn_beside(NEGS[:64], ask, 32)
    assert asked == [64, 32, 32]
    assert set(learned.known.values()) == {NOT_ALONE}
    assert not learned.suspects


def test_what_ends_the_process_on_the_cpu_is_the_runtimes_own() -> None:
    def ask(cells: Sequence[Cell]) -> tuple[CellSeen, ...] | Death:
        if NEGS[3] in cells:
            return Death("signal", "SIGABRT", step=2 * cells.index(NEGS[3]) + 1)
        return (CellSeen("left"),) * len(cells)

    learned = learn_beside(NEGS[:8], ask, 0)
    assert learned.known[NEGS[3]].outcome == "refused"
    assert sum(seen.outcome == "left" for seen in learned.known.values()) == 7


def test_no_case_has_a_history(heavy: DelegateTarget) -> None:
    rule = catalogue()["PART-04"]
    light = msgspec.structs.replace(heavy.facts, seconds=0.0, most_lives=0)
    assert not any(case.history for case in Search(rule.cases(heavy.facts), 60, 1))
    assert any(case.history for case in Search(rule.cases(light), 60, 1))


@pytest.mark.parametrize(("seconds", "most"), [(0.125, 40), (0.5, 10), (1.0, 5), (2.0, 3), (64.0, 3)])
def test_examples_fit_into_a_time_for_each_rule(seconds: float, most: int) -> None:
    for name in ("quick", "default"):
        profile = effort.profile(name)
        adapted = profile.for_cases_of(seconds)
        for rule in catalogue().values():
            planned = profile.examples(rule, isolated=True)
            assert adapted.examples(rule, isolated=True) == min(planned, most)
            assert adapted.whole(rule) == (rule.id == "DOM-01")


def test_thorough_and_usual_targets_are_left_alone() -> None:
    thorough = effort.profile("thorough")
    assert thorough.for_cases_of(1.0) is thorough
    usual = effort.profile("default")
    assert usual.for_cases_of(0.0) is usual

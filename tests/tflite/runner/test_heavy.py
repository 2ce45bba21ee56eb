"""A delegate that takes long: its price is measured first, and rules have fewer and shorter cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from native_plugins import plugin

from pytest_qnn import effort
from pytest_qnn.core import engine
from pytest_qnn.core.search import Search
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.report import claims
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.domain.table import cells_of
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

NAP = "usleep(130000)"
"""Each time a delegate is made: a little more than an eighth of a second."""


def opened(library: Path, timeout: float = 10.0) -> DelegateTarget:
    return open_delegate_target([(str(library), {})], "tflite_runtime", "fork", timeout)


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


@pytest.mark.parametrize("rule", ["LEAK-01", "DOM-01"])
def test_a_rule_of_long_cases_only_is_unsupported_and_says_why(heavy: DelegateTarget, rule: str) -> None:
    verdict = judged(heavy, rule)
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "takes too long where a plain one takes 0.125 s: they have at most 80" in verdict.reason


def test_more_time_for_a_case_is_time_for_more_delegates(heavy: DelegateTarget) -> None:
    case = DomainCase(tuple(cells_of("ADD"))[:100])
    assert heavy.unfit(case)
    facts = heavy.facts
    heavy.facts = msgspec.structs.replace(facts, most_lives=100)
    try:
        assert not heavy.unfit(case)
    finally:
        heavy.facts = facts


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
        assert not adapted.whole_lists
        for rule in catalogue().values():
            planned = profile.examples(rule, isolated=True)
            assert adapted.examples(rule, isolated=True) == min(planned, most)


def test_thorough_and_usual_targets_are_left_alone() -> None:
    thorough = effort.profile("thorough")
    assert thorough.for_cases_of(1.0) is thorough
    usual = effort.profile("default")
    assert usual.for_cases_of(0.0) is usual

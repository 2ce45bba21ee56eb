from __future__ import annotations

import functools

import pytest
from kept import keep

from pytest_qnn.engine import judge
from pytest_qnn.mutants import Mutant, table
from pytest_qnn.profile import PROFILES, Profile
from pytest_qnn.rules import catalogue
from pytest_qnn.rules.rule import Rule
from pytest_qnn.run.targets import DelegateTarget, open_delegate_target
from pytest_qnn.verdict import Outcome

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
MUTANTS = [mutant for mutant in table().values() if mutant.subject == "delegate"]
CAUGHT = (Outcome.FAIL, Outcome.CRASH, Outcome.HANG, Outcome.CONTRADICTION)


class _FirstFailure(Profile):
    """The examples of the default profile, without shrinking."""

    def shrink_budget(self, *, isolated: bool) -> int:  # noqa: ARG002 - the signature is Profile's
        return 0


PROFILE = _FirstFailure("first failure", PROFILES["default"].usual, PROFILES["default"].dear)


@functools.cache
def _target(spec: str, runtime: str) -> DelegateTarget:
    mutant = table().get(spec.removeprefix("mutant:"), Mutant(spec, "", (), "delegate"))
    sandbox = "fork" if mutant.deadly else "off"
    return keep(open_delegate_target([(spec, {})], runtime, sandbox, mutant.timeout))


def _rules() -> list[Rule[object, object, object]]:
    return [rule for rule in catalogue().values() if rule.subject == "delegate"]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    ("mutant", "rule_id"),
    [(mutant, rule_id) for mutant in MUTANTS for rule_id in mutant.kills],
    ids=lambda value: value.name if isinstance(value, Mutant) else value,
)
def test_a_mutant_is_caught_by_the_rules_it_breaks(mutant: Mutant, rule_id: str, runtime: str) -> None:
    verdict = judge(catalogue()[rule_id], _target(f"mutant:{mutant.name}", runtime), PROFILE, seed=1)
    assert verdict.outcome in CAUGHT, verdict
    assert verdict.finding is not None
    assert verdict.finding.expected
    assert verdict.finding.seen


def test_every_delegate_rule_has_a_mutant() -> None:
    covered = {rule_id for mutant in MUTANTS for rule_id in mutant.kills}
    assert {rule.id for rule in _rules()} - covered == set()


def test_mutants_name_only_rules_that_exist() -> None:
    assert {rule_id for mutant in MUTANTS for rule_id in mutant.kills} <= catalogue().keys()


@pytest.mark.parametrize("rule_id", [f"PART-{number:02}" for number in (1, 2, 4, 5, 10, 11, 15, 16)])
@pytest.mark.parametrize("name", ["approximates", "truncates"])
def test_wrong_numbers_do_not_break_a_rule_about_partitions(name: str, rule_id: str) -> None:
    verdict = judge(catalogue()[rule_id], _target(f"mutant:{name}", RUNTIMES[0]), PROFILE, seed=1)
    assert verdict.outcome is Outcome.PASS, verdict.finding

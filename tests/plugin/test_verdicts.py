from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from msgspec.structs import replace
from reports import judged_by_id

from pytest_qnn.core import engine
from pytest_qnn.core.evidence import Evidence, Frame
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Finding, Level, Outcome, Verdict
from pytest_qnn.session.judging import conclude, properties, rule_seed

pytestmark = pytest.mark.usefixtures("fakes")


def run(pytester: pytest.Pytester, rule_ids: tuple[str, ...], *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_rules=fake_suite.suite(*rule_ids))
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--strict-markers", *arguments)


def finding(pytester: pytest.Pytester, rule_id: str) -> Path:
    """The folder that a finding has left."""
    return next((pytester.path / ".pytest-qnn").glob(f"*/{rule_id}"))


@pytest.mark.parametrize(
    ("rule_id", "outcome"),
    [
        ("REG-01", {"passed": 1}),
        ("REG-02", {"failed": 1}),
        ("REG-03", {"failed": 1}),
        ("REG-04", {"failed": 1}),
        ("REG-05", {"failed": 1}),
        ("REG-06", {"skipped": 1}),
        ("REG-07", {"failed": 1}),
        ("REG-08", {"xfailed": 1}),
        ("REG-09", {"failed": 1}),
        ("REG-10", {"xfailed": 1}),
        ("REG-11", {"failed": 1}),
    ],
)
def test_a_verdict_ends_its_test(pytester: pytest.Pytester, rule_id: str, outcome: dict[str, int]) -> None:
    run(pytester, (rule_id,)).assert_outcomes(**outcome)


def test_strict_fails_a_violated_should_and_not_a_may(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-08", "REG-10"), "--qnn-strict").assert_outcomes(failed=1, xfailed=1)


def test_runxfail_does_not_turn_a_violation_into_a_pass(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-08",), "--runxfail").assert_outcomes(failed=1)


def test_xfail_and_skip_show_what_was_found(pytester: pytest.Pytester) -> None:
    result = run(pytester, ("REG-06", "REG-08"), "-rsx")
    result.stdout.fnmatch_lines(
        ["SKIPPED*REG-06 unsupported: the key answers 1000", "XFAIL*REG-08*code 1000*"]
    )


def test_an_unknown_rule_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile('def test_mine(judge): judge("REG-99")')
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["judge('REG-99'): the catalogue has no rule REG-99; the nearest is REG-*"])
    result.stdout.no_fnmatch_line("*judging.py*")


def test_a_test_cannot_judge_another_rule_than_its_name_promises(pytester: pytest.Pytester) -> None:
    pytester.makepyfile('def test_reg_01(judge): judge("REG-06")')
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_reg_01 is named after REG-01, and judges REG-06"])


def test_a_test_with_a_name_of_its_own_may_judge_any_rule(pytester: pytest.Pytester) -> None:
    pytester.makepyfile('def test_mine(judge): judge("PART-01")')
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["delegate target: reference", "PART       1 *"])


def test_one_test_may_judge_several_rules(pytester: pytest.Pytester) -> None:
    pytester.makepyfile('def test_mine(judge): judge("REG-01"); judge("PART-01")')
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(
        ["delegate target: reference", "total      1 *", "memory target: *", "total      1 *"]
    )


def test_a_rule_may_be_judged_while_a_fixture_is_set_up(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def judged(judge): judge("REG-02")

        def test_mine(judged): pass
        """
    )
    pytester.runpytest_inprocess().stdout.fnmatch_lines(["REG-02 MUST fail: *"])


def test_an_unusable_target_ends_the_run_before_any_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_first="def test_first(): print('ran')")
    result = run(pytester, ("REG-01",), "--qnn-backend=mutant:unusable", "-s")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.str().strip() == "ERROR: --qnn-backend mutant:unusable: it is no library."
    assert "ran" not in result.stdout.str().splitlines()


def test_a_target_that_no_collected_test_needs_is_not_opened(pytester: pytest.Pytester) -> None:
    targets = ("--qnn-backend=mutant:unusable", "--tflite-delegate=reference")
    run(pytester, ("PART-01",), *targets).assert_outcomes(passed=1)


def test_collecting_opens_no_target(pytester: pytest.Pytester) -> None:
    result = run(pytester, ("REG-01",), "--qnn-backend=mutant:unusable", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.OK


def test_targets_are_closed_at_the_end(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LOG", str(pytester.path / "log"))
    run(pytester, ("REG-02", "PART-01"))
    assert sorted((pytester.path / "log").read_text().splitlines()) == ["closed delegate", "closed memory"]


def test_markers_select_half_of_the_catalogue(pytester: pytest.Pytester) -> None:
    run(pytester, ("REG-01", "PART-01"), "-m", "qnn_delegate").assert_outcomes(passed=1, deselected=1)
    run(pytester, ("PART-01", "PART-02"), "-m", "not qnn_self_check").assert_outcomes(passed=1, deselected=1)


def test_the_seed_of_a_rule_depends_on_the_run_and_the_rule_alone() -> None:
    assert rule_seed(1, "REG-08") == 17345671656881  # a stored --qnn-seed must keep its meaning
    assert len({rule_seed(run_seed, rule) for run_seed in (1, 2) for rule in ("REG-08", "REG-09")}) == 4


@pytest.mark.usefixtures("fakes_outside")
class TestWithXdist:
    def run(
        self, pytester: pytest.Pytester, rule_ids: tuple[str, ...], *arguments: str
    ) -> tuple[pytest.RunResult, dict[str, dict[str, Any]]]:
        pytester.makepyfile(test_rules=fake_suite.suite(*rule_ids))
        result = pytester.runpytest_subprocess("-p", "fake_suite", "--qnn-report=out.json", *arguments)
        document = json.loads(Path("out.json").read_text()) if os.path.exists("out.json") else {"targets": []}
        return result, judged_by_id(document)

    def test_verdicts_and_seeds_are_those_of_a_serial_run(self, pytester: pytest.Pytester) -> None:
        rules = ("REG-01", "REG-02", "REG-06", "REG-08", "PART-01")
        _, serial = self.run(pytester, rules, "--qnn-seed=3")
        result, spread = self.run(pytester, rules, "--qnn-seed=3", "-n2")
        result.assert_outcomes(passed=2, failed=1, skipped=1, xfailed=1)
        for rule in (*serial.values(), *spread.values()):
            del rule["seconds"]
        assert spread == serial

    @pytest.mark.full
    def test_workers_share_the_seed_that_the_run_drew(self, pytester: pytest.Pytester) -> None:
        result, rules = self.run(pytester, ("REG-01", "REG-02"), "-n1")
        seed = int(result.stdout.str().partition("--qnn-seed=")[2].split()[0])
        assert {rule: verdict["seed"] for rule, verdict in rules.items()} == {
            rule: rule_seed(seed, rule) for rule in ("REG-01", "REG-02")
        }

    def test_a_rule_whose_worker_died_is_a_crash_and_appears_once(self, pytester: pytest.Pytester) -> None:
        result, rules = self.run(pytester, ("REG-01", "REG-12"), "-n1")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert {rule: verdict["verdict"] for rule, verdict in rules.items()} == {
            "REG-01": "pass",
            "REG-12": "crash",
        }

    def test_an_unusable_target_is_one_usage_error(self, pytester: pytest.Pytester) -> None:
        result, rules = self.run(pytester, ("REG-01",), "-n1", "--qnn-backend=mutant:unusable")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "ERROR: --qnn-backend mutant:unusable: it is no library." in result.stderr.str()
        assert rules == {}

    @pytest.mark.full
    def test_replay_works(self, pytester: pytest.Pytester) -> None:
        self.run(pytester, ("REG-01", "REG-02"))
        result, _ = self.run(
            pytester, ("REG-01", "REG-02"), "-n1", "--qnn-replay", str(finding(pytester, "REG-02"))
        )
        result.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS: *"])
        result.assert_outcomes(failed=1)


def test_a_target_in_which_rules_hang_again_and_again_is_not_shrunk_for_each(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = []

    def judge(rule: Any, target: Any, profile: Profile, *others: Any) -> engine.Judged:
        budgets.append(profile.hang_budget)
        return usual(rule, target, profile, *others)

    usual = engine.judge_with_owners
    monkeypatch.setattr(engine, "judge_with_owners", judge)
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.parametrize("time", range(5))
        def test_again(judge, time): judge("REG-04")
        def test_other_half(judge): judge("PART-01")
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=5, passed=1)
    most = Profile("", 1, 1).hang_budget
    assert budgets == [most, most, most, 2, 2, most]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("outcome", "red"),
    [
        (Outcome.FAIL, False),
        (Outcome.CONTRADICTION, False),
        (Outcome.INCONCLUSIVE, False),
        (Outcome.CRASH, True),
        (Outcome.HANG, True),
    ],
)
def test_a_may_is_red_for_a_death_only(outcome: Outcome, *, red: bool, strict: bool) -> None:
    verdict = Verdict(
        rule="REG-10", area="REG", level=Level.MAY, sentence="", source="", subject="memory",
        self_check=False, target="reference", outcome=outcome, examples=1, examined=0, what="", seconds=0.0,
        seed=1, finding=Finding(expected="a", seen="b"),
    )  # fmt: skip
    with pytest.raises((pytest.fail.Exception, pytest.xfail.Exception)) as ended:
        conclude(verdict, 1, strict=strict)
    assert ended.errisinstance(pytest.xfail.Exception) is not red


def test_a_backtrace_in_a_junit_file_has_the_lines_of_the_source() -> None:
    frames = (Frame("/lib.so", 18, "lib.so+0x12 (invoke+0x2)", "lib.c:9"), Frame("/lib.so", 1, "lib.so+0x1"))
    verdict = Verdict(
        rule="REG-03", area="REG", level=Level.MUST, sentence="", source="", subject="memory",
        self_check=False, target="reference", outcome=Outcome.CRASH, examples=1, examined=0, what="",
        seconds=0.0, seed=1, finding=Finding(expected="a", seen="b", evidence=Evidence(frames=frames)),
    )  # fmt: skip
    assert dict(properties(verdict))["backtrace"] == "lib.so+0x12 (invoke+0x2) at lib.c:9; lib.so+0x1"


@pytest.mark.parametrize(
    ("owner", "arguments", "outcome"),
    [
        ("REG-02", (), {"skipped": 1, "failed": 1}),  # a MUST: its own finding fails the run
        ("REG-09", (), {"skipped": 1, "failed": 1}),  # a SHOULD in which the process dies: likewise
        ("REG-08", ("--qnn-strict",), {"skipped": 1, "failed": 1}),
        ("REG-08", (), {"failed": 1, "xfailed": 1}),
        ("REG-10", ("--qnn-strict",), {"failed": 1, "xfailed": 1}),
    ],
)
def test_a_rule_that_is_blocked_is_red_itself_where_its_owner_fails_no_run(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    owner: str,
    arguments: tuple[str, ...],
    outcome: dict[str, int],
) -> None:
    usual = engine.judge_with_owners

    def judge(rule: Any, *others: Any) -> engine.Judged:
        verdict, _ = usual(rule, *others)
        found, _ = usual(fake_suite.CATALOGUE[owner], *others)
        blocked = replace(verdict, blocked_by=(owner,), reason=f"blocked by {owner}", finding=None)
        return engine.Judged(blocked, (replace(found, found_by=rule.id),))

    monkeypatch.setattr(engine, "judge_with_owners", judge)
    result = run(pytester, ("REG-07",), "--qnn-report=out.json", *arguments)
    result.assert_outcomes(**outcome)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    found = judged_by_id(json.loads(Path("out.json").read_text(encoding="utf-8")))
    assert found["REG-07"]["reason"].startswith(f"blocked by {owner}")
    assert found["REG-07"]["blocked_by"] == ([owner] if "skipped" in outcome else [])

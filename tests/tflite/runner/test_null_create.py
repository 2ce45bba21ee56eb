"""Plugins whose create returns NULL, or that were given no option, are judged by their interface."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from native_plugins import plugin

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Unsupported, Verdict, Violation
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.plugin import CREATE, DESTROY, Apply, Copy, Create, Destroy, PluginCase
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.rules.abi.rules import TRIVIAL
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target
from pytest_qnn.tflite.trace import LibrarySeen, PluginSeen, PluginTrace

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")

FEW = Profile("few", 10, 10, repeats=0)
SILENT = "return NULL"
EXPLAINED = 'return refuse(report, "there is no device")'


@contextmanager
def opened(folder: Path, options: dict[str, str] | None = None, **macros: str) -> Iterator[DelegateTarget]:
    target = open_delegate_target([(str(plugin(folder, **macros)), options or {})], "auto", "fork", 10.0)
    try:
        yield target
    finally:
        target.close()


def verdicts(target: DelegateTarget, *rule_ids: str) -> dict[str, Verdict]:
    return {rule_id: judge(catalogue()[rule_id], target, FEW, seed=2) for rule_id in rule_ids}


@pytest.mark.parametrize(("create", "explained"), [(SILENT, Outcome.FAIL), (EXPLAINED, Outcome.PASS)])
def test_a_plugin_that_makes_no_delegate_is_judged_by_its_interface(
    create: str, explained: Outcome, tmp_path: Path
) -> None:
    with opened(tmp_path, IN_CREATE=create) as target:
        assert "returned NULL" in target.facts.unusable
        found = verdicts(target, "ABI-01", "ABI-02", "ABI-04", "ABI-12", "NUM-10", "PART-16", "LEAK-01")
        of_none = verdicts(target, "ABI-09", "ABI-10", "ABI-11", "ABI-14", "ABI-15")
    outcomes = {rule_id: verdict.outcome for rule_id, verdict in found.items()}
    assert outcomes == {
        "ABI-01": Outcome.PASS,
        "ABI-02": Outcome.FAIL,
        "ABI-04": explained,
        "ABI-12": Outcome.PASS,
        **dict.fromkeys(("NUM-10", "PART-16", "LEAK-01"), Outcome.UNSUPPORTED),
    }
    assert "returned NULL" in found["NUM-10"].reason
    # Not by what came before their cases, of which PART-04 says nothing here.
    told = {(verdict.outcome, verdict.reason) for verdict in of_none.values()}
    assert told == {(Outcome.UNSUPPORTED, "create makes no delegate: ABI-02 judges it")}


@pytest.mark.parametrize("create", [SILENT, EXPLAINED])
@pytest.mark.parametrize("rule_id", ["ABI-11", "ABI-14", "ABI-15"])
def test_that_no_create_makes_a_delegate_is_no_other_rules_finding(
    rule_id: str, create: str, tmp_path: Path
) -> None:
    """ABI-02 has that finding, and ABI-04 that of the missing text."""
    with opened(tmp_path, IN_CREATE=create) as target:
        verdict = judge(catalogue()[rule_id], target, FEW, seed=2)
    assert verdict.outcome is Outcome.UNSUPPORTED, verdict
    assert "create makes no delegate" in verdict.reason or "create returned NULL" in verdict.reason


NO_COPY = """
  extern int setenv(const char*, const char*, int);
  static int known;
  const char* loaded = getenv("LOADED");
  if (!known && loaded) return NULL;
  known = 1;
  setenv("LOADED", "1", 1)
"""
"""The library makes no delegate where another copy of it has made one in this process."""


def test_the_smallest_case_of_a_copy_that_makes_none_has_the_delegate_of_the_first(tmp_path: Path) -> None:
    with opened(tmp_path, IN_CREATE=" ".join(NO_COPY.split())) as target:
        verdict = judge(catalogue()["ABI-14"], target, FEW, seed=2)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.finding is not None
    case = msgspec.json.decode(verdict.finding.case)
    assert [step["do"] for step in case["steps"]] == ["create", "copy"]


def seen_of(*given: tuple[Create | Copy | Apply | Destroy, PluginSeen]) -> tuple[PluginCase, PluginTrace]:
    library = LibrarySeen((CREATE, DESTROY))
    case = PluginCase(TRIVIAL, tuple(step for step, _ in given))
    return case, PluginTrace(library=library, steps=tuple(seen for _, seen in given))


MADE, MUTE = PluginSeen(made=True), PluginSeen(made=False)
TOLD = PluginSeen(made=False, reports=("no library",))
FEW_FILES = Create("bad", descriptors=0)


def test_a_text_that_is_missing_with_files_and_without_them_is_no_matter_of_files() -> None:
    check = catalogue()["ABI-15"].check
    for plain in (MADE, TOLD):
        with pytest.raises(Violation, match="NULL without one"):
            check(*seen_of((FEW_FILES, MUTE), (Create(), plain)))
    with pytest.raises(Violation, match="now that files can be opened again"):
        check(*seen_of((FEW_FILES, MUTE), (Create(), MUTE)))
    case, trace = seen_of((FEW_FILES, MUTE), (Create(), MUTE))
    never = msgspec.structs.replace(trace, facts=DelegateFacts(unusable="create returned NULL"))
    with pytest.raises(Unsupported, match="ABI-02"):
        check(case, never)


def test_only_a_copy_of_what_has_made_a_delegate_must_make_one() -> None:
    check = catalogue()["ABI-14"].check
    with pytest.raises(Violation, match="a delegate of the copy"):
        check(*seen_of((Create(), MADE), (Copy(), MUTE)))
    for before in ((), ((Create(), TOLD),)):
        with pytest.raises(Unsupported, match="ABI-02"):
            check(*seen_of(*before, (Copy(), MUTE), (Create("d2"), MADE)))


def test_registrations_of_what_was_never_made_are_not_looked_for() -> None:
    with pytest.raises(Unsupported, match="ABI-02"):
        catalogue()["ABI-11"].check(*seen_of((Create(), MUTE), (Apply(), PluginSeen(skipped="no d0"))))


def test_options_that_the_plugin_refuses_are_a_mistake_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(TargetUnusable, match="there is no such option"), opened(tmp_path, {"thread": "1"}):
        pass


def test_an_option_that_was_found_out_is_enough_to_judge_how_options_are_read(tmp_path: Path) -> None:
    with opened(tmp_path) as target:
        assert target.facts.limits["threads"] == ""
        found = verdicts(target, "ABI-03", "ABI-05")
    assert {verdict.outcome for verdict in found.values()} == {Outcome.PASS}
    with opened(tmp_path, KEEPS_OPTIONS="1") as target:
        assert verdicts(target, "ABI-05")["ABI-05"].outcome is Outcome.FAIL

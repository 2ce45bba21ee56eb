"""Plugins whose create returns NULL, or that were given no option, are judged by their interface."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from native_plugins import plugin

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

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
    outcomes = {rule_id: verdict.outcome for rule_id, verdict in found.items()}
    assert outcomes == {
        "ABI-01": Outcome.PASS,
        "ABI-02": Outcome.FAIL,
        "ABI-04": explained,
        "ABI-12": Outcome.PASS,
        **dict.fromkeys(("NUM-10", "PART-16", "LEAK-01"), Outcome.UNSUPPORTED),
    }
    assert "returned NULL" in found["NUM-10"].reason


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

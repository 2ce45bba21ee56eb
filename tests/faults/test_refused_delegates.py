"""Each fault of `refused_delegates.py` is the finding of one rule, its owner's, and of no other of NOM's."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from fast_run import first

from pytest_qnn.core import engine
from pytest_qnn.core.verdict import Outcome
from pytest_qnn.tflite.target import open_delegate_target
from tests.faults.judged import blamed, failing
from tests.faults.refused_delegates import CATCHING, REFUSED, THROWING, built

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)")
_RULES = tuple(f"NOM-{number:02}" for number in range(1, 7))
_FEW = (
    "claim-is-not-looked-at",
    "claim-throws",
    "oldest-is-given-up",
    "init-gives-up",
    "create-stays-locked",
)


def judged_by(name: str, folder: Path, rules: Sequence[str] = _RULES) -> dict[str, engine.Blamed]:
    return blamed(open_delegate_target([(str(built(name, folder)), {})], "auto", "fork", 5.0), rules)


@pytest.mark.parametrize("name", first(_FEW, 2))
def test_its_owner_finds_it(tmp_path: Path, name: str) -> None:
    owner = REFUSED[name].owner
    assert failing(judged_by(name, tmp_path, (owner,))) == {owner}


@pytest.mark.full
@pytest.mark.parametrize("name", REFUSED)
def test_no_other_rule_of_the_area_fails(tmp_path: Path, name: str) -> None:
    assert failing(judged_by(name, tmp_path)) == {REFUSED[name].owner}


@pytest.mark.full
def test_exceptions_that_are_caught_are_no_finding(tmp_path: Path) -> None:
    assert failing(judged_by(CATCHING, tmp_path)) == set()


@pytest.mark.full
def test_exceptions_that_are_caught_nowhere_are_of_one_rule(tmp_path: Path) -> None:
    assert failing(judged_by(THROWING, tmp_path, ("NOM-01", "NOM-02", "NOM-03"))) == {"NOM-02"}


def test_a_library_that_asks_for_nothing_by_operator_new_is_unsupported(tmp_path: Path) -> None:
    verdict = judged_by("init-gives-up", tmp_path, ("NOM-02",))["NOM-02"].verdict
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert "the delegate itself calls none of: operator new" in verdict.reason

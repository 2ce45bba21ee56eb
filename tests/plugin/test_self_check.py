"""A self-check that the process does not survive: whose doing it was."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from native import delegate_library

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.options import Options
from pytest_qnn.rules import catalogue
from pytest_qnn.session import judging
from pytest_qnn.tflite.target import open_delegate_target

FEW = Profile("few", in_process_examples=10, isolated_examples=10)


class Session:
    """What is asked of the session of a run."""

    options = Options(timeout=5.0)
    seed = 0


def compared(library: Path) -> Verdict:
    rule: Any = catalogue()["PART-06"]
    with closing(open_delegate_target([(str(library), {})], "auto", "fork", 5.0)) as target:
        verdict = judge(rule, target, FEW, 1)
        session: Any = Session()
        return judging._compared(session, rule, target, verdict)


def test_a_death_with_the_delegate_only_is_said_to_be_one(tmp_path: Path) -> None:
    verdict = compared(delegate_library(tmp_path, on_prepare="abort()"))
    assert (verdict.outcome, verdict.self_check) == (Outcome.CRASH, True)
    assert (
        verdict.note
        == "the process dies with this delegate only: with the reference in its place it does not"
    )


def test_a_death_with_the_reference_too_is_not_the_delegate_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = delegate_library(tmp_path, on_prepare="abort()")
    same = open_delegate_target([(str(library), {})], "auto", "fork", 5.0)
    monkeypatch.setattr(judging, "open_target", lambda *_: same)
    assert compared(library).note == "the process dies with the reference in the delegate's place, too"

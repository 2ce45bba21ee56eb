"""The matrix of hostile actions: each in a library of each half, in namespaces of its own."""

from __future__ import annotations

import functools
from collections import Counter
from typing import get_args

import pytest

from pytest_qnn.core.rule import Subject
from tests.hostile.matrix.action import SIDES, Kind, source
from tests.hostile.matrix.actions import ACTIONS
from tests.hostile.matrix.row import is_possible, judge


def test_each_kind_has_five_actions_at_least_and_all_together_sixty() -> None:
    kinds = Counter(action.kind for action in ACTIONS.values())
    assert set(kinds) == set(get_args(Kind))
    assert min(kinds.values()) >= 5
    assert kinds.total() >= 60


def test_each_action_has_its_moment_in_both_libraries() -> None:
    for side in SIDES:
        for action in ACTIONS.values():
            assert ("hostile();" in source(action, side)) is (action.moment not in {"load", "unload"})


@functools.cache
def _why_not() -> str:
    return is_possible()


@pytest.mark.full
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ACTIONS)
def test_row(name: str, side: Subject) -> None:
    """Once more where it is not as expected: on a busy machine a second may be too short for a case.

    Not one that did not end: it would take as long again.
    """
    if why := _why_not():
        pytest.skip(why)
    row = judge(name, side)
    if row.wrong and row.status is not None:
        row = judge(name, side)
    assert not row.wrong, "\n".join(row.wrong)

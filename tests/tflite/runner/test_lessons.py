"""What `tests/helpers/lessons.py` spares the tests: of these mutants is learned what is of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import cache

import pytest
from lessons import alike, lesson, lesson_of_reference

from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.tflite.target import DelegateTarget

reference = cache(lesson_of_reference)
_PARTS = 20


def test_it_is_said_of_mutants_that_there_are() -> None:
    for runtime, names in alike().items():
        assert runtime in PLACES["delegate"]
        assert names
        assert names <= table().keys()


@pytest.mark.full
@pytest.mark.parametrize("runtime", PLACES["delegate"])
@pytest.mark.parametrize("part", range(_PARTS))
def test_the_same_is_learned_of_these_mutants_as_of_the_reference(runtime: str, part: int) -> None:
    names: Sequence[str] = sorted(alike()[runtime])[part::_PARTS]
    for name in names:
        with closing(opened(table()[name], runtime)) as target:
            assert isinstance(target, DelegateTarget)
            assert lesson(target) == reference(runtime), name

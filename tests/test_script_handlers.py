"""Whoever adds a step to a script is told each place that must know it."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, get_args, get_type_hints

import pytest

from pytest_qnn.tflite.cases.effects import EFFECTS, THINGS, Part
from pytest_qnn.tflite.cases.script import CustomStep, Parallel, PlainStep, Repeat
from pytest_qnn.tflite.runner.script import GROUPS, HANDLERS

STEPS = get_args(PlainStep)
PLACES = {
    "HANDLERS of a module of pytest_qnn/tflite/runner": HANDLERS,
    "EFFECTS of pytest_qnn/tflite/cases/effects.py": EFFECTS,
}


def test_the_steps_are_all_there_are() -> None:
    assert set(get_args(CustomStep)) < set(STEPS)
    assert not {Repeat, Parallel} & set(STEPS)


@pytest.mark.parametrize("place", PLACES)
def test_each_step_is_known_in_each_place(place: str) -> None:
    missing = [f"{kind.__name__} is missing in {place}" for kind in STEPS if kind not in PLACES[place]]
    assert not missing
    assert set(PLACES[place]) == set(STEPS)


def test_each_step_has_one_handler_which_is_its_own() -> None:
    counts = Counter(kind for group in GROUPS for kind in group)
    assert {kind.__name__: count for kind, count in counts.items() if count > 1} == {}
    for kind, handler in HANDLERS.items():
        _, step = inspect.signature(handler).parameters
        assert get_type_hints(handler)[step] is kind, f"{handler.__name__} is no handler of {kind.__name__}"


@pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
def test_the_effects_of_a_step_name_all_its_fields_of_names_and_of_parts(kind: Any) -> None:
    effect = EFFECTS[kind]
    fields = set(kind.__struct_fields__)
    assert sorted(effect.names()) == sorted(fields.intersection(THINGS))
    assert sorted(effect.parts) == sorted(fields.intersection(get_args(Part)))

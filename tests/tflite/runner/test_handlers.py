"""Whoever adds a step to a script is told each place that must know it."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, get_args, get_type_hints

import msgspec
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


def numbers_without_bounds(field: Any, known: Any) -> list[str]:
    """Names of a field whose numbers or lengths have no bounds in its type."""
    if isinstance(known, msgspec.inspect.IntType):
        return [] if known.ge is not None and known.le is not None else [field]
    if isinstance(known, msgspec.inspect.VarTupleType):
        return [] if known.max_length is not None else [field]
    if isinstance(known, msgspec.inspect.UnionType):
        return [name for one in known.types for name in numbers_without_bounds(field, one)]
    return []


IN_CODE = {"AllocCustom.bytes", "Resize.shape", "Measure.like"}
"""AllocCustom.bytes: msgspec has no bounds beyond 63 bits. Resize: a shape beside the graph's operators."""


@pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
def test_each_number_of_a_step_has_bounds(kind: Any) -> None:
    information: Any = msgspec.inspect.type_info(kind)
    without = [name for one in information.fields for name in numbers_without_bounds(one.name, one.type)]
    missing = {f"{kind.__name__}.{name}" for name in without} - IN_CODE
    assert not missing, "bounds are missing in pytest_qnn/tflite/cases/script.py"

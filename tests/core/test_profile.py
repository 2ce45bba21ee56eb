from __future__ import annotations

import dataclasses

import pytest
from hypothesis import strategies as st
from minimal_doubles import made_up

from pytest_qnn.core.profile import PROFILES, Profile
from pytest_qnn.core.rule import Subject

FLAT = Profile("flat", in_process_examples=40, isolated_examples=10)
PLANNED = dataclasses.replace(FLAT, plan={"REG-99": 33})


@pytest.mark.parametrize(
    ("subject", "isolated", "examples"),
    [("memory", False, 40), ("memory", True, 10), ("delegate", False, 40), ("delegate", True, 40)],
)
def test_only_memory_cases_in_children_have_a_flat_number_of_their_own(
    subject: Subject, isolated: bool, examples: int
) -> None:
    assert FLAT.examples(made_up(st.none(), subject), isolated=isolated) == examples


@pytest.mark.parametrize("isolated", [True, False])
def test_a_planned_rule_gets_its_number_everywhere_and_in_whole(isolated: bool) -> None:
    rule = dataclasses.replace(made_up(st.none(), "memory"), weight=0.1)
    assert PLANNED.examples(rule, isolated=isolated) == 33


def test_a_weight_scales_flat_numbers_down_to_one() -> None:
    rule = dataclasses.replace(made_up(st.none(), "memory"), id="REG-98", weight=0.1)
    assert PLANNED.examples(rule, isolated=False) == 4
    assert PLANNED.examples(dataclasses.replace(rule, weight=0.01), isolated=True) == 1


@pytest.mark.parametrize(("name", "examples"), [("quick", (20, 5)), ("default", (100, 100))])
def test_flat_numbers_of_the_profiles(name: str, examples: tuple[int, int]) -> None:
    rule = made_up(st.none(), "memory")
    assert tuple(PROFILES[name].examples(rule, isolated=isolated) for isolated in (False, True)) == examples

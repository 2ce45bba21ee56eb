"""`--slice`: the parts of the full tests."""

from __future__ import annotations

from collections import Counter

from fast_run import slice_of

NAMES = [
    *(f"tests/a.py::test_many[{number}]" for number in range(45)),
    *(f"tests/b.py::test_few[{number}]" for number in range(3)),
    *(f"tests/c.py::test_{number}" for number in range(40)),
]


def test_each_test_is_in_one_part() -> None:
    parts = [slice_of(NAMES, number, 20) for number in range(20)]
    assert Counter(name for part in parts for name in part) == Counter(NAMES)


def test_what_one_function_is_made_into_is_spread_evenly() -> None:
    for number in range(20):
        own = Counter(name.partition("[")[0] for name in slice_of(NAMES, number, 20))
        assert own["tests/a.py::test_many"] in (2, 3)
        assert own["tests/b.py::test_few"] <= 1


def test_a_part_does_not_depend_on_the_order() -> None:
    assert slice_of(reversed(NAMES), 3, 20) == slice_of(NAMES, 3, 20)

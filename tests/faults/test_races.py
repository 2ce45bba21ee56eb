"""QTHR-06 finds mistakes of threading, in C and in the reference, and none where there is none.

All of them, with how long it took: `python -m benchmarks.races`, docs/measured/races.md.
"""

from __future__ import annotations

import platform
import shutil

import pytest
from fast_run import first, later

from benchmarks import races
from tests.faults import races as in_c

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the threads are of machine code for x86-64"),
]
SOON = ("answer-is-static", "file-is-static", "places-are-static", "device-is-busy", "race-freed-number")
"""Found in less than a second, where a minute is enough."""
LATE = ("binds-without-lock", "table-is-found-unfilled")
"""Found in some minutes and not in others, or not at all: see docs/measured/races.md."""


@pytest.mark.parametrize("name", first(SOON, 3))
def test_a_wide_window_is_found(name: str) -> None:
    assert races.searched(name, races.SECONDS, 1).found


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in races.names() if name not in (*SOON, *LATE)])
def test_a_mistake_is_found_within_a_few_minutes(name: str) -> None:
    # A minute is for a machine without other work: tests run beside others.
    assert races.searched(name, 4 * races.SECONDS, 1).found


@pytest.mark.parametrize("name", ["the example", later("reference"), later("locks-of-contexts")])
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    row = races.searched(name, 2.0, 1)
    assert (row.found, row.cases > 0) == ("", True)


@pytest.mark.full
@pytest.mark.parametrize("name", races.CONFORMING)
def test_nothing_is_found_in_half_a_minute(name: str) -> None:
    row = races.searched(name, races.SECONDS / 2, 2)
    assert (row.found, row.cases > 0) == ("", True)


def test_mistakes_are_of_threads_alone() -> None:
    assert len(in_c.RACES) >= 10
    assert len(races.names()) >= 25
    sources = [in_c.source(name) for name in in_c.RACES]
    assert not any(word in source for source in sources for word in ("sleep", "sched_yield", "pthread_yield"))

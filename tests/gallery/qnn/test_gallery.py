"""No rule accuses a conforming oddity, and each oddity does what is odd about it while it is judged."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from fast_run import turn

from benchmarks.gallery import judged
from tests.gallery.qnn import libraries
from tests.gallery.qnn import targets as gallery

_FEW, _SOME = "6 examples", "4 examples"
_WAITS = {"c-slow": "2 examples"}
"""Those that sleep in most calls: as many cases as the others have took ten minutes of one worker."""
"""All that the profile default has is `python -m benchmarks.gallery qnn`."""
_LIBRARIES = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")


def each(*marks: Any, parts: int = 1) -> list[Any]:
    """Every oddity, one in ``parts`` of them in the fast run; those that are C libraries need a compiler."""
    return [
        pytest.param(name, marks=(*marks, *_needs(name), *[pytest.mark.full] * (turn(name) % parts != 0)))
        for name in gallery.targets()
    ]


def _needs(name: str) -> list[pytest.MarkDecorator]:
    return [_LIBRARIES] if name in libraries.ABOUT else []


def test_there_are_so_many() -> None:
    assert len(gallery.targets()) >= 40
    assert len(libraries.ABOUT) >= 10
    assert all(all(about) for about in gallery.FREEDOMS.values())


@pytest.mark.parametrize("name", each(parts=4))
def test_the_rules_that_meet_its_freedom_do_not_accuse_it(name: str) -> None:
    wanted = set(gallery.tried_by(name))
    found = judged(gallery, ("qnn", name, _FEW, 1, 0), wanted)
    assert found.red == []
    met_by_others = sum(bool(finding.found_by) for finding in found.meant)
    assert sum(found.outcomes.values()) == len(wanted) + met_by_others
    assert found.met > 0


@pytest.mark.parametrize("name", each(pytest.mark.full))
def test_no_rule_accuses_it(name: str) -> None:
    found = judged(gallery, ("qnn", name, _WAITS.get(name, _SOME), 1, 0))
    assert found.red == []
    assert found.met > 0


@pytest.mark.full  # twelve seconds and more
@pytest.mark.parametrize(
    ("name", "rule"), [("gives-back-after-a-while", "QMG-09"), ("maps-while-it-executes", "QMG-12")]
)
def test_a_rule_that_accused_it_in_some_of_its_cases_passes_all_of_them(name: str, rule: str) -> None:
    """A few cases did not show it."""
    assert judged(gallery, ("qnn", name, "default", 1, 0), {rule}).outcomes == {"pass": 1}

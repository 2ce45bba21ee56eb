"""The oddities of QNN backends as targets, for the tests here and for ``python -m benchmarks.gallery``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping

from pytest_qnn.qnn.target import MemoryTarget
from tests.gallery.qnn import libraries, worker
from tests.gallery.qnn.oddity import ODDITIES, TIMES, Freedom

_TIMEOUT = 30.0
worker.load()
_ABOUT: dict[str, Freedom] = {name: about for name, (about, _) in ODDITIES.items()} | libraries.ABOUT


def targets() -> Mapping[str, Callable[[], MemoryTarget]]:
    """How each is opened, by name: those in Python in this process, the C libraries in children."""
    found: dict[str, Callable[[], MemoryTarget]] = {
        name: functools.partial(worker.opened, name, _TIMEOUT) for name in ODDITIES
    }
    return found | {name: functools.partial(libraries.opened, name, _TIMEOUT) for name in libraries.ABOUT}


def met(name: str) -> int:
    """How often the oddity did so far what only it does."""
    return TIMES[name] if name in ODDITIES else libraries.times(name)


def tried_by(name: str) -> tuple[str, ...]:
    """Rules whose cases meet the freedom."""
    return _ABOUT[name].tried_by


FREEDOMS: Mapping[str, tuple[str, str, str]] = {
    name: (about.freedom, about.source, about.seen) for name, about in _ABOUT.items()
}
"""By name: the freedom, its source, and what a client sees of it."""
MEANT: Mapping[str, Collection[str]] = {name: about.meant for name, about in _ABOUT.items()}
"""By name: rules of level SHOULD that the oddity breaks on purpose."""

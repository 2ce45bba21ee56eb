"""Threads that call the target at the same time: started together, paced, and what went wrong in them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from pytest_qnn.run.memory_state import State
from pytest_qnn.trace import StepSeen

Work = Callable[[], None]
"""What one thread does."""


class Failed(Exception):  # noqa: N818 - a finding, not an error of ours
    """A call that had to succeed did not; or the output was wrong (code 0)."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)
        self.found = (call, code)


def in_threads(works: list[Work]) -> list[tuple[str, int]]:
    """Carry out each in a thread of its own, all at once: what went wrong, in the order in which it did."""
    found: list[tuple[str, int]] = []
    gate = threading.Barrier(len(works))
    threads = [threading.Thread(target=_run, args=(work, gate, found), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _run(work: Work, gate: threading.Barrier, found: list[tuple[str, int]]) -> None:
    gate.wait()
    try:
        work()
    except Failed as failed:
        found.append(failed.found)


def call(state: State, name: str, *arguments: object) -> None:
    """Raise Failed unless the call succeeds."""
    code = state.client.call(name, *arguments)
    if code:
        raise Failed(name, code)


def create(state: State, name: str, *arguments: int | None) -> int:
    """The handle that the call gives. Raises Failed unless it succeeds."""
    code, value = state.client.create(name, *arguments)
    if code:
        raise Failed(name, code)
    return value


class Pace:
    """Lets threads begin each round together, so that every round is a race and not the first alone."""

    def __init__(self, threads: int) -> None:
        self._gate = threading.Barrier(threads)

    def together(self) -> None:
        """Wait for the others, unless one of them has failed."""
        with contextlib.suppress(threading.BrokenBarrierError):
            self._gate.wait()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """What fails here keeps nobody waiting."""
        try:
            yield
        except BaseException:
            self._gate.abort()
            raise


def seen_of(found: list[tuple[str, int]], counts: dict[str, int]) -> StepSeen:
    """The calls that went wrong, the first of them as the code."""
    return StepSeen(code=found[0][1] if found else 0, calls=tuple(sorted(found)), counts=counts)

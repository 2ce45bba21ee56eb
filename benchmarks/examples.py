"""Examples per second and core: delegate cases of 20 nodes, from the draw to the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from benchmarks.delegates import cases, judged
from benchmarks.timing import Effort, Figure, Row, in_children, repeated
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

NODES = 20
RUNTIME = "tflite_runtime"
_CASES = 100
"""Of one repetition."""


def rows(effort: Effort) -> Iterator[Row]:
    """Milliseconds of an example, and examples per second: in process, and in children."""
    with closing(target("off")) as opened:
        figure = repeated(lambda number: own(opened, number), effort, _CASES)
        yield from _both("in process", figure)
        figure = repeated(lambda number: by_hypothesis(opened, number), effort, _CASES)
        yield from _both("in process, Hypothesis", figure)
    yield from _both("isolated, ten to a child", in_children(_forked, own, effort, _CASES))
    yield from _both("isolated, alone", in_children(lambda: _Alone(_forked()), own, effort, _CASES))


def own(target: Any, number: int, count: int = _CASES) -> None:
    """Judge a batch of cases, which the engine draws."""
    judged(target, cases(NODES, number), count)


def by_hypothesis(target: Any, number: int) -> None:
    """The same batch, of a strategy that the engine cannot draw without Hypothesis."""
    judged(target, cases(NODES, number).map(lambda case: case), _CASES)


def _both(subject: str, figure: Figure) -> Iterator[Row]:
    yield Row(subject, "example", "ms", figure.times(1000))
    yield Row(subject, "examples", "a second", figure.inverse())


def target(mode: str) -> DelegateTarget:
    return open_delegate_target([("reference", {})], RUNTIME, mode, 60.0)


def _forked() -> DelegateTarget:
    return target("fork")


class _Alone:
    """A target whose cases are alone in their children."""

    def __init__(self, target: DelegateTarget) -> None:
        self._target = target

    def close(self) -> None:
        self._target.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def run_all(self, some: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        for case in some:
            yield self._target.run(case), True

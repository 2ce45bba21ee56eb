"""Timing and tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def median_us(function: Callable[[T], object], items: Sequence[T]) -> float:
    """Median microseconds of one call, each item once after a warm-up with the first."""
    function(items[0])
    times = []
    for item in items:
        started = time.perf_counter()
        function(item)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def mean_us(function: Callable[[], object], examples: int) -> float:
    """Microseconds per example of a function that carries out ``examples`` of them."""
    started = time.perf_counter()
    function()
    return (time.perf_counter() - started) / examples * 1e6


def drawn(strategy: SearchStrategy[T], count: int) -> list[T]:
    """``count`` examples, as the engine draws them."""
    found: list[T] = []

    @hypothesis.seed(1)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def draw(example: T) -> None:
        found.append(example)

    draw()
    return found


def table(out: TextIO, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print an aligned table."""
    cells = [list(map(str, head)), *([format_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        out.write("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + "\n")
    out.write("\n")
    out.flush()


def format_cell(cell: object) -> str:
    """Floats as whole microseconds or two-digit ratios."""
    if isinstance(cell, float):
        return f"{cell:.0f}" if cell >= 10 else f"{cell:.2f}"
    return str(cell)

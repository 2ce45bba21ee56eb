"""Isolation: what a case costs in a child, against the same case in this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.delegates import cases
from benchmarks.memory import sequence
from benchmarks.timing import Effort, Figure, Row, drawn, in_children, repeated
from pytest_qnn.isolation.start import supervisors
from pytest_qnn.isolation.warm_start import SWITCH
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.tflite.target import open_delegate_target

NODES = 20
STEPS = 20
RUNTIME = "tflite_runtime"
_EXAMPLE = Path(__file__).parents[1] / "examples" / "delegate_repo" / "src"
_TIMEOUT = 60.0
_CASES = 80
"""More than the runner remembers outputs of."""
_SPAWNED = 2
"""Of them in mode spawn, where a case costs as much as a start of Python."""

Open = Callable[[str], Any]
"""From a mode of isolation to a target."""


def rows(effort: Effort) -> Iterator[Row]:
    """Milliseconds of a case, and of the ones in children over the one in this process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, open_target, some in _subjects(Path(folder), _CASES):
            here = _figure(open_target, "off", some, effort)
            yield Row(name, "in process", "ms", here.times(1000))
            for mode in ("fork", "cold fork", "spawn"):
                fewer = some[:_SPAWNED] if mode == "spawn" else some
                figure = _figure(open_target, mode, fewer, effort)
                yield Row(name, mode, "ms", figure.times(1000))
                yield Row(name, f"{mode}/in process", "ratio", figure.over(here))
            yield from _of_opening(name, open_target, effort)


def _of_opening(name: str, open_target: Open, effort: Effort) -> Iterator[Row]:
    """What it takes to open a target whose cases run in children, and to close it."""
    for how, switch in (("forked", "1"), ("fresh", "0")):
        os.environ[supervisors.SWITCH] = switch
        try:
            figure = repeated(lambda _: open_target("fork").close(), effort)
        finally:
            os.environ.pop(supervisors.SWITCH)
        yield Row(name, f"opened, {how}", "ms", figure.times(1000))


def _subjects(folder: Path, count: int) -> Iterator[tuple[str, Open, Sequence[Any]]]:
    graphs = drawn(cases(NODES), count)
    yield "reference delegate", lambda mode: _delegate("reference", mode), graphs
    if library := built_delegate(folder):
        yield "native delegate", lambda mode: _delegate(library, mode), graphs
    memory = [sequence(STEPS)] * count
    yield "reference memory", lambda mode: open_memory_target("reference", "emulated", mode, _TIMEOUT), memory


def _delegate(name: str, mode: str) -> Any:
    return open_delegate_target([(name, {})], RUNTIME, mode, _TIMEOUT)


def built_delegate(folder: Path) -> str:
    """The example repository's delegate as a library; empty without a C compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return ""
    library = folder / "libarithmetic.so"
    flags = ("-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
    subprocess.run([compiler, *flags, "-o", library, _EXAMPLE / "arithmetic_delegate.c"], check=True)
    return str(library)


def _figure(open_target: Open, mode: str, some: Sequence[Any], effort: Effort) -> Figure:
    """Of a case. A cold fork is made at the request, without a warm start."""

    def run(target: Any, _: int) -> None:
        for case in some:
            death = target.run(case).death
            if death is not None:
                raise RuntimeError(f"a case of the benchmark died: {death.detail}")

    if mode.startswith("cold"):
        os.environ[SWITCH] = "0"
    try:
        return in_children(lambda: open_target(mode.removeprefix("cold ")), run, effort, len(some))
    finally:
        os.environ.pop(SWITCH, None)

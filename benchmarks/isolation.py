"""Isolation: what a case costs in a child, against the same case in this process."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.delegates import cases
from benchmarks.memory import sequence
from benchmarks.timing import drawn, median_us, table
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.tflite.target import open_delegate_target

NODES = 20
STEPS = 20
RUNTIME = "tflite_runtime"
_EXAMPLE = Path(__file__).parents[1] / "examples" / "delegate_repo" / "src"
_TIMEOUT = 60.0

Open = Callable[[str], Any]
"""From a mode of isolation to a target."""


def report(out: TextIO, *, quick: bool) -> None:
    """Print the table."""
    head = ("target", "off", "fork", "spawn", "fork-off", "spawn-off", "fork/off", "spawn/off", "forked/s")
    out.write(f"isolated cases one after another, milliseconds each (median): {NODES} nodes, {STEPS} steps\n")
    count = 100 if quick else 500
    with tempfile.TemporaryDirectory() as folder:
        table(out, head, (_row(*subject, quick=quick) for subject in _subjects(Path(folder), count)))


def _subjects(folder: Path, count: int) -> Iterator[tuple[str, Open, Sequence[Any]]]:
    graphs = drawn(cases(NODES), count)
    yield "reference delegate", lambda mode: _delegate("reference", mode), graphs
    if library := _built(folder):
        yield "native delegate", lambda mode: _delegate(library, mode), graphs
    memory = [sequence(STEPS)] * count
    yield "reference memory", lambda mode: open_memory_target("reference", "emulated", mode, _TIMEOUT), memory


def _delegate(name: str, mode: str) -> Any:
    return open_delegate_target([(name, {})], RUNTIME, mode, _TIMEOUT)


def _built(folder: Path) -> str:
    """The example repository's delegate as a library; empty without a C compiler."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return ""
    library = folder / "libarithmetic.so"
    flags = ("-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
    subprocess.run([compiler, *flags, "-o", library, _EXAMPLE / "arithmetic_delegate.c"], check=True)
    return str(library)


def _row(name: str, open_target: Open, some: Sequence[Any], *, quick: bool) -> tuple[object, ...]:
    here = _milliseconds(open_target, "off", some)
    forked = _milliseconds(open_target, "fork", some)
    spawned = _milliseconds(open_target, "spawn", some[: 5 if quick else 20])
    more = (forked - here, spawned - here, forked / here, spawned / here, 1000 / forked)
    return name, here, forked, spawned, *more


def _milliseconds(open_target: Open, mode: str, some: Sequence[Any]) -> float:
    def run(case: Any) -> None:
        death = target.run(case).death
        if death is not None:
            raise RuntimeError(f"a case of the benchmark died: {death.detail}")

    with contextlib.closing(open_target(mode)) as target:
        return median_us(run, some) / 1000

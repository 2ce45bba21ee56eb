"""Isolation: what a case costs in a child, against the same case in this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.delegates import cases
from benchmarks.memory import sequence
from benchmarks.timing import drawn, median_us, table
from pytest_qnn.isolation.warm_start import SWITCH
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
    head = ("target", "off", "fork", "cold fork", "spawn", "fork/off", "spawn/off", "forked/s")
    head += ("CPU off", "CPU fork", "CPU cold fork")
    out.write(
        f"isolated cases one after another, milliseconds each ({NODES} nodes, {STEPS} steps): medians of\n"
        "wall time, means of processor time in all processes; a cold fork is made at the request, without a\n"
        "warm start\n"
    )
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
    here, here_cpu = _milliseconds(open_target, "off", some)
    forked, forked_cpu = _milliseconds(open_target, "fork", some)
    os.environ[SWITCH] = "0"
    try:
        cold, cold_cpu = _milliseconds(open_target, "fork", some)
    finally:
        del os.environ[SWITCH]
    spawned, _ = _milliseconds(open_target, "spawn", some[: 5 if quick else 20])
    ratios = (forked / here, spawned / here, 1000 / forked)
    return name, here, forked, cold, spawned, *ratios, here_cpu, forked_cpu, cold_cpu


def _cpu() -> float:
    """Seconds of processor time of this process, and of children that have ended."""
    return sum(os.times()[:4])


def _milliseconds(open_target: Open, mode: str, some: Sequence[Any]) -> tuple[float, float]:
    """Wall time (median) and processor time (mean) of a case; what opening the target costs is taken off."""

    def run(case: Any) -> None:
        death = target.run(case).death
        if death is not None:
            raise RuntimeError(f"a case of the benchmark died: {death.detail}")

    started = _cpu()
    open_target(mode).close()
    opened = _cpu()
    with contextlib.closing(open_target(mode)) as target:
        wall = median_us(run, some) / 1000
    return wall, ((_cpu() - opened) - (opened - started)) / len(some) * 1000

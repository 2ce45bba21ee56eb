"""Instructions of an example: what load does not move. Counted by ``perf stat``, or else by callgrind.

Each figure is the difference of two processes that do the same work, one of them more often, divided by how
much more often: what starting, importing and opening a target cost is in both. As a process:
``python -m benchmarks.instructions WORK TIMES``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

from benchmarks.timing import Effort, Row

FEW, MANY = 20, 60
_TOTAL = {"perf": re.compile(r"^(\d+),", re.MULTILINE), "valgrind": re.compile(r"Collected : (\d+)")}


def rows(effort: Effort) -> Iterator[Row]:
    """Thousands of user-space instructions; none where neither tool works here."""
    del effort
    for counter, command in _counters():
        if _counted(counter, [*command, sys.executable, "-c", ""]) is not None:
            break
    else:
        return
    for work in WORK:
        own = [*command, sys.executable, "-m", "benchmarks.instructions", work]
        few, many = (_counted(counter, [*own, str(times)]) for times in (FEW, MANY))
        if few is None or many is None:
            raise RuntimeError(f"{' '.join(own)} counted nothing")
        yield Row(work, f"by {counter}", "1000 instr.", value=(many - few) / (MANY - FEW) / 1000)


def _counters() -> Iterator[tuple[str, list[str]]]:
    if shutil.which("perf"):
        yield "perf", ["perf", "stat", "-x,", "-e", "instructions:u"]
    if shutil.which("valgrind"):
        yield "valgrind", ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]


def _counted(counter: str, command: list[str]) -> int | None:
    """Instructions of a process; None: the counter does not work on this machine."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = _TOTAL[counter].search(done.stderr)
    return None if found is None or done.returncode else int(found[1])


def _example(times: int) -> None:
    from benchmarks import examples  # noqa: PLC0415 - one work, one half's imports

    with closing(examples.target("off")) as target:
        examples.own(target, 1, times)


def _sequence(times: int) -> None:
    from benchmarks import memory  # noqa: PLC0415
    from pytest_qnn.qnn.target import open_memory_target  # noqa: PLC0415

    with closing(open_memory_target("reference", "emulated", "off", 60.0)) as target:
        for _ in range(times):
            target.run(memory.sequence(20))


WORK: dict[str, Callable[[int], None]] = {"example of 20 nodes": _example, "run of 20 steps": _sequence}


if __name__ == "__main__":
    WORK[sys.argv[1]](int(sys.argv[2]))

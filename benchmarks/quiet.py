"""How often a measured rule accuses a conforming target on a busy machine: docs/measured/measured-rules.md.

python -m benchmarks.quiet [--runs N] [--load K] [--seed S] [--rules REG-01,...] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import machine
from benchmarks.isolation import built_delegate
from pytest_qnn import native
from pytest_qnn.core import engine
from pytest_qnn.core.engine.checking import died
from pytest_qnn.core.search import Search
from pytest_qnn.core.verdict import Measured, Unsupported, Violation
from pytest_qnn.isolation.observe.cpu_time import usage
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target

MEASURED = {
    "delegate": (
        *("LEAK-01", "LEAK-02", "LEAK-03", "LEAK-04"),
        *("OWN-02", "OWN-03", "LIFE-05", "ABI-08", "RSZ-05", "THR-05"),
    ),
    "memory": tuple(f"QLEAK-0{number}" for number in (1, 2, 3, 5, 6, 7, 8)),
}
"""Rules that raise `Measured`, by half."""
RUNTIMES = ("tflite_runtime", "ai_edge_litert")
_TIMEOUT = 60.0
HEAD = f"{'rule':9} {'target':34}{'runs':>7}{'examined':>10}{'first':>7}{'findings':>10}"


@dataclasses.dataclass
class Count:
    """What runs of one rule on one conforming target gave."""

    rule: str
    target: str
    runs: int = 0
    examined: int = 0
    """Runs in which the rule looked at something."""
    first: int = 0
    """Runs that measured more than there may be, before fresh processes were asked."""
    findings: int = 0
    """Those in which each fresh process measured so too: false accusations."""
    others: list[str] = dataclasses.field(default_factory=list)
    """Violations of another kind: defects of this suite or of the target."""

    def line(self) -> str:
        """A row of the table."""
        numbers = f"{self.runs:>7}{self.examined:>10}{self.first:>7}{self.findings:>10}"
        return f"{self.rule:9} {self.target:34}{numbers}" + "".join(f"\n  {text}" for text in self.others)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quiet", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="cases in all, spread evenly")
    parser.add_argument("--load", type=int, default=4, metavar="K", help="busy loops beside")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rules", default="", help="of these only, separated by commas")
    parser.add_argument("--cpu-minutes", type=float, default=0.0, help="stop after so many; 0: never")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    chosen = set(filter(None, options.rules.split(",")))
    facts = machine.facts()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    with tempfile.TemporaryDirectory() as folder, busy(options.load) as loops:
        clock = functools.partial(_cpu, loops)
        counts = _measure(Path(folder), chosen, options.runs, options.seed, clock, options.cpu_minutes * 60)
        spent, load = clock(), usage(loops).cpu
    print(HEAD)
    for count in counts:
        print(count.line())
    total = sum(count.runs for count in counts)
    found = sum(count.findings for count in counts)
    took = f"{spent:.0f} s of processor time, and {load:.0f} s of the loops"
    print(f"{total} runs, {found} false findings, {took}")
    print(f"load at the end: {machine.facts()['load']}")
    if options.json:
        data = {"machine": facts, "load": options.load, "counts": list(map(dataclasses.asdict, counts))}
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(data)) + b"\n")


def _measure(
    folder: Path, chosen: set[str], runs: int, seed: int, clock: Callable[[], float], seconds: float
) -> list[Count]:
    """One case of each pair of rule and target by turns, so that an early stop leaves even numbers."""
    rules = catalogue()
    counts: list[Count] = []
    with contextlib.ExitStack() as closing:
        turns: list[Iterator[None]] = []
        for name, half, target in _targets(folder):
            closing.callback(target.close)
            for rule_id in MEASURED[half]:
                if chosen and rule_id not in chosen:
                    continue
                count = Count(rule_id, name)
                counts.append(count)
                turns.append(_runs(rules[rule_id], target, count, seed, runs))
        for number, turn in zip(range(runs), itertools.cycle(turns), strict=False):
            if seconds and clock() > seconds:
                print(f"stopped after {number} of {runs} runs", flush=True)
                break
            next(turn)
    return counts


def _targets(folder: Path) -> Iterator[tuple[str, str, Any]]:
    """Name, half and target of each conforming target: the references, and libraries judged in children."""
    backend = str(native.build(folder).backend)
    yield "native backend", "memory", open_memory_target(backend, "emulated", "auto", _TIMEOUT)
    yield "reference backend", "memory", open_memory_target("reference", "emulated", "auto", _TIMEOUT)
    library = built_delegate(folder) if shutil.which("gcc") else ""
    for runtime, name in itertools.product(RUNTIMES, filter(None, (library, "reference"))):
        target = open_delegate_target([(name, {})], runtime, "auto", _TIMEOUT)
        yield f"{'native' if name == library else name}, {runtime}", "delegate", target


def _runs(rule: Any, target: Any, count: Count, seed: int, most: int) -> Iterator[None]:
    for case in itertools.chain.from_iterable(
        Search(rule.cases(target.facts), 40, seed + turn) for turn in range(most)
    ):
        _run(rule, target, case, count)
        yield


def _run(rule: Any, target: Any, case: Any, count: Count) -> None:
    count.runs += 1
    found = _judged(rule, case, target.run(case))
    if isinstance(found, Measured):
        count.first += 1
        print(f"{rule.id} on {count.target}: {found}", flush=True)
        again = [_judged(rule, case, target.run_fresh(case)) for _ in range(engine.FRESH_RUNS)]
        count.findings += all(isinstance(one, Measured) for one in again)
    elif isinstance(found, Violation):
        count.others.append(str(found))
    elif isinstance(found, int):
        count.examined += bool(found)


def _judged(rule: Any, case: Any, trace: Any) -> Violation | int:
    """What the rule says of the trace: a violation, or how many things it examined."""
    if trace.death is not None:
        return died(trace.death)
    try:
        return int(rule.check(case, trace).count)
    except Violation as violation:
        return violation
    except Unsupported:
        return 0


@contextlib.contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """So many processes that do nothing but use a processor, as long as the block runs."""
    loops = [multiprocessing.Process(target=_loop, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for loop in loops:
        loop.start()
    try:
        yield [loop.pid for loop in loops if loop.pid]
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def _loop(parent: int) -> None:
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


def _cpu(apart: Collection[int] = ()) -> float:
    """Seconds of processor time of this process and all that it started, but for the processes ``apart``."""
    ours = usage([os.getpid()]).cpu
    return ours - usage(apart).cpu


if __name__ == "__main__":
    main()

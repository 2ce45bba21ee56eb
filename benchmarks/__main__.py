"""What the suite costs, so that a busy machine can be compared with itself: docs/measured/benchmarks.md.

python -m benchmarks [--quick] [--only PART] [--json FILE] [--peer PYTHON]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import (
    delegates,
    examples,
    instructions,
    isolation,
    machine,
    memory,
    models,
    peer,
    rss,
    start,
    suite,
    visits,
)
from benchmarks.timing import FULL, QUICK, Effort, Row

Part = Callable[[Effort], Iterator[Row]]

PARTS: dict[str, Part] = {
    "models": models.rows,
    "visits": visits.rows,
    "examples": examples.rows,
    "memory": memory.rows,
    "delegates": delegates.rows,
    "start": start.rows,
    "isolation": isolation.rows,
    "rss": rss.rows,
    "suite": suite.rows,
    "instructions": instructions.rows,
}
"""The cheap ones first."""
NOT_QUICK = {"instructions"}
"""Only where they are asked for, with --quick: callgrind takes a minute and a half."""

HEAD = f"{'':59}{'unit':>14}{'n':>4}{'CPU min':>10}{'median':>10}{'wall min':>10}{'median':>10}"


def line(part: str, row: Row) -> str:
    """A row as text; a row without a figure has its value in the first column of numbers."""
    head = f"{part:13}{row.subject:26}{row.what:20}{row.unit:>14}"
    if row.figure is None:
        return f"{head}{'':4}{_number(row.value or 0.0)}"
    figure = row.figure
    numbers = (figure.cpu.minimum, figure.cpu.median, figure.wall.minimum, figure.wall.median)
    return f"{head}{figure.repetitions:>4}{''.join(map(_number, numbers))}"


def _number(value: float) -> str:
    return f"{value:>10.0f}" if value >= 100 else f"{value:>10.1f}" if value >= 10 else f"{value:>10.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=[*PARTS, "peer"], help="one part only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, with the machine")
    parser.add_argument("--peer", metavar="PYTHON", help="of an environment with NNSmith: measure it as well")
    options = parser.parse_args()
    if options.only == "peer" and not options.peer:
        parser.error("--only peer needs --peer PYTHON")
    effort = QUICK if options.quick else FULL
    parts = dict(PARTS)
    if options.peer:
        parts["peer"] = lambda effort: peer.rows(effort, options.peer)
    chosen = {
        name: rows
        for name, rows in parts.items()
        if name == options.only or not (options.only or (options.quick and name in NOT_QUICK))
    }
    before = machine.facts()
    print("\n".join(f"{name}: {value}" for name, value in before.items()))
    print(HEAD, flush=True)
    found: list[dict[str, Any]] = []
    try:
        finished = [_finished(name, rows(effort), found) for name, rows in chosen.items()]
    finally:
        after = machine.facts()["load"]
        print(f"load at the end: {after}")
        if options.json:
            data = {"machine": before, "load_at_end": after, "arguments": sys.argv[1:], "rows": found}
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(data)) + b"\n")
    sys.exit(not all(finished))


def _finished(name: str, rows: Iterator[Row], found: list[dict[str, Any]]) -> bool:
    """Print the rows, and add them to ``found`` as data; after a part that fails, the others go on."""
    try:
        for row in rows:
            print(line(name, row), flush=True)
            found.append({"part": name, **msgspec.to_builtins(row)})
    except RuntimeError as error:
        print(f"{name} failed: {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    main()

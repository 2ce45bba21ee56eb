"""``python -m pytest_qnn.mutants``: the kill table, the plan of examples, and the plan's proof."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from pytest_qnn import effort, mutants
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.mutants import LIMIT, SEEDS, Kill, planning, proof
from pytest_qnn.mutants.document import SUBJECTS, document

_WRITTEN_EACH = 20.0
"""Seconds."""
_IDLE = 0.7
"""Of the system's load within the last minute, at most; our own processes have not begun."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print or update; 1 if a rule is weak, or falls short in the proof."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.seeds is not None and options.seeds < 1:
        parser.error("--seeds: at least one is needed")
    if options.jobs < 1:
        parser.error("--jobs: at least one is needed")
    only = list(options.only)
    if options.stale:
        _confirm(options)
        known = effort.read(options.plan)
        only += planning.stale(known) + planning.unconfirmed(known)
        if not only and not planning.gone(known):
            sys.stderr.write("the plan is not stale\n")
            return 0
    wanted = mutants.chosen(only, options.subject) if only or not options.stale else []
    if not wanted and not options.stale:
        parser.error("no mutant is of this name with this rule")
    if (load := os.getloadavg()[0]) > _IDLE:
        # The plan of thread-batches was 40 examples beside other work, of which a proof missed 11 of 100
        # searches; on the idle machine it was 20, and nothing was missed.
        sys.stderr.write(
            f"the machine is busy (load {load:.1f}): faults that need two threads at once may be found later "
            "than on an idle one\n"
        )
    return _prove(options, wanted) if options.proof else _measure(options, wanted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pytest_qnn.mutants", description=mutants.__doc__)
    add = parser.add_argument
    add("--subject", choices=sorted(SUBJECTS), default="", help="one half of the catalogue")
    add("--seeds", type=int, metavar="N", help=f"default: {SEEDS}; for a proof {proof.SEEDS}")
    add("--limit", type=int, default=LIMIT, metavar="N", help=f"examples of each search; default: {LIMIT}")
    add("--only", action="append", default=[], metavar="NAME/RULE", help="NAME, /RULE or both; repeatable")
    add("--stale", action="store_true", help="what has changed since the plan was made")
    add("--jobs", type=int, default=1, metavar="N", help="processes; default: 1")
    add(
        "--update",
        type=Path,
        metavar="FILE",
        help="write into this table, and into the plan, not to stdout; rows of other pairs stay",
    )
    add("--plan", type=Path, default=effort.PLAN, metavar="FILE", help="the plan; default: the package's")
    add(
        "--proof",
        type=Path,
        metavar="FILE",
        help="try the plan on other seeds, and print the result: what they give is appended to this file, "
        "and what is there already is not tried again",
    )
    add("--slice", metavar="K/N", default="0/1", help="of a proof: one of N parts")
    add("--minutes", type=float, metavar="M", help="of a proof: CPU time after which nothing new is begun")
    return parser


def _measure(options: argparse.Namespace, wanted: Sequence[tuple[Mutant, list[str]]]) -> int:
    seeds = options.seeds or SEEDS
    kills: list[Kill] = []
    written = time.monotonic()
    try:
        # The runtimes of a mutant make one row: what is written holds all of them.
        for _, places in groupby(mutants.measure(wanted, seeds, options.limit, options.jobs), _mutant):
            kills += [_reported(kill) for kill in places]
            if options.update and time.monotonic() > written + _WRITTEN_EACH:
                _update(options, seeds, kills)
                written = time.monotonic()
    finally:
        if options.update:
            _update(options, seeds, kills)
    if not options.update:
        sys.stdout.write(document(kills, seeds, ""))
    weak = [kill for kill in kills if kill.weak]
    sys.stderr.write("".join(f"weak: {kill.line()}\n" for kill in weak))
    return 1 if weak else 0


def _confirm(options: argparse.Namespace) -> None:
    """Of pairs for which only controls have changed the first seed is tried; what gives the same holds."""
    known = effort.read(options.plan)
    if not options.update or not (words := planning.unconfirmed(known)):
        return
    wanted = mutants.chosen(words, options.subject)
    kills = [_reported(kill) for kill in mutants.measure(wanted, 1, options.limit, options.jobs)]
    options.plan.write_text(planning.text(planning.confirmed(known, kills)))


def _reported(kill: Kill) -> Kill:
    sys.stderr.write(f"{kill.line()}\n")
    return kill


def _mutant(kill: Kill) -> str:
    return kill.mutant.name


def _update(options: argparse.Namespace, seeds: int, kills: Sequence[Kill]) -> None:
    """Write the table and the plan; a measurement that is stopped goes on with ``--stale``."""
    known = options.update.read_text() if options.update.exists() else ""
    options.update.write_text(document(kills, seeds, known))
    options.plan.write_text(planning.text(planning.updated(effort.read(options.plan), kills)))


def _prove(options: argparse.Namespace, wanted: Sequence[tuple[Mutant, list[str]]]) -> int:
    plan = effort.read(options.plan)
    seeds = options.seeds or proof.SEEDS
    tasks = proof.tasks(plan, wanted, seeds, options.slice)
    proof.run(options.proof, tasks, options.jobs, options.minutes)
    result = proof.result(options.proof, tasks, plan)
    sys.stdout.write(result.text())
    return 1 if result.short else 0


if __name__ == "__main__":
    # Ended as by Ctrl-C: its processes end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())

"""The kill table: how soon each rule finds the mutants that it must find.

``python -m pytest_qnn.mutants`` measures it; docs/mutants.md is what it printed last.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from pytest_qnn.core.engine import first_failure
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.profile import PROFILES
from pytest_qnn.qnn.mutants import table as qnn_mutants
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.mutants import table as delegate_mutants
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

RUNTIMES = ("tflite_runtime", "ai_edge_litert")
REFERENCE = "reference"
"""What memory mutants run on: they are copies of the reference backend."""
PLACES = {"delegate": RUNTIMES, "memory": (REFERENCE,)}
"""By subject: where a mutant can be judged."""
SEEDS = 5
MOST = 20
"""Examples by which a rule should have found its mutant in the median."""
_TIMEOUT = 10.0

_HEAD = """\
# Mutants

Written by `python -m pytest_qnn.mutants > docs/mutants.md`. A mutant is a copy of the reference with exactly
one fault; the rules beside it must find it. The numbers are the examples (cases that were run) to the first
kill, as the median of {seeds} seeds in the profile `{profile}`; delegates are measured on both runtimes.
In **bold**: a median above {most}, and a rule that missed its mutant with some of the seeds.
"""
_ROW = re.compile(r"^\| `([\w-]+)` \| .* \| ([A-Z]+-\d+) \|.*\n", re.MULTILINE)
"""A row of the table: mutant and rule."""
_SUBJECTS = {"delegate": "TensorFlow Lite delegates", "memory": "QNN memory"}
_COLUMNS = {"delegate": ("2.14", "2.3"), "memory": ("examples",)}


def table() -> dict[str, Mutant]:
    """Every mutant of both halves, by name."""
    return qnn_mutants() | delegate_mutants()


@dataclasses.dataclass(frozen=True)
class Kill:
    """One rule on one mutant in one place."""

    mutant: Mutant
    rule: str
    place: str
    """The runtime; `REFERENCE` for memory."""
    examples: tuple[int | None, ...]
    """By seed: cases run up to the first violation; None: there was none."""
    seconds: float = 0.0
    """What measuring took."""

    @property
    def missed(self) -> int:
        """Seeds with which the rule did not find the mutant."""
        return self.examples.count(None)

    @property
    def median(self) -> float:
        """Examples to the first kill; infinite where most seeds find nothing."""
        return statistics.median(float("inf") if count is None else count for count in self.examples)

    @property
    def weak(self) -> bool:
        """The strategy of the rule is to be strengthened."""
        return bool(self.missed) or self.median > MOST

    def cell(self) -> str:
        """What the table says."""
        if self.missed:
            return f"**missed {self.missed} of {len(self.examples)}**"
        return f"**{self.median:g}**" if self.weak else f"{self.median:g}"

    def line(self) -> str:
        """Every seed's number, for the progress output."""
        counts = " ".join("-" if count is None else str(count) for count in self.examples)
        return f"{self.mutant.name}/{self.rule} on {self.place}: {counts} ({self.seconds:.1f} s)"


def measure(mutant: Mutant, rules: Iterable[str], seeds: int, profile: str) -> Iterator[Kill]:
    """Measure a mutant in all its places."""
    for place in PLACES[mutant.subject]:
        with closing(opened(mutant, place)) as target:
            for rule_id in rules:
                started = time.perf_counter()
                found = [
                    first_failure(catalogue()[rule_id], target, PROFILES[profile], seed)
                    for seed in range(1, seeds + 1)
                ]
                counts = [None if each is None else each.examples for each in found]
                yield Kill(mutant, rule_id, place, tuple(counts), time.perf_counter() - started)


def opened(mutant: Mutant, place: str) -> DelegateTarget | MemoryTarget:
    """The mutant as a target, to be closed; one whose fault may end its process is run in children."""
    spec = f"mutant:{mutant.name}"
    sandbox = "fork" if mutant.deadly else "auto"
    if mutant.subject == "delegate":
        return open_delegate_target([(spec, {})], place, sandbox, mutant.timeout)
    return open_memory_target(spec, "emulated", sandbox, _TIMEOUT)


def chosen(only: Sequence[str], subject: str) -> list[tuple[Mutant, list[str]]]:
    """The mutants with their rules that the words of ``--only`` name (none: all), those of one half first.

    Each word is ``NAME``, ``/RULE`` or ``NAME/RULE``.
    """
    pairs = [tuple(word.partition("/")[::2]) for word in only] or [("", "")]
    found = []
    for mutant in sorted(table().values(), key=lambda mutant: (mutant.subject, mutant.kills, mutant.name)):
        rules = [
            rule
            for rule in mutant.kills
            if any(name in ("", mutant.name) and wanted in ("", rule) for name, wanted in pairs)
        ]
        if rules and subject in ("", mutant.subject):
            found.append((mutant, rules))
    return found


def document(kills: Sequence[Kill], seeds: int, profile: str, known: str = "") -> str:
    """The table as Markdown.

    Args:
        kills: what was measured.
        seeds: how many seeds each pair was measured with.
        profile: the profile of the measurement.
        known: an earlier table, whose rows stay for the pairs that were not measured.
    """
    rows = {match.group(1, 2): match[0] for match in _ROW.finditer(known)}
    for pair, row in itertools.groupby(kills, key=lambda kill: (kill.mutant.name, kill.rule)):
        rows[pair] = _row(list(row))
    parts = [_HEAD.format(seeds=seeds, profile=profile, most=MOST)]
    for subject, of_subject in itertools.groupby(chosen((), ""), key=lambda pair: pair[0].subject):
        own = [rows.get((mutant.name, rule), "") for mutant, rules in of_subject for rule in rules]
        columns = ("mutant", "fault", "rule", *_COLUMNS[subject])
        head = f"\n## {_SUBJECTS[subject]}\n\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
        parts += [head, *own] if any(own) else []
    return "".join(parts)


def _row(row: list[Kill]) -> str:
    mutant = row[0].mutant
    cells = [f"`{mutant.name}`", mutant.fault, row[0].rule, *(kill.cell() for kill in row)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table; 1 if a rule is weak."""
    parser = argparse.ArgumentParser(prog="python -m pytest_qnn.mutants", description=__doc__)
    parser.add_argument("--subject", choices=sorted(_SUBJECTS), default="", help="one half of the catalogue")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"default: {SEEDS}")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="default")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME/RULE", help="NAME, /RULE or both; repeatable"
    )
    parser.add_argument(
        "--update",
        type=Path,
        metavar="FILE",
        help="write into this table, whose other rows stay, not to stdout",
    )
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds: at least one is needed")
    wanted = chosen(options.only, options.subject)
    if not wanted:
        parser.error("no mutant is of this name with this rule")
    kills = []
    for kill in itertools.chain.from_iterable(
        measure(mutant, rules, options.seeds, options.profile) for mutant, rules in wanted
    ):
        kills.append(kill)
        sys.stderr.write(f"{kill.line()}\n")
    known = options.update.read_text() if options.update else ""
    text = document(kills, options.seeds, options.profile, known)
    if options.update:
        options.update.write_text(text)
    else:
        sys.stdout.write(text)
    weak = [kill for kill in kills if kill.weak]
    sys.stderr.write("".join(f"weak: {kill.line()}\n" for kill in weak))
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())

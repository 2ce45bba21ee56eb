"""The results of ``python -m benchmarks.reproducers`` in words, and as a document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from pytest_qnn.core.mutant import Mutant

GOOD: Final = "1/0"
_STATUSES: Final = re.compile(r"-?\d+/-?\d+")


class Shown(msgspec.Struct, frozen=True):
    """What became of one finding."""

    half: str
    """``memory`` (QNN) or ``delegate``."""
    mutant: str
    rule: str
    result: str
    """``1/0``: exit statuses on the mutant and on the reference; else the reason why there is no program."""
    day: str
    """When, as YYYY-MM-DD."""
    seconds: float
    """CPU time, children included."""


def newest(found: Iterable[Shown]) -> dict[tuple[str, str], Shown]:
    """The last result of each mutant and rule."""
    return {(each.mutant, each.rule): each for each in found}


def summary(found: Sequence[Shown]) -> str:
    """What did not end as it should, and the share."""
    good = sum(each.result == GOOD for each in found)
    lines = [f"{each.result}: {each.mutant}/{each.rule}" for each in found if each.result != GOOD]
    reasons = Counter(each.result for each in found if each.result != GOOD)
    counted = [f"{number:4}  {reason}" for reason, number in reasons.most_common()]
    share = f"{good} of {len(found)} end with 1 on the mutant and with 0 on the reference"
    return "\n".join([*sorted(lines), "", *counted, "", share])


HEAD: Final = """\
# Findings without the suite

Written by `python -m benchmarks.reproducers --results FILE --document docs/measured/reproducers.md`, from
results of `python -m benchmarks.reproducers --results FILE [--half delegate]`. Each mutant's finding is made,
and its program (`reproduce.c`, `reproduce.py`: [what they are](../how-to/reproduce.md)) is run on the mutant
served as a library and on the conforming reference served alike: **1/0** is right, its statuses on the two.
Where there is no program, `reproduce.txt` gives the reason that stands beside the mutant. "Accuses the plain
reference" stands beside a program that ends with 1 on the reference that declares nothing of its own.
A result is kept until it is measured again, also when what writes the programs has changed since: the tests
marked `full` (`tests/qnn/test_reproduce.py`) do that, and compare.
"""
_TITLES: Final = {"memory": "QNN memory", "delegate": "TensorFlow Lite delegates"}


def document(found: Iterable[Shown], halves: Mapping[str, Sequence[tuple[Mutant, str]]]) -> str:
    """Both halves as Markdown: of each mutant and rule that must find it what became of the program."""
    known = newest(found)
    parts = [HEAD]
    for half, listed in halves.items():
        rows = [(mutant, rule, known.get((mutant.name, rule))) for mutant, rule in listed]
        measured = [each for _, _, each in rows if each is not None]
        parts.append(f"\n## {_TITLES[half]}\n\n{_totals(measured, len(rows))}\n")
        parts.append("| mutant | rule | result | day | CPU s |\n|---|---|---|---|---|\n")
        parts += [_row(mutant, rule, each) for mutant, rule, each in rows]
    return "".join(parts)


def _totals(measured: Sequence[Shown], listed: int) -> str:
    if not measured:
        return f"None of {listed} was measured.\n"
    good = sum(each.result == GOOD for each in measured)
    written = [each for each in measured if _STATUSES.match(each.result)]
    days = sorted({each.day for each in measured})
    reasons = Counter(each.result for each in measured if each.result != GOOD)
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    cost = sum(each.seconds for each in measured)
    of_written = good / max(1, len(written))
    lines = [
        f"Measured: {len(measured)} of {listed}, on {span}, in {cost:.0f} s of processor time.",
        f"**{good} ({good / len(measured):.1%}) end with 1 on the mutant and with 0 on the reference**,",
        f"{of_written:.1%} of the {len(written)} that have a program. The others:",
        "",
        "| findings | why |",
        "|---|---|",
        *(f"| {number} | {_cell(reason)} |" for reason, number in reasons.most_common()),
        "",
    ]
    return "\n".join(lines)


def _row(mutant: Mutant, rule: str, each: Shown | None) -> str:
    if each is None:
        return f"| `{mutant.name}` | {rule} | not measured | | |\n"
    return f"| `{mutant.name}` | {rule} | {_cell(each.result)} | {each.day} | {each.seconds:.1f} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")

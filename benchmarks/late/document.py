"""The results of ``python -m benchmarks.late`` as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.late.apart import APART
from pytest_qnn.core.mutant import Mutant


class Found(msgspec.Struct, frozen=True):
    """What became of one fault in one profile, with one seed."""

    name: str
    subject: str
    profile: str
    seed: int
    day: str
    """When, as YYYY-MM-DD."""
    rule: str = ""
    """The first rule that found it; empty: none did."""
    examples: int = 0
    """Cases of that rule up to the first violation."""
    seen: str = ""
    judged: int = 0
    """Rules that were asked."""
    seconds: float = 0.0
    """CPU time, children included."""


HEAD = """\
# Faults that start late, or hide

Written by `python -m benchmarks.late --results FILE --document`, from results of `python -m benchmarks.late
--results FILE`. The faults are in references that conform until their condition holds, written from the
documents alone by someone who had not read the rules. Beside each is the first rule that found it, after how
many of its cases, and what it saw. A fault that breaks no sentence of a MUST rule is listed apart, with the
reason.

These are no blind numbers any more. When all faults were judged for the first time, 98 of 114 backends and
67 of 74 delegates were found of those that were taken to break a MUST; the cases of three rules had been
changed for some of the first twenty by then. After that the cases of eleven rules were changed for eleven of
the missed backends, and four of the missed delegates and one backend were put apart, each for the reason in
its row. Last, six rules got cases for the seven that were left, in classes of their own: graphs of many
inputs, weights that are broadcast in any rank, nodes that no kernel computes at any place of a plan, objects
that begin while others live. Those seven were measured again, the others not.
"""
_TITLES = {"delegate": "TensorFlow Lite delegates", "memory": "QNN memory"}
_COLUMNS = "| fault | what is wrong | found by | cases | seen |\n|---|---|---|---|---|\n"
_APART_COLUMNS = "| fault | what is wrong | why it is apart | found by | cases |\n|---|---|---|---|---|\n"


def document(found: Sequence[Found], faults: Mapping[str, Mutant]) -> str:
    """The halves of ``faults``, as Markdown; empty halves are left out."""
    parts = [HEAD]
    for subject, title in _TITLES.items():
        own = [one for one in found if one.subject == subject and one.name in faults]
        if own:
            names = {name for name, fault in faults.items() if fault.subject == subject}
            parts.append(f"\n## {title}\n\n{_measured(own, names)}\n{_tables(own, faults)}")
    return "".join(parts)


def _runs(found: Sequence[Found]) -> dict[tuple[str, int], list[Found]]:
    runs: dict[tuple[str, int], list[Found]] = {}
    for one in found:
        runs.setdefault((one.profile, one.seed), []).append(one)
    return runs


def _measured(found: Sequence[Found], names: set[str]) -> str:
    """What each run found of what it measured, what it cost, and which of ``names`` it did not measure."""
    rows = [
        "| profile | seed | days | all | break a MUST | CPU |\n|---|---|---|---|---|---|\n",
    ]
    for (profile, seed), run in _runs(found).items():
        must = [one for one in run if one.name not in APART]
        days = ", ".join(sorted({one.day for one in run}))
        seconds = sum(one.seconds for one in run)
        rows.append(f"| `{profile}` | {seed} | {days} | {_share(run)} | {_share(must)} | {seconds:.0f} s |\n")
    for (profile, seed), run in _runs(found).items():
        if left := sorted(names - {one.name for one in run}):
            rows.append(f"\nNot measured in `{profile}` with seed {seed}, {len(left)}: {', '.join(left)}.\n")
    return "".join(rows)


def _share(run: Sequence[Found]) -> str:
    hit = sum(bool(one.rule) for one in run)
    return f"{hit} of {len(run)} ({hit / max(1, len(run)):.1%})"


def _tables(found: Sequence[Found], faults: Mapping[str, Mutant]) -> str:
    """A row for each fault, of the first run in which it was found."""
    best: dict[str, Found] = {}
    for one in found:
        if one.name not in best or (one.rule and not best[one.name].rule):
            best[one.name] = one
    must = [_row(best[name], faults) for name in sorted(best) if name not in APART]
    apart = [_apart_row(best[name], faults) for name in sorted(best) if name in APART]
    text = f"{_COLUMNS}{''.join(must)}"
    if apart:
        text += f"\n### Apart\n\n{_APART_COLUMNS}{''.join(apart)}"
    return text


def _by(one: Found) -> str:
    where = "" if (one.profile, one.seed) == ("default", 1) else f" (`{one.profile}`, seed {one.seed})"
    return f"{one.rule}{where}" if one.rule else "-"


def _row(one: Found, faults: Mapping[str, Mutant]) -> str:
    return _cells(f"`{one.name}`", faults[one.name].fault, _by(one), str(one.examples), one.seen)


def _apart_row(one: Found, faults: Mapping[str, Mutant]) -> str:
    return _cells(f"`{one.name}`", faults[one.name].fault, APART[one.name], _by(one), str(one.examples))


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

"""What was found, as JSON lines; the judgements by eye; and the totals."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.automatic.judging import (
    CRASH,
    HANG,
    INTERNAL,
    KILLED,
    NOT_EXECUTED,
    UNFINISHED,
    UNUSABLE,
    Outcome,
)
from benchmarks.automatic.listing import Automatic

JUDGEMENTS: Final = Path(__file__).with_name("judgements.json")
EQUIVALENT: Final = "equivalent"
OUTSIDE: Final = "outside any rule"
HOLE: Final = "hole"

Outcomes = Mapping[tuple[str, str], Outcome]
"""By mutant and profile."""


class Judgement(msgspec.Struct, frozen=True):
    """What a reader says of mutants that no rule found."""

    kind: str
    """`EQUIVALENT`: no target shows the change; `OUTSIDE`: one may, and no document forbids it; `HOLE`."""
    reason: str
    """One for all of them."""
    ids: tuple[str, ...]


def read(file: Path) -> dict[tuple[str, str], Outcome]:
    """The last outcome of each mutant in each profile; of whole lines, as the last may have been cut off."""
    text = file.read_bytes() if file.exists() else b""
    lines = [line for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]
    return {(outcome.id, outcome.profile): outcome for outcome in outcomes}


def append(file: Path, outcome: Outcome) -> None:
    """Add a line. A cut-off one is closed first, and so lost."""
    if file.exists() and not (text := file.read_bytes()).endswith(b"\n"):
        file.write_bytes(text[: text.rfind(b"\n") + 1])
    with file.open("ab") as output:
        output.write(msgspec.json.encode(outcome) + b"\n")


@functools.cache
def judgements() -> dict[str, Judgement]:
    """Those kept by hand, by mutant."""
    groups = msgspec.json.decode(JUDGEMENTS.read_bytes(), type=list[Judgement])
    return {id_: group for group in groups for id_ in group.ids}


def totals(mutants: Sequence[Automatic], outcomes: Outcomes, judged: Mapping[str, Judgement]) -> str:
    """As Markdown: counts, then the mutants that no rule found."""
    own = {mutant.id: mutant for mutant in mutants}
    default, thorough = (
        {id_: outcome for (id_, of), outcome in outcomes.items() if of == profile and id_ in own}
        for profile in ("default", "thorough")
    )
    killed = [outcome for outcome in default.values() if outcome.end in KILLED]
    late = [outcome for outcome in thorough.values() if outcome.end in KILLED]
    ends = Counter(outcome.end for outcome in killed)
    left = [
        own[id_] for id_, outcome in default.items() if outcome.end not in KILLED and id_ not in _ids(late)
    ]
    seconds = sum(outcome.seconds for outcome in (*default.values(), *thorough.values()))
    first = sum(outcome.seconds for outcome in default.values())
    found = len(killed) + len(late)
    rate = 60 * len(default) / first if first else 0
    open_ = [id_ for id_, outcome in default.items() if _is_open(outcome, judged) and id_ not in thorough]
    share = f"{100 * len(killed) / found:.1f} %" if found and not open_ else _NO_SHARE.format(len(open_))
    lines = [
        f"* Mutants: {len(default)} of {len(mutants)} were judged,\n",
        f"  in {seconds / 60:.1f} minutes of CPU time ({rate:.0f} a minute in `default`).\n",
        f"* Found by `default`: {len(killed)}; of them {ends[CRASH]} crashed, {ends[HANG]} hung,\n",
        f"  {ends[UNUSABLE]} could not be opened.\n",
        f"* Of the others, judged in `thorough`: {len(thorough)}; found there: {len(late)}.\n",
        f"* Share of `default` in what both found: {share}.\n",
        f"* Not found: {len(left)}: {_kinds(left, default, thorough, judged)}.\n",
    ]
    if late:
        lines.append("\n## Missed by `default`, found by `thorough`\n\n")
        lines += [_item(own[outcome.id], f"{outcome.rule}, {outcome.examples} cases") for outcome in late]
    for kind in (HOLE, OUTSIDE, EQUIVALENT, ""):
        some = [
            mutant for mutant in left if _kind(mutant, judged) == kind and _asked(mutant, default, thorough)
        ]
        if some:
            lines.append(f"\n## {(kind or 'not judged by eye yet').capitalize()}: {len(some)}\n\n")
            lines += _grouped(some, judged)
    return "".join(lines)


_NO_SHARE = "not measured: {} that may be found were not in `thorough`"


def _is_open(outcome: Outcome, judged: Mapping[str, Judgement]) -> bool:
    """No rule of `default` found it, and `thorough` may."""
    judgement = judged.get(outcome.id)
    equivalent = judgement is not None and judgement.kind == EQUIVALENT
    return outcome.end not in (*KILLED, NOT_EXECUTED) and not equivalent


def _grouped(mutants: Sequence[Automatic], judged: Mapping[str, Judgement]) -> list[str]:
    """Each reason once, and below it what it is said of; without a reason only the latter."""
    groups: dict[str, list[Automatic]] = {}
    for mutant in mutants:
        groups.setdefault(judged[mutant.id].reason if mutant.id in judged else "", []).append(mutant)
    lines = []
    for reason, some in groups.items():
        indent = "  " if reason else ""
        lines += [f"* {reason}\n"] if reason else []
        lines += [indent + _item(mutant, "") for mutant in some]
    return lines


def _ids(outcomes: Sequence[Outcome]) -> set[str]:
    return {outcome.id for outcome in outcomes}


def _kind(mutant: Automatic, judged: Mapping[str, Judgement]) -> str:
    return judged[mutant.id].kind if mutant.id in judged else ""


def _asked(mutant: Automatic, default: Mapping[str, Outcome], thorough: Mapping[str, Outcome]) -> bool:
    """Whether any rule was asked: else none executes the changed statement with the cases of `default`."""
    found = [outcomes[mutant.id] for outcomes in (default, thorough) if mutant.id in outcomes]
    return any(outcome.asked or outcome.internal for outcome in found)


def _kinds(
    left: Sequence[Automatic],
    default: Mapping[str, Outcome],
    thorough: Mapping[str, Outcome],
    judged: Mapping[str, Judgement],
) -> str:
    kinds: Counter[str] = Counter()
    for mutant in left:
        kind = _kind(mutant, judged) or "not judged by eye yet"
        if not _asked(mutant, default, thorough):
            kind = NOT_EXECUTED
        elif kind not in (HOLE, OUTSIDE, EQUIVALENT) and default[mutant.id].end in (INTERNAL, UNFINISHED):
            kind = default[mutant.id].end
        kinds[kind] += 1
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"


def _item(mutant: Automatic, text: str) -> str:
    before, after = (f"`{code[:300]}`" if code else "(nothing)" for code in (mutant.before, mutant.after))
    item = f"* {mutant.id} `{mutant.file}`, `{mutant.function}`: {before} becomes {after}. {text}"
    return item.rstrip() + "\n"

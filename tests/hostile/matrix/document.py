"""The page with the rows of the matrix, made from the file that they were written to."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_qnn.core.rule import Subject
from tests.hostile.matrix.action import OWNERS, RULES, SIDES, Action
from tests.hostile.matrix.actions import ACTIONS
from tests.hostile.matrix.row import Row

_BEGINNING = """\
# Hostile actions, and what the suite says of them

Made by `python -m tests.hostile.matrix --document docs/measured/hostile.md`, from the rows in
[hostile.jsonl](hostile.jsonl), to which the same command adds what it judges (`--missing`, `--wrong`).
Each row is a conforming library in C (`tests/faults`) that does one thing at one moment: while it is
loaded (load), where a backend or delegate is made (open), where a graph with a multiplication is
finalised or prepared (prepare), where that is executed (work), where a context or delegate is freed
(close), while it is unloaded (unload).
{rules}

A row is as expected if the verdicts are those of its column *expected*, every selected rule has one,
pytest ends by itself with a status of its own, writes no traceback and no control character, takes less
than 400 MiB, keeps no descriptor, and nothing is left: no process, file, shared memory, semaphore or
queue. A case has 10 s (`--qnn-timeout`) where the action is to pass: a delegate does it at each
invoke, of which a case may have dozens. Elsewhere it has 1 s, since a hang takes all of it.

| expected | the verdicts |
|---|---|
| pass | as of the library without the action |
| crash, hang | of the rule that owns the call; no other rule accuses |
| owner | the rule that owns the call may say anything; no other rule accuses |
| unloadable | none: the run says that the library cannot be loaded |
| any | any rule may find it: it harms every case, or the library itself; each has a verdict or is named |

{summary}
"""


def page(rows: Mapping[tuple[str, str], Row]) -> str:
    """The document, with a table for each kind of action."""
    beginning = _BEGINNING.format(rules=_rules(), summary=_summary(list(rows.values())))
    kinds = dict.fromkeys(action.kind for action in ACTIONS.values())
    return "\n".join([beginning, *(_table(kind, rows) for kind in kinds)])


def write(rows: Mapping[tuple[str, str], Row], path: Path) -> None:
    """Write the document."""
    path.write_text(page(rows), encoding="utf-8")


def _rules() -> str:
    said = [f"{', '.join(RULES[side])} judge a {_LIBRARY[side]}" for side in SIDES]
    owned = [
        f"{_LIBRARY[side]}: {', '.join(f'{moment} {rule}' for moment, rule in OWNERS[side].items())}"
        for side in SIDES
    ]
    return f"{'; '.join(said)}. Owners of the moments: {'; '.join(owned)}."


_LIBRARY: dict[Subject, str] = {"memory": "backend", "delegate": "delegate"}


def _summary(rows: Sequence[Row]) -> str:
    wrong = sum(bool(row.wrong) for row in rows)
    days = sorted({row.on for row in rows})
    between = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "never"
    cpu = sum(row.cpu for row in rows)
    peak = max((row.peak for row in rows), default=0) >> 20
    read_back = sum(not row.wall for row in rows)
    older = f" {read_back} of them were judged by code of earlier that day, and are not timed by the clock."
    return (
        f"{len(rows)} of {len(ACTIONS) * len(SIDES)} rows were judged ({between}; Linux "
        f"{platform.release()}, as root): {len(rows) - wrong} are as expected, {wrong} are not. "
        f"They took {cpu:.0f} s of processor time; the largest pytest had {peak} MiB."
    ) + (older if read_back else "")


def _table(kind: str, rows: Mapping[tuple[str, str], Row]) -> str:
    lines = [
        f"## {kind.capitalize()}",
        "",
        "| action | when | what the library does | expected | backend | delegate | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(action, rows) for action in ACTIONS.values() if action.kind == kind]
    return "\n".join((*lines, ""))


def _line(action: Action, rows: Mapping[tuple[str, str], Row]) -> str:
    found = [rows.get((action.name, side)) for side in SIDES]
    cpu = ", ".join(f"{row.cpu:.1f}" if row else "-" for row in found)
    cells = (action.name, action.moment, action.what, _expected(action), *map(_result, found), cpu)
    return f"| {' | '.join(cells)} |"


def _expected(action: Action) -> str:
    expected = action.expected + (f", of a delegate {action.of_delegate}" if action.of_delegate else "")
    return f"{expected}: {action.why}" if action.why else expected


def _result(row: Row | None) -> str:
    if row is None:
        return "not judged"
    if row.wrong:
        return f"**{'; '.join(row.wrong)}**".replace("|", "\\|")
    found = [f"{rule} {verdict}" for rule, verdict in row.verdicts.items() if verdict not in _QUIET]
    return ", ".join(found) or "yes"


_QUIET = {"pass", "unsupported"}

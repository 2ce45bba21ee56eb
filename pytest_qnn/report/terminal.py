"""Verdicts on the terminal: the header line, a table per target, a line per rule that did not pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_qnn.core.printable import one_line, printable
from pytest_qnn.report import choices, claims, failure
from pytest_qnn.state import Description, Session, spec_of

if TYPE_CHECKING:
    import pytest

    from pytest_qnn.core.verdict import Verdict
    from pytest_qnn.expect.claims import Difference

COLUMNS = ("pass", "fail", "crash", "hang", "unsupported", "contradiction", "inconclusive")


def header(session: Session) -> str:
    """Runtime, targets, seed, profile and selection on one line; the runtime's version once it is loaded."""
    options = session.options
    parts = [
        f"runtime {_runtime(session) or options.runtime}",
        f"delegate {spec_of(options, 'delegate')}",
        f"backend {options.backend}",
        f"rpcmem {options.rpcmem}",
        f"seed {session.seed}",
        f"profile {options.profile}",
        *([] if options.target is None else [f"target {options.target}"]),
        *([] if options.shard is None else ["shard {}/{}".format(*options.shard)]),
        *([] if options.blocks == 1 else [f"{options.blocks} seed blocks"]),
        *(
            f"{flag.removeprefix('--qnn-')} {' '.join(names)}"
            for flag, names in options.selection.given().items()
        ),
    ]
    return printable("qnn: " + ", ".join(parts))


def submission(session: Session) -> list[str]:
    """The line that names the submission; none where nothing names it."""
    parts = [f"{key} {text}" for key, text in session.options.submission]
    return [printable("qnn: " + ", ".join(parts))] if parts else []


def held_back(names: Sequence[str]) -> str:
    """The line that names all environment variables of which any may be what a library lacks."""
    return f"held back from child processes, as credentials: {', '.join(names)} (--qnn-env=NAME adds one)"


def _runtime(session: Session) -> str:
    """Name and version of the runtime in use; empty before a delegate target was opened."""
    for (subject, _), described in session.described.items():
        if subject == "delegate":
            found = described.provenance
            return f"{found.get('runtime', '')} {found.get('runtime_version', '')}".strip()
    return ""


def summary(reporter: pytest.TerminalReporter, session: Session) -> None:
    """Write what the run found."""

    def write(line: str, **markup: bool) -> None:
        reporter.write_line(printable(line), **markup)

    reporter.section("qnn", "=")
    write(header(session))
    for line in submission(session):
        write(line)
    if session.held_back:
        write(held_back(session.held_back))
    for lack in session.host_lacks:
        write(f"host: {lack}")
    for replayed in session.replayed:
        line = f"{replayed.rule} on {replayed.target}: {replayed.result}: {one_line(replayed.detail)}"
        write(line, green=replayed.good, red=not replayed.good)
        if replayed.other:
            write(replayed.other)
    for (subject, target), verdicts in by_target(session).items():
        write("")
        write(f"{subject} target: {target}", bold=True)
        for line in _of_target(session.described.get((subject, target)), verdicts):
            write(line, red=line.startswith(_LACKS))
    if session.verdicts and session.not_judged:
        write("")
        write(f"not judged: {', '.join(session.not_judged)}", yellow=True)
    left_out = session.not_selected if session.verdicts else []
    if left_out:
        write("")
        whole = len(left_out) + len(session.expected) + len(session.elsewhere)
        write(f"not selected: {len(left_out)} of {whole} rules; the report is incomplete")

    if session.verdicts and session.elsewhere:
        write("")
        write(f"left to other shards: {len(session.elsewhere)} rules; python -m pytest_qnn merge adds them")


_LACKS = "lacks what is declared"


def _of_target(described: Description | None, verdicts: list[Verdict]) -> Iterator[str]:
    """What was learned of the target, and what was found."""
    if described is not None:
        yield from map(one_line, claims.lines(described.learned))
        yield from choices.summary(described.learned)
        yield from _declared(described.claimed) if described.claimed else ()
    yield from table(verdicts)
    yield from findings(verdicts)


def _declared(found: Difference) -> list[str]:
    """What the target supports less, and more, than is declared, in a line each."""
    parts = ((_LACKS, found.missing), ("has more than is declared", found.more))
    return [one_line(f"{words}: {len(names)} kinds: {', '.join(names)}") for words, names in parts if names]


def by_target(session: Session) -> dict[tuple[str, str], list[Verdict]]:
    """Verdicts by (subject, target), each list in the order of rule ids."""
    grouped: dict[tuple[str, str], list[Verdict]] = {}
    for subject, target, rule in sorted(session.verdicts):
        grouped.setdefault((subject, target), []).append(session.verdicts[subject, target, rule])
    return grouped


def table(verdicts: list[Verdict]) -> list[str]:
    """Lines of the table of areas and verdict counts, aligned; a dot is zero."""
    areas: dict[str, list[str]] = {}
    for verdict in verdicts:
        areas.setdefault(verdict.area, []).append(verdict.shown)
    areas["total"] = [verdict.shown for verdict in verdicts]
    columns = (*COLUMNS, "known") if "known" in areas["total"] else COLUMNS
    first = max(map(len, areas))
    lines = [f"{'area':<{first}}" + "".join(f"  {name:>5}" for name in columns)]
    for area, outcomes in areas.items():
        counts = [outcomes.count(name) for name in columns]
        cells = (
            f"  {count or '.':>{max(5, len(name))}}" for count, name in zip(counts, columns, strict=True)
        )
        lines.append(f"{area:<{first}}" + "".join(cells))
    return lines


def findings(verdicts: list[Verdict]) -> list[str]:
    """A line per rule that did not pass, and one per reason why rules are unsupported."""
    lines = []
    reasons: dict[str, list[str]] = {}
    for verdict in verdicts:
        outcome = verdict.outcome.value
        about = f"{verdict.rule} {verdict.level.value}"
        if verdict.unexpected:
            lines.append(f"{about} not as expected: {one_line(verdict.unexpected)}")
        lines += [f"{about} known {outcome}: {one_line(text)}" for text in verdict.known if verdict.is_known]
        if verdict.is_known:
            continue
        if outcome == "unsupported":
            reasons.setdefault(one_line(verdict.reason), []).append(verdict.rule)
        elif verdict.is_blocked:
            continue
        elif outcome != "pass":
            note = " (self-check)" if verdict.self_check else ""
            note += f" (found by {verdict.found_by})" if verdict.found_by else ""
            note += f" (flaky: {verdict.flaky})" if verdict.flaky else ""
            note += f" ({verdict.note})" if verdict.note else ""
            replay = f" | replay: {verdict.replay}" if verdict.replay else ""
            lines.append(
                f"{about} {outcome}{note}: {one_line(verdict.sentence)}"
                f" | seen: {one_line(failure.seen(verdict))}{replay}"
            )
    lines += _causes(verdicts)
    lines += [f"unsupported: {', '.join(rules)}: {reason}" for reason, rules in reasons.items()]
    crowded = [verdict.rule for verdict in verdicts if verdict.only_in_company]
    if crowded:
        lines.append(
            f"broken only after other cases in the same process, which does not count: {', '.join(crowded)}"
        )
    return lines


def _causes(verdicts: list[Verdict]) -> list[str]:
    """A line per rule that owns what went wrong in cases of others: these, and which could not be judged."""
    lines = []
    for owner in sorted({owner for verdict in verdicts for owner in verdict.blocked_by}):
        concerned = [verdict for verdict in verdicts if owner in verdict.blocked_by]
        blocked = [verdict.rule for verdict in concerned if verdict.is_blocked]
        told = f"; of them not judged for it: {', '.join(blocked)}" if blocked else ""
        lines.append(f"1 cause, {owner}: it was seen in cases of {len(concerned)} other rules{told}")
    return lines

"""Verdicts on the terminal: the header line, a table per target, a line per rule that did not pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_qnn.core.printable import FLOOD, counted, one_line, printable
from pytest_qnn.report import causes, choices, claims, document, domain, failure
from pytest_qnn.report.causes import Cause
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
        for text, colour in _of_target(session.described.get((subject, target)), verdicts):
            write(text, **({colour: True} if colour else {}))
    if session.not_judged and not session.replayed:
        write("")
        write(f"not judged: {', '.join(session.not_judged)}", yellow=True)
    left_out = session.not_selected if session.verdicts else []
    if left_out:
        write("")
        whole = len(left_out) + len(session.expected) + len(session.elsewhere)
        write(f"not selected: {len(left_out)} of {whole} rules; the report is incomplete")

    if session.verdicts and session.elsewhere:
        write("")
        rules = counted(len(session.elsewhere), "rule")
        write(f"left to other shards: {rules}; python -m pytest_qnn merge adds them")


def _of_target(described: Description | None, verdicts: list[Verdict]) -> Iterator[Line]:
    """What was learned of the target, and what was found."""
    if described is not None:
        yield from map(Line, map(_whole, claims.lines(described.learned)))
        yield from map(Line, choices.summary(described.learned))
        yield from _declared(described.claimed) if described.claimed else ()
    yield from map(Line, map(_whole, domain.lines(verdicts)))
    yield from map(Line, table(verdicts))
    yield from findings(verdicts)


def _declared(found: Difference) -> list[Line]:
    """What the target supports less, and more, than is declared, in a line each."""
    parts = (
        ("lacks what is declared", found.missing, "red"),
        ("has more than is declared", found.more, ""),
    )
    return [
        Line(_whole(f"{words}: {counted(len(names), 'kind')}: {', '.join(names)}"), colour)
        for words, names, colour in parts
        if names
    ]


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


class Line(NamedTuple):
    """What stands on a line, and in which colour a terminal shows it; empty: in its own."""

    text: str
    colour: str = ""


def findings(verdicts: list[Verdict]) -> list[Line]:
    """What did not pass: a line for each rule, findings by cause; then a line for each reason."""
    lines: list[Line] = []
    by_id = {verdict.rule: verdict for verdict in verdicts}
    for cause in causes.causes([document.rule(verdict) for verdict in verdicts]):
        for rule in cause.findings:
            lines += _of_rule(by_id.pop(rule["id"]))
        lines += map(Line, _consequences(cause))
    for verdict in by_id.values():
        lines += _of_rule(verdict)
    lines += map(Line, _unsupported(verdicts))
    crowded = [verdict.rule for verdict in verdicts if verdict.only_in_company]
    if crowded:
        words = "broken only after other cases in the same process, which is no finding of the rule"
        lines.append(Line(f"{words}: {spans(crowded)}"))
    return lines


def _of_rule(verdict: Verdict) -> Iterator[Line]:
    outcome = verdict.outcome.value
    about = f"{verdict.rule} {verdict.level.value}"
    if verdict.unexpected:
        yield Line(f"{about} not as expected: {_whole(verdict.unexpected)}", "red")
    if verdict.is_known:
        for text in verdict.known:
            yield Line(f"{about} known {outcome}: {_whole(text)}")
    elif not (outcome in ("pass", "unsupported") or verdict.is_blocked):
        note = " (self-check)" if verdict.self_check else ""
        note += f" (found by {verdict.found_by})" if verdict.found_by else ""
        note += f" (flaky: {verdict.flaky})" if verdict.flaky else ""
        note += f" ({verdict.note})" if verdict.note else ""
        explain = f" | explain: {failure.explain(verdict.rule)}" if verdict.finding else ""
        replay = f" | replay: {verdict.replay}" if verdict.replay else ""
        yield Line(
            f"{about} {outcome}{note}: {_whole(verdict.sentence)}"
            f" | seen: {_whole(failure.seen(verdict))}{explain}{replay}",
            "red" if outcome in ("fail", "crash", "hang") and verdict.is_red(strict=False) else "yellow",
        )
        yield from (Line(f"  further: {_whole(text)}") for text in failure.further(verdict))


def _consequences(cause: Cause) -> Iterator[str]:
    """What else is of the cause: findings that look alike, and rules in whose cases it was seen."""
    parts = []
    if len(cause.findings) > 1:
        alike = ", ".join(rule["id"] for rule in cause.findings)
        parts.append(f"{len(cause.findings)} findings look alike: {alike}")
    if cause.concerned:
        number = len(cause.concerned)
        parts.append(f"it was seen in cases of {number} other rule{'s' * (number > 1)}")
    if cause.blocked:
        parts.append(f"of them not judged for it: {spans(cause.blocked)}")
    if parts:
        yield f"  1 cause, {cause.rule}: {'; '.join(parts)}"


def _unsupported(verdicts: list[Verdict]) -> list[str]:
    """A line for each reason why rules are unsupported, that of most rules first."""
    reasons: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome.value == "unsupported" and not (verdict.unexpected or verdict.is_known):
            reasons.setdefault(_whole(verdict.reason), []).append(verdict.rule)
    by_number = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [f"unsupported: {spans(rules)}: {reason}" for reason, rules in by_number]


def spans(rules: Iterable[str]) -> str:
    """Ids of rules in their order; three or more in a row are two with "to" between: ``REG-01 to REG-05``."""
    runs: list[list[str]] = []
    for rule in sorted(rules):
        area, number = rule.rsplit("-", 1)
        before = runs[-1][-1].rsplit("-", 1) if runs else ("", "")
        if before[0] == area and int(before[1]) + 1 == int(number):
            runs[-1].append(rule)
        else:
            runs.append([rule])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _whole(text: str) -> str:
    """The text on one line. Nobody can ask for what was cut: only a flood is."""
    return one_line(text, FLOOD)

"""A comparison as plain text: what differs, a line each, aligned; little where nothing differs.

Most of what is shown is from elsewhere: each piece of it is made printable, and cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pytest_qnn.core.printable import counted, one_line
from pytest_qnn.report.compare.data import (
    Comparison,
    RuleDifference,
    RuleKind,
    Run,
    Seen,
    Setting,
    TargetDifference,
    Unmatched,
)

_NARROW = 40
"""Characters of a value that stands beside another one; longer ones stand below each other."""
_SLOWEST = 10
"""Rules that are shown of those that took longer: on a machine with other work it may be all of them."""
_TOGETHER: tuple[RuleKind, ...] = ("no longer judged", "judged now", "new rule", "removed rule")
"""Kinds of which there may be hundreds, with nothing to be seen of each: they share a line."""


def lines(comparison: Comparison, old_name: str, new_name: str) -> Iterator[str]:
    """The whole text.

    Args:
        comparison: what differs.
        old_name: what the reader calls the old report: its path, or the options of its run.
        new_name: the same of the new one.
    """
    yield f"old: {_run(old_name, comparison.old)}"
    yield f"new: {_run(new_name, comparison.new)}"
    if comparison.settings:
        yield from ("", "The runs differ in")
        yield from _indented(_settings(comparison.settings))
    for target in comparison.targets:
        yield ""
        yield from _target(target)
    for word, unmatched in (("old", comparison.only_old), ("new", comparison.only_new)):
        for alone in unmatched:
            yield from ("", _unmatched(word, alone))
    yield from ("", _result(comparison))


def _run(name: str, run: Run) -> str:
    state = "complete" if run.complete else "incomplete"
    return (
        f"{one_line(name)} ({one_line(run.started, _NARROW)}, {counted(run.judged, 'rule')} judged, {state})"
    )


def _target(target: TargetDifference) -> Iterator[str]:
    """Heading and tables of one target."""
    spec = one_line(target.old)
    if target.old != target.new:
        spec += f" -> {one_line(target.new)}"
    yield f"{target.subject} target: {spec}"
    yield f"  {counted(target.judged, 'rule')} judged in both, {target.same} of them the same"
    yield from _part("provenance", _settings(target.provenance))
    yield from _indented(_rules(target.rules))
    yield from _part("claims, in kinds of node", _claims(target))
    yield from _part("supported in one of them only", _kinds(target))
    yield from _part("sample graphs, in nodes, kernels and switches", _counts(target))
    yield from _part("where documents are silent, the target chose", _choices(target))
    of_all = f"of all rules judged in both {target.old_seconds:.1f} -> {target.new_seconds:.1f}"
    yield from _part(f"slower, in seconds, {of_all}: {len(target.slower)}", _slower(target))


def _part(heading: str, content: Iterable[str]) -> Iterator[str]:
    """A heading with lines below it; nothing where there are none."""
    found = list(content)
    if found:
        yield f"  {heading}"
        yield from _indented(_indented(found))


def _settings(settings: Sequence[Setting]) -> Iterator[str]:
    width = max((len(one_line(each.name, _NARROW)) for each in settings), default=0)
    for each in settings:
        name = f"{one_line(each.name, _NARROW):<{width}}"
        old, new = (one_line(value) or "-" for value in (each.old, each.new))
        if max(len(old), len(new)) <= _NARROW:
            yield f"{name}  {old} -> {new}"
        else:
            yield from (f"{name}  {old}", f"{'':<{width}}  -> {new}")


def _rules(rules: Sequence[RuleDifference]) -> Iterator[str]:
    """A line for each rule, with what was seen; rules of which nothing was seen share lines."""
    single = [each for each in rules if each.kind not in _TOGETHER]
    rows = _aligned([(each.kind, each.id, each.level, _verdicts(each)) for each in single])
    for each, row in zip(single, rows, strict=True):
        yield row
        yield from _indented(_indented(_details(each)))
    groups: dict[tuple[str, str], list[str]] = {}
    for each in rules:
        if each.kind in _TOGETHER:
            groups.setdefault((each.kind, _verdicts(each)), []).append(each.id)
    for (kind, change), names in groups.items():
        yield f"{kind}, {change}: {len(names)}: {one_line(', '.join(names))}"


def _verdicts(rule: RuleDifference) -> str:
    old, new = (_verdict(seen) for seen in (rule.old, rule.new))
    change = old if old == new else f"{old} -> {new}"
    return f"{change} (self-check)" if rule.self_check else change


def _verdict(seen: Seen | None) -> str:
    if seen is None:
        return "no such rule"
    return seen.verdict or seen.state.replace("_", " ")


def _details(rule: RuleDifference) -> Iterator[str]:
    """What the rule demands, and what was seen before and now."""
    yield one_line(rule.sentence)
    old, new = (_seen(seen) if seen else {} for seen in (rule.old, rule.new))
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name, ""), new.get(name, "")
        if before == after:
            yield f"{name:<8}  {before}"
        if before and before != after:
            yield f"{name:<8}  old: {before}"
        if after and before != after:
            yield f"{name:<8}  new: {after}"


def _seen(seen: Seen) -> dict[str, str]:
    """What there is to say, by name."""
    found = {
        "expected": seen.expected,
        "seen": seen.seen,
        "where": seen.where,
        "call": seen.call,
        "fault": seen.fault,
        "reason": seen.reason,
        "flaky": seen.flaky,
        "blocked": f"by {', '.join(seen.blocked_by)}" if seen.blocked_by else "",
        "found": f"by {seen.found_by}, in a control of its cases" if seen.found_by else "",
    }
    return {name: one_line(text) for name, text in found.items() if text}


def _claims(target: TargetDifference) -> Iterator[str]:
    yield from _aligned(
        [
            (
                each.kind,
                one_line(f"{each.op} {each.dtype}", _NARROW),
                f"{each.old_claimed} of {each.old_asked} -> {each.new_claimed} of {each.new_asked}",
                f"old: {one_line(each.old) or '-'} | new: {one_line(each.new) or '-'}",
            )
            for each in target.claims
        ]
    )


def _kinds(target: TargetDifference) -> Iterator[str]:
    """A line for each operator and type, with all its kinds."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in target.kinds:
        groups.setdefault((each.kind, each.of), []).append(each.which)
    yield from _aligned(
        [
            (kind, one_line(of, _NARROW), one_line("; ".join(filter(None, which))))
            for (kind, of), which in groups.items()
        ]
    )


def _counts(target: TargetDifference) -> Iterator[str]:
    yield from _aligned(
        [
            (each.kind, one_line(each.name, _NARROW), f"{each.old} -> {each.new}")
            for each in target.partitioning
        ]
    )


def _choices(target: TargetDifference) -> Iterator[str]:
    """A line for each change of an answer, with the questions by name, as the report's summary has it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in target.choices:
        groups.setdefault((each.old, each.new), []).append(each.point)
    for (old, new), points in groups.items():
        answers = " -> ".join(one_line(answer) or "not asked" for answer in (old, new))
        yield f"{answers}: {one_line(', '.join(points))}"


def _slower(target: TargetDifference) -> Iterator[str]:
    """The rules with the most seconds more."""
    slowest = sorted(target.slower, key=lambda each: each.old - each.new)[:_SLOWEST]
    yield from _aligned([(each.id, f"{each.old:.1f} -> {each.new:.1f}") for each in slowest])


def _unmatched(word: str, target: Unmatched) -> str:
    findings = f", findings: {one_line(', '.join(target.findings))}" if target.findings else ""
    spec = one_line(target.spec)
    judged = counted(target.judged, "rule")
    return f"only in the {word} report: {target.subject} target {spec}: {judged} judged{findings}"


def _result(comparison: Comparison) -> str:
    """The last line: how much got worse, and what."""
    if not comparison.worse:
        return "nothing got worse"
    found = Counter(kind for target in comparison.targets for kind in target.worse)
    found["target no longer judged"] = sum(target.judged > 0 for target in comparison.only_old)
    found["new finding"] += sum(len(target.findings) for target in comparison.only_new)
    told = (f"{kind}: {count}" for kind, count in found.items() if count)
    return f"worse: {comparison.worse} ({', '.join(told)})"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, each column as wide as its widest cell; the last one ends where it ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _indented(content: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in content)

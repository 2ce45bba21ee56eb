"""The text of a verdict that is not a pass: everything needed to believe it and to see it again."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_qnn.core.evidence import IN_HEAP
from pytest_qnn.core.printable import FLOOD, LONGEST_LINE, counted, printable, said
from pytest_qnn.core.verdict import Finding, Further, Outcome, Verdict, case_file
from pytest_qnn.report import crash, spots

WIDTH = 100
_OURS = "pytest_qnn/"
"""In the paths of this project's code."""


def text(verdict: Verdict, run_seed: int) -> str:
    """The whole text, several lines.

    Args:
        verdict: with its finding or its reason.
        run_seed: the value of ``--qnn-seed`` that gives the same cases.
    """
    lines = [
        _first(verdict),
        f"  level     {verdict.level.value}",
        f"  source    {verdict.source}",
        f"  target    {verdict.subject} {verdict.target}",
    ]
    if verdict.self_check:
        lines.append("  note      a self-check: it judges the runtime and this suite, not the delegate")
    if verdict.note:
        lines.append(f"  note      {verdict.note}")
    if verdict.unexpected and verdict.finding:
        lines.append(f"  not as expected (--qnn-expect): {verdict.unexpected}")
    if verdict.known and verdict.finding:
        lines.append("  unknown   no entry of the known failures (--qnn-expect) is this finding")
    label = "besides" if verdict.finding else "known"
    lines += [f"  {label:<9} {text}" for text in verdict.known]
    lines += _finding(verdict.finding, is_kept=bool(verdict.folder)) if verdict.finding else []
    if verdict.reason and not verdict.finding:
        lines.append(f"  reason    {verdict.reason}")
    lines += [f"  further   {line}" for line in further(verdict)]
    lines += [
        f"  examples  {counted(verdict.examples, 'case')} run, {examined(verdict)}",
        f"  seed      --qnn-seed={run_seed}",
    ]
    if verdict.found_by:
        lines.append(f"  found by  {verdict.found_by}, in a control of its cases")
    if verdict.blocked_by:
        lines.append(f"  blocked   in some cases, by {', '.join(verdict.blocked_by)}")
    if verdict.flaky:
        lines.insert(1, f"  flaky     the minimal case {verdict.flaky}")
    if verdict.finding:
        lines.append(f"  explain   {explain(verdict.rule)}")
    if verdict.replay:
        lines.append(f"  replay    {verdict.replay}")
        if verdict.finding and verdict.finding.evidence and not _REFUSES.search(verdict.finding.case):
            lines.append(
                f"  debug     the same with --qnn-debug={_tool(verdict.finding)} (docs/how-to/debugging.md)"
            )
    return printable("\n".join(lines))


def _first(verdict: Verdict) -> str:
    """The rule, its outcome and its sentence; where nothing was found, what was to be found comes before."""
    about = f"{verdict.rule} {verdict.outcome.value}"
    if verdict.unexpected and not verdict.finding:
        about += f", but {verdict.unexpected} (--qnn-expect)"
    return f"{about}: {verdict.sentence}"


def explain(rule_id: str) -> str:
    """The command that prints the rule's page."""
    return f"pytest --qnn-explain={rule_id}"


def examined(verdict: Verdict) -> str:
    """How much was looked at, in words. What is wrong is among it."""
    if verdict.finding is not None and not verdict.examined:
        died = verdict.outcome in (Outcome.CRASH, Outcome.HANG)
        return "none of which came to its end" if died else "nothing examined"
    if verdict.examined == 1 and not verdict.what:
        return "1 thing examined"
    return f"{verdict.examined} {verdict.what or 'things'} examined"


def readme(
    verdict: Verdict, run_seed: int, provenance: Mapping[str, str], contents: Mapping[str, str]
) -> str:
    """The text that stands in a finding's folder.

    Args:
        verdict: with its finding and its replay command.
        run_seed: as for `text`.
        provenance: versions and digests of the target.
        contents: what each file of the folder is.
    """
    width = max(map(len, (*provenance, *contents)))
    lines = [
        text(verdict, run_seed),
        "",
        "The target it was found on",
        *(f"  {key:<{width}}  {value}" for key, value in provenance.items()),
        "",
        "The files of this folder",
        *(f"  {key:<{width}}  {value}" for key, value in contents.items()),
        "",
        "To judge the case again, here or on another machine, give pytest this folder:",
        "  pytest --qnn-replay=FOLDER",
        "It says STILL FAILS, FIXED or CANNOT RUN. Further options replace those of the file.",
        "A library is loaded only where you name it, as --qnn-backend=PATH or --tflite-delegate=PATH.",
        "On another target than the one that the case was found on it says FAILS HERE or PASSES HERE.",
        "To carry it out under a debugger or a memory checker, add one of",
        "  --qnn-debug=gdb, --qnn-debug=valgrind, --qnn-debug=asan, --qnn-debug='ANY COMMAND'",
        "",
    ]
    return printable("\n".join(lines))


_REFUSES = re.compile(r'"do":\s*"refuse"')
"""A case that is carried out in a process of its own only, and so under no debugger."""
_HEAP = re.compile(r"free\(\)|malloc|corrupted|double free|munmap_chunk")
"""In what glibc says when it finds its heap damaged."""


def _tool(finding: Finding) -> str:
    """What shows most: where a heap is damaged is seen by tools that look at each access."""
    damaged = _HEAP.search(finding.evidence.said) or IN_HEAP in finding.seen
    return "asan or valgrind: the heap was damaged before" if damaged else "gdb"


def unfit_answer(error: BaseException) -> str:
    """What is said where a check failed on the answer of a process that the target shares.

    With ``--qnn-sandbox=off`` the target is in this process, and the same failure has its whole traceback.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _OURS in frame.filename]
    place = f" in {_OURS}{frames[-1].filename.rpartition(_OURS)[2]}:{frames[-1].lineno}" if frames else ""
    return (
        f"the answer of the case's process cannot be judged: its parts do not fit together, or the check is "
        f"wrong ({said(error)}{place})"
    )


def internal_error(error: BaseException) -> str:
    """What is said where the suite itself failed: no verdict, and whose fault it is."""
    return f"internal error: {said(error)}; the suite itself failed, and nothing is known of the target"


def error_beside(error: BaseException) -> str:
    """What is said where the suite itself failed behind a verdict, which is none the worse for it."""
    return f"internal error: {said(error)}; the suite itself failed behind this verdict, which stands"


def _finding(finding: Finding, *, is_kept: bool) -> list[str]:
    lines = [f"  expected  {finding.expected}", f"  seen      {finding.seen}"]
    if finding.where:
        lines.append(f"  where     {finding.where}")
    lines += [f"  {line}" for line in crash.lines(finding.evidence)]
    if finding.picture:
        lines += ["  picture", *(f"    {line}" for line in finding.picture.splitlines())]
    if finding.case:
        case = json.loads(finding.case)
        shown = compact(_shortened(case) if is_kept else case)
        lines += ["  minimal case", *(f"    {line}" for line in shown.splitlines())]
    return lines


def _shortened(value: Any) -> Any:
    """The same with long texts cut, which are contents of tensors: the folder has the case as it is."""
    if isinstance(value, str) and len(value) > FLOOD:
        return f"{value[:LONGEST_LINE]}... {len(value):,} characters, which the case file has"
    if isinstance(value, dict):
        return {key: _shortened(part) for key, part in value.items()}
    return [_shortened(part) for part in value] if isinstance(value, list) else value


def compact(value: Any, indent: int = 0, used: int = 0) -> str:
    """JSON in as few lines as fit: a value that fits into what is left of its line stays on it.

    Args:
        value: JSON data.
        indent: columns in front of the lines of this value.
        used: columns that its first line has used already.
    """
    flat = json.dumps(value)
    if len(flat) <= WIDTH - max(indent, used) or not isinstance(value, (dict, list)) or not value:
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, list):
        parts = [compact(part, indent + 1) for part in value]
        opening, closing = "[]"
    else:
        keys = {json.dumps(key): part for key, part in value.items()}
        parts = [f"{key}: {compact(part, indent + 1, indent + 3 + len(key))}" for key, part in keys.items()]
        opening, closing = "{}"
    return opening + f",\n{pad}".join(parts) + closing


def seen(verdict: Verdict) -> str:
    """What was seen, on one line."""
    if verdict.finding is None:
        return " ".join(verdict.reason.split())
    return _seen(verdict.finding)


def further(verdict: Verdict) -> list[str]:
    """What else broke the rule, a line for each: what was seen, where, and the file that has its case.

    Deaths at one instruction of the target's library stand on one line, each with its operators and its case:
    most often they are one fault. They may be two of its callers', so that no case is left out for it.
    """
    own = spots.of(verdict.target, verdict.outcome, verdict.finding) if verdict.finding else None
    groups: dict[Any, list[tuple[int, Further]]] = {}
    for number, each in enumerate(verdict.further, 2):
        spot = spots.of(verdict.target, each.outcome, each.finding)
        groups.setdefault(spot or number, []).append((number, each))
    return [
        _at_the_finding(verdict.finding, group) if spot == own and verdict.finding else _of_one_spot(group)
        for spot, group in groups.items()
    ]


def _at_the_finding(first: Finding, group: Sequence[tuple[int, Further]]) -> str:
    """The line of those that died where the finding did."""
    kinds = {each.finding.fingerprint.operators for _, each in group} | {first.fingerprint.operators}
    seen = f"{group[0][1].outcome.value} at the same place of the library as the finding"
    return f"{seen}, of {counted(len(kinds), 'set')} of operators in all: {_also(group)}"


def _of_one_spot(group: Sequence[tuple[int, Further]]) -> str:
    """The line of one, with those that died where it did."""
    (number, each), *others = group
    return (
        f"{each.outcome.value}: {_seen(each.finding)}"
        + (f" (with {', '.join(each.finding.fingerprint.operators)})" if _has_operators(each) else "")
        + (f", flaky: the case {each.flaky}" if each.flaky else "")
        + f", case in {_file(number, each)}"
        + (f"; at the same place of the library also {_also(others)}" if others else "")
    )


def _also(group: Sequence[tuple[int, Further]]) -> str:
    """The operators of each, or its call, with the file of its case."""
    return "; ".join(
        f"{_operators_or_call(each.finding)} ({_file(number, each)}"
        + (f", flaky: the case {each.flaky})" if each.flaky else ")")
        for number, each in group
    )


def _operators_or_call(finding: Finding) -> str:
    mark = finding.fingerprint
    return ", ".join(mark.operators) or mark.call or "another call"


def _file(number: int, one: Further) -> str:
    return f".pytest-qnn/{one.file}" if one.file else case_file(number)


def _has_operators(one: Further) -> bool:
    return bool(one.finding.fingerprint.operators)


def _seen(finding: Finding) -> str:
    where = f" ({finding.where})" if finding.where else ""
    return " ".join(f"{finding.seen}{where}".split())

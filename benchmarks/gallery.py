"""The gallery of conforming oddities, judged by all rules of a half: docs/measured/gallery.md.

python -m benchmarks.gallery HALF [--only PATTERN]... [--profile default] [--seed 1] [--load K]
                             [--jobs N] [--examples N] [--results FILE] [--table FILE]

Each target of ``tests/gallery/HALF/targets.py`` is one line of the results, which are appended as they come:
a further call goes on where the last one ended. ``--again`` judges anew what was judged before. ``--jobs``
judges several targets at once, all beside the same busy loops. ``--table`` judges nothing: it writes the
tables of the half into the document.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import fnmatch
import importlib
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.quiet import busy
from pytest_qnn.core.engine import InternalError, judge_with_owners
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Level, Outcome, Verdict
from pytest_qnn.effort import profile as profile_named
from pytest_qnn.isolation.observe.cpu_time import usage
from pytest_qnn.isolation.processes import die_with_parent
from pytest_qnn.rules import catalogue

HALVES = {"qnn": "memory", "tflite": "delegate"}
"""Folder of the gallery -> subject of its rules."""
_QUIET = (Outcome.PASS.value, Outcome.UNSUPPORTED.value)
_INTERNAL = "internal error"
"""The suite itself failed."""


class Red(msgspec.Struct, frozen=True):
    """A rule that is neither passed nor unsupported."""

    rule: str
    level: str
    outcome: str
    text: str
    found_by: str = ""


class Judged(msgspec.Struct, frozen=True):
    """What all rules of a half said of one target."""

    half: str
    target: str
    profile: str
    seed: int
    load: int
    """Busy loops beside."""
    day: str
    seconds: float
    """Processor time, that of children included."""
    met: int
    """How often the target used its freedom meanwhile."""
    outcomes: dict[str, int]
    red: list[Red]
    meant: list[Red] = []
    """What the target means to do: of level SHOULD."""

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What a further call does not judge again."""
        return self.half, self.target, self.profile, self.seed, self.load


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description=__doc__.splitlines()[0])
    parser.add_argument("half", choices=HALVES)
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="targets like this; more than once"
    )
    parser.add_argument("--again", action="store_true", help="even what was judged before")
    parser.add_argument("--profile", default="default")
    parser.add_argument("--examples", type=int, default=0, help="for each rule, in place of the profile's")
    parser.add_argument("--rules", default="", help="these rules only; nothing is then kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=int, default=0, metavar="K", help="busy loops beside")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="targets judged at once")
    parser.add_argument("--results", type=Path, default=Path("docs/measured/gallery.jsonl"), metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the document from the results")
    options = parser.parse_args()
    gallery = importlib.import_module(f"tests.gallery.{options.half}.targets")
    if options.table:
        known = options.table.read_text() if options.table.exists() else ""
        options.table.write_text(document(gallery, options.half, kept(options.results), known))
        return
    name_of_profile = f"{options.examples} examples" if options.examples else options.profile
    patterns = options.only or ["*"]
    chosen = [name for name in gallery.targets() if any(fnmatch.fnmatch(name, each) for each in patterns)]
    known = {each.key for each in kept(options.results)}
    only_rules = set(filter(None, options.rules.split(",")))
    keys = [(options.half, name, name_of_profile, options.seed, options.load) for name in chosen]
    wanted = [key for key in keys if options.again or only_rules or key not in known]
    apart = multiprocessing.get_context("spawn")  # busy loops are no children of a process that judges
    pool = concurrent.futures.ProcessPoolExecutor(options.jobs, apart, die_with_parent)
    with busy(options.load), pool as several:
        running = [several.submit(_judged_by_name, key, only_rules) for key in wanted]
        for ended in concurrent.futures.as_completed(running):
            found = ended.result()
            print(line(found), flush=True)
            if not only_rules:
                with options.results.open("ab") as file:
                    file.write(msgspec.json.encode(found) + b"\n")


def _judged_by_name(key: tuple[str, str, str, int, int], only: set[str]) -> Judged:
    """The same in a process that has no gallery yet."""
    return judged(importlib.import_module(f"tests.gallery.{key[0]}.targets"), key, only)


def judged(gallery: Any, key: tuple[str, str, str, int, int], only: set[str]) -> Judged:
    """Judge one target by all rules of its half, or only by some."""
    half, name, profile, seed, _ = key
    started, before = _cpu(), gallery.met(name)
    with contextlib.closing(gallery.targets()[name]()) as target:
        verdicts = list(_verdicts(target, HALVES[half], _profile(profile), seed, only))
    red = [each for outcome, each in verdicts if outcome not in _QUIET]
    allowed = getattr(gallery, "MEANT", {}).get(name, ())
    meant = [each for each in red if each.rule in allowed and each.level != Level.MUST.value]
    return Judged(
        *key,
        day=datetime.date.today().isoformat(),
        seconds=round(_cpu() - started, 1),
        met=gallery.met(name) - before,
        outcomes=dict(Counter(outcome for outcome, _ in verdicts)),
        red=[each for each in red if each not in meant],
        meant=meant,
    )


def _profile(name: str) -> Profile:
    """A profile, or a flat number of examples."""
    number, _, flat = name.partition(" ")
    return Profile(name, int(number), int(number), shrink_seconds=5.0) if flat else profile_named(name)


def _verdicts(
    target: Any, subject: str, profile: Profile, seed: int, only: set[str]
) -> Iterator[tuple[str, Red]]:
    """The outcome of each rule, and what there is to say if it is a red one."""
    rules = catalogue()
    for rule in rules.values():
        if rule.subject == subject and not rule.self_check and (not only or rule.id in only):
            try:
                verdict, handed_over = judge_with_owners(rule, target, profile, seed, rules.__getitem__)
            except InternalError as error:
                text = f"{error.__cause__!r} in {error.args}"
                yield _INTERNAL, Red(rule.id, rule.level.value, _INTERNAL, text)
                continue
            for each in (verdict, *handed_over):
                yield each.outcome.value, _red(each)


def _red(verdict: Verdict) -> Red:
    found = verdict.finding
    text = f"{found}" if found else verdict.reason
    return Red(verdict.rule, verdict.level.value, verdict.outcome.value, text[:2000], verdict.found_by)


def line(found: Judged) -> str:
    """One target for the terminal."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.outcomes.items()))
    head = f"{found.target}: {counts}; met {found.met} times; {found.seconds:.0f} s of processor time"
    reds = (f"\n  {each.rule} ({each.level}) {each.outcome}: {each.text}" for each in found.red)
    meant = (f"\n  {each.rule} ({each.level}) is meant" for each in found.meant)
    return head + "".join(reds) + "".join(meant)


def kept(results: Path) -> list[Judged]:
    """The results so far, in order."""
    lines = results.read_bytes().splitlines() if results.exists() else []
    return [msgspec.json.decode(each, type=Judged) for each in lines]


def _cpu() -> float:
    """Seconds of processor time of this process and all that it started."""
    return usage([os.getpid()]).cpu


def document(gallery: Any, half: str, results: Iterable[Judged], known: str) -> str:
    """The document with the tables of one half made again, between its two marks."""
    begin, end = f"<!-- begin {half} -->\n", f"<!-- end {half} -->\n"
    before, _, rest = known.partition(begin)
    _, _, after = rest.partition(end)
    mine = [each for each in results if each.half == half]
    return before + begin + _tables(gallery, mine) + end + after


def _tables(gallery: Any, results: list[Judged]) -> str:
    """One row for each target: its last run in ``default``, or, without one, another; then the others."""
    last = {each.key: each for each in results}
    alone = [each for each in last.values() if not each.load]
    usual = {each.target: each for each in sorted(alone, key=lambda each: each.profile == "default")}
    others = [each for each in last.values() if each is not usual.get(each.target)]
    rows = [
        f"| `{name}` | {' | '.join(map(_cell, about))} | {_profile_of(usual.get(name))} "
        f"| {_summary(usual.get(name))} |\n"
        for name, about in gallery.FREEDOMS.items()
    ]
    further = [
        f"| `{each.target}` | {each.profile} | {each.seed} | {each.load} | {_summary(each)} |\n"
        for each in sorted(others, key=lambda each: (each.profile, each.load, each.seed))
    ]
    seconds = sum(each.seconds for each in usual.values())
    whole = sum(each.profile == "default" for each in usual.values())
    days = sorted({each.day for each in results})
    head = f"\n{len(usual)} of {len(rows)} judged, {whole} of them in profile `default`; "
    head += f"{seconds:.0f} s of processor time, {' to '.join(sorted({*days[:1], *days[-1:]}))}.\n\n"
    found = head + _ROWS + "".join(rows)
    return found + ("\nOther runs:\n\n" + _FURTHER + "".join(further) if further else "") + "\n"


_ROWS = (
    "| target | freedom | source | a client sees | profile | times met | result | s |\n"
    "|---|---|---|---|---|---:|---|---:|\n"
)
_FURTHER = (
    "| target | profile | seed | loops beside | times met | result | s |\n|---|---|---:|---:|---:|---|---:|\n"
)


def _profile_of(found: Judged | None) -> str:
    return found.profile if found else "-"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _summary(found: Judged | None) -> str:
    """Three cells: times met, what the rules say, seconds."""
    if found is None:
        return "- | not judged yet | -"
    counts = f"{found.outcomes.get('pass', 0)} pass, {found.outcomes.get('unsupported', 0)} unsupported"
    red = "".join(f"; **{each.rule} {each.outcome}**" for each in found.red)
    meant = "".join(f"; {each.rule} is meant" for each in found.meant)
    return f"{found.met} | {counts}{red}{meant} | {found.seconds:.0f}"


if __name__ == "__main__":
    main()

"""The rows of the blame matrix, what each was judged by, and which of it still holds.

A row names the digests of the rules, with their cases, checks and controls, in a file beside the rows that
has each set of them once. Of a fault with several rows each rule's last word counts. Not part of a digest is
what cases meet afterwards: the runner, the reference, the runtimes. Only what fails meets controls: where
nothing did, a rule's word holds as long as its cases and its check are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from benchmarks.gallery.results import Rules, name_rules, named, rules_before
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.verdict import Level
from pytest_qnn.mutants.digests import rule_digest
from pytest_qnn.rules import catalogue


class Row(msgspec.Struct, frozen=True):
    """What all rules say of one fault; each list holds ids in order."""

    name: str
    owners: list[str]
    """Rules that it breaks, of those that failed."""
    missed: list[str]
    """Rules that it breaks and that saw nothing in so few cases."""
    accused: list[str]
    """Other MUST rules that failed."""
    advised: list[str]
    """Other SHOULD and MAY rules that failed."""
    blocked: list[str]
    """Rules of which nothing was left to judge."""
    seconds: float
    """CPU time, children included."""
    seed: int
    seen: dict[str, str] = {}
    """By rule of `accused`, what it saw."""
    unjudged: list[str] = []
    """Rules that were left out, or (with the error in brackets) in which the suite itself failed."""
    later: list[str] = []
    """Rules of `missed` that fail in profile `default` (``--owners``)."""
    by: dict[str, list[str]] = {}
    """By rule in whose cases something failed: the rules of which that is a finding."""
    rules: list[str] = []
    """Those that judged the fault, where these were not all of its half."""
    left_open: list[str] = []
    """Rules that were inconclusive and are not in `blocked` (not told in rows from before 2026-11-30)."""
    whole: bool = False
    """Of the rules in `rules` in profile `default`: it says what is `later`, and nothing else."""
    day: str = ""
    digests: str = ""
    """The name of the `Rules` that they were; empty in rows from before 2026-11-30, as is what follows."""
    fault: str = ""
    """Digest of the fault."""


def rules_now(subject: Subject) -> Rules:
    """Those of a half as they are, without the self-checks, which judge no target."""
    wanted = [each.id for each in catalogue().values() if each.subject == subject and not each.self_check]
    wanted.sort()
    return named(
        {each: rule_digest(each, controls=True) for each in wanted},
        {each: rule_digest(each) for each in wanted},
    )


def keep(results: Path, row: Row, rules: Rules) -> None:
    """Append a row, and the rules that it names."""
    name_rules(results, rules)
    with results.open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def kept(results: Path) -> list[Row]:
    """The rows so far, in order."""
    lines = results.read_bytes().splitlines() if results.exists() else []
    return [msgspec.json.decode(each, type=Row) for each in lines]


Digest = tuple[str, str]
"""A rule, and its digest with controls."""


class Said(msgspec.Struct, frozen=True):
    """The last that one rule has said of a fault."""

    digest: str
    """Of the rule then, with controls."""
    plain: str
    """The same without; empty: not known."""
    failed: list[str]
    """Rules of which it saw a violation: its own, or one that it handed over."""
    blocked: bool
    unjudged: str
    """With the error; empty: it judged."""
    left_open: bool

    def holds(self, now: Rules, rule: str) -> bool:
        """Whether the rule would say the same now, for all that is in digests."""
        met_controls = self.failed or self.blocked or self.unjudged or self.left_open
        is_plain = self.plain and self.plain == now.plain.get(rule)
        return self.digest == now.digests[rule] or bool(is_plain and not met_controls)


class Standing(msgspec.Struct):
    """What the rows of one fault amount to."""

    first: Row
    """The last row of all rules."""
    fault: str = ""
    said: dict[str, Said] = {}
    """By rule; empty where the row does not say what its rules were."""
    seen: dict[str, str] = {}
    later: list[str] = []
    seconds: float = 0.0
    day: str = ""

    @property
    def blocks(self) -> int:
        """Of how many rules nothing was left to judge."""
        return sum(each.blocked for each in self.said.values()) if self.said else len(self.first.blocked)

    def add(self, row: Row, rules: Rules, plain: Mapping[Digest, str]) -> None:
        """A later row, of rules that were these; ``plain``: digests without controls."""
        self.day = row.day
        self.seconds += row.seconds
        if row.whole:
            self.later = row.later
            return
        errors = {text.partition(" ")[0]: text for text in row.unjudged if " " in text}
        left_out = {text for text in row.unjudged if " " not in text}
        for rule in row.rules or rules.digests:
            if rule in left_out:
                continue
            digest = rules.digests[rule]
            self.said[rule] = Said(
                digest,
                plain.get((rule, digest), ""),
                row.by.get(rule, []),
                rule in row.blocked,
                errors.get(rule, ""),
                rule in row.left_open,
            )
        self.seen |= row.seen
        self.later = [rule for rule in self.later if rule not in row.rules]

    def stale(self, now: Rules, fault: str) -> list[str]:
        """The rules that have judged nothing here since their cases, checks or controls were changed."""
        if fault != self.fault:
            return [*now.digests]
        said = self.said
        return [rule for rule in now.digests if rule not in said or not said[rule].holds(now, rule)]

    def row(self, kills: Iterable[str]) -> Row:
        """As one row of all rules that there still are.

        Args:
            kills: the rules that the fault breaks.
        """
        if not self.said:
            return msgspec.structs.replace(self.first, later=self.later, seconds=round(self.seconds, 1))
        rules = catalogue()
        said = {rule: each for rule, each in self.said.items() if rule in rules}
        failed = {rule for each in said.values() for rule in each.failed if rule in rules}
        others = sorted(failed.difference(kills))
        accused = [rule for rule in others if rules[rule].level is Level.MUST]
        missed = sorted(set(kills).difference(failed))
        left_out = [rule for rule in self.first.unjudged if " " not in rule and rule not in said]
        return msgspec.structs.replace(
            self.first,
            owners=sorted(failed.intersection(kills)),
            missed=missed,
            accused=accused,
            advised=[rule for rule in others if rule not in accused],
            blocked=sorted(rule for rule, each in said.items() if each.blocked),
            seconds=round(self.seconds, 1),
            seen={rule: self.seen.get(rule, "") for rule in accused},
            unjudged=sorted([*left_out, *(each.unjudged for each in said.values() if each.unjudged)]),
            later=[rule for rule in self.later if rule in missed],
            by={rule: each.failed for rule, each in said.items() if each.failed},
            day=self.day,
        )


def standing(rows: Iterable[Row], before: Mapping[str, Rules]) -> dict[str, Standing]:
    """By fault. A row that does not say what its rules were stands as it is, until there is another one."""
    plain = {
        (rule, rules.digests[rule]): digest
        for rules in before.values()
        for rule, digest in rules.plain.items()
    }
    found: dict[str, Standing] = {}
    for row in rows:
        one = found.get(row.name)
        if row.digests not in before:
            found[row.name] = Standing(row, later=row.later, seconds=row.seconds, day=row.day)
            continue
        if one is None or not (row.rules or row.whole):
            found[row.name] = one = Standing(row, row.fault)
        one.add(row, before[row.digests], plain)
    return found


def known(results: Path) -> dict[str, Standing]:
    """What the file of rows amounts to, by fault."""
    return standing(kept(results), rules_before(results))


Left = dict[str, list[str]]
"""By fault, the rules that have not judged it as they are."""


def left(
    found: Mapping[str, Standing],
    faults: Mapping[str, tuple[str, Rules]],
    left_out: Callable[[str, str], bool],
) -> Left:
    """What has not been judged by the rules, controls and faults as they are.

    Args:
        found: what has been judged.
        faults: the digest of each fault now, and the rules of its half.
        left_out: whether a rule, named second, does not judge a fault.
    """
    waiting = {
        name: found[name].stale(now, digest) if name in found else [*now.digests]
        for name, (digest, now) in faults.items()
    }
    wanted = {name: [rule for rule in rules if not left_out(name, rule)] for name, rules in waiting.items()}
    return {name: rules for name, rules in wanted.items() if rules}

"""What rules have said of the targets of a gallery, and which of it still holds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from pytest_qnn.core.verdict import Outcome
from pytest_qnn.mutants.digests import rule_digest
from pytest_qnn.rules import catalogue

HALVES = {"qnn": "memory", "tflite": "delegate"}
"""Folder of the gallery -> subject of its rules."""
QUIET = (Outcome.PASS.value, Outcome.UNSUPPORTED.value)

Key = tuple[str, str, str, int, int]
"""Half, target, profile, seed, busy loops beside."""


class Red(msgspec.Struct, frozen=True):
    """A rule that is neither passed nor unsupported."""

    rule: str
    level: str
    outcome: str
    text: str
    found_by: str = ""

    @property
    def judging(self) -> str:
        """The rule in whose search it came out."""
        return self.found_by or self.rule


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the rules of a half, or some of them, said of one target."""

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
    unsupported: list[str] = []
    """Rules; those that are neither here nor red have passed."""
    rules: list[str] = []
    """Those that judged it, where these were not all of its half."""
    digests: str = ""
    """Name of the `Rules` that they were; empty in results from before 2026-11-29."""

    @property
    def key(self) -> Key:
        """What a further call does not judge again."""
        return self.half, self.target, self.profile, self.seed, self.load


class Rules(msgspec.Struct, frozen=True):
    """The rules of a half as they were."""

    name: str
    digests: dict[str, str]
    """By rule (`pytest_qnn.mutants.digests.rule_digest`)."""
    plain: dict[str, str] = {}
    """Where these are with controls: the same without. Rules from before 2026-11-30 may have none."""


def rules_of(half: str) -> Rules:
    """As they are now; without the self-checks, which judge no target."""
    subject = HALVES[half]
    wanted = [each.id for each in catalogue().values() if each.subject == subject and not each.self_check]
    return named({each: rule_digest(each) for each in sorted(wanted)})


def named(digests: dict[str, str], plain: dict[str, str] | None = None) -> Rules:
    """Rules with these digests, by the name that they have wherever they are the same."""
    return Rules(hashlib.sha256(msgspec.json.encode(digests)).hexdigest()[:16], digests, plain or {})


def kept(results: Path) -> list[Judged]:
    """The results so far, in order."""
    lines = results.read_bytes().splitlines() if results.exists() else []
    return [msgspec.json.decode(each, type=Judged) for each in lines]


def _file_of_rules(results: Path) -> Path:
    return results.with_name(f"{results.stem}-rules.jsonl")


def rules_before(results: Path) -> dict[str, Rules]:
    """All rules that results name, by that name: they are in a file beside the results."""
    file = _file_of_rules(results)
    lines = file.read_bytes().splitlines() if file.exists() else []
    return {each.name: each for each in (msgspec.json.decode(line, type=Rules) for line in lines)}


def keep(results: Path, found: Judged, rules: Rules) -> None:
    """Append a result, and the rules that it names where no other has named them."""
    name_rules(results, rules)
    with results.open("ab") as file:
        file.write(msgspec.json.encode(found) + b"\n")


def name_rules(results: Path, rules: Rules) -> None:
    """Keep the rules that a result names, where no other has named them."""
    if rules.name not in rules_before(results):
        with _file_of_rules(results).open("ab") as file:
            file.write(msgspec.json.encode(rules) + b"\n")


class Said(msgspec.Struct, frozen=True):
    """The last that one rule has said of a target."""

    digest: str
    """Of the rule then."""
    day: str
    unsupported: bool
    red: tuple[Red, ...]
    meant: tuple[Red, ...]


class Standing(msgspec.Struct):
    """What several results of one key amount to: of each rule the last one counts."""

    said: dict[str, Said] = {}
    met: int = 0
    seconds: float = 0.0

    def add(self, found: Judged, rules: Rules) -> None:
        """A later result, of rules that were these."""
        self.met += found.met
        self.seconds += found.seconds
        self.note(found, rules)

    def note(self, found: Judged, rules: Rules) -> None:
        """What they said alone: the result is another key's."""
        for rule in found.rules or rules.digests:
            red, meant = (
                tuple(each for each in some if each.judging == rule) for some in (found.red, found.meant)
            )
            self.said[rule] = Said(rules.digests[rule], found.day, rule in found.unsupported, red, meant)

    def stale(self, now: Rules) -> list[str]:
        """The rules that have judged nothing here since their cases or checks were changed."""
        said = self.said
        return [
            rule for rule, digest in now.digests.items() if rule not in said or said[rule].digest != digest
        ]

    def judged(self, key: Key, now: Rules) -> Judged:
        """As one result of all rules that there still are."""
        said = {rule: each for rule, each in self.said.items() if rule in now.digests}
        red, meant = (
            [one for each in said.values() for one in some(each)]
            for some in (lambda each: each.red, lambda each: each.meant)
        )
        unsupported = [rule for rule, each in said.items() if each.unsupported]
        others = Counter(each.outcome for each in (*red, *meant))
        loud = {each.judging for each in (*red, *meant)}
        passed = sum(not each.unsupported and rule not in loud for rule, each in said.items())
        outcomes = {Outcome.PASS.value: passed, Outcome.UNSUPPORTED.value: len(unsupported), **others}
        day = max(each.day for each in said.values())
        return Judged(*key, day, self.seconds, self.met, outcomes, red, meant, unsupported)


def standing(results: Iterable[Judged], before: Mapping[str, Rules]) -> dict[Key, Standing]:
    """By key, of the results that say which rules they are of.

    What was judged beside busy loops was judged: the same cases are carried out, at another pace. So such a
    result counts for the key without loops as well, and none without loops for one with them.
    """
    found: dict[Key, Standing] = {}
    for each in results:
        if each.digests not in before:
            continue
        found.setdefault(each.key, Standing()).add(each, before[each.digests])
        if each.load:
            *what, _ = each.key
            found.setdefault((*what, 0), Standing()).note(each, before[each.digests])
    return found

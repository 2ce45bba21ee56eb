"""The reports of shards read back, and what must hold of them to belong together.

A report comes from elsewhere. All of it that goes into another report is checked here for its form.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from pytest_qnn import rules
from pytest_qnn.core import regular_file
from pytest_qnn.core.bounds import shown
from pytest_qnn.core.forms import MOST_PARTS
from pytest_qnn.core.printable import one_line
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.verdict import Verdict
from pytest_qnn.report import document, loaded
from pytest_qnn.report.loaded import BadReport, Number, RuleId

LONGEST = 300
"""Characters of a sentence: words of the reports may be part of it."""
_DEEPEST = 100
"""Levels of values in values; a case has fewer than twenty."""
Count = Annotated[int, Meta(ge=0, le=10**15)]


class Part(Verdict, frozen=True, kw_only=True):
    """A verdict that was read, with numbers that can be added up and written."""

    rule: RuleId
    examples: Count
    examined: Count
    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    seed: Count
    block: Count = 0
    only_in_company: Count = 0


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a campaign a run was, and what it found."""

    number: int
    of: int
    exit_status: Number
    campaign: tuple[RuleId, ...]
    """Rules of all shards together."""
    units: dict[RuleId, tuple[Number, ...]]
    """Seed blocks of the rules whose tests were collected here, this shard's own."""
    parts: tuple[Part, ...]
    """The verdict of each unit, and those on other rules from its cases."""


class Choice(loaded.Choice, frozen=True):
    """With the low bits of the call's answer."""

    code: int | None = None


class Sample(msgspec.Struct, frozen=True):
    """What became of one sample graph."""

    nodes: Number
    kernels: Number
    switches: Number
    left: dict[str, Number]


class Partitioning(loaded.Partitioning, frozen=True):
    """With each graph's numbers."""

    samples: tuple[Sample, ...] = ()


class Price(msgspec.Struct, frozen=True):
    """What a plain case of a delegate takes, and how often one case may do as much."""

    seconds: float
    most_lives: int


class Declared(msgspec.Struct, frozen=True):
    """Beside what is declared to be supported: what is not there, and what more there is."""

    missing: tuple[str, ...]
    more: tuple[str, ...]


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is said of a target but its rules."""

    subject: Subject
    spec: str
    options: tuple[str, ...]
    provenance: dict[str, str]
    claims: tuple[loaded.Claim, ...] | msgspec.UnsetType = msgspec.UNSET
    partitioning: Partitioning | msgspec.UnsetType = msgspec.UNSET
    price: Price | msgspec.UnsetType = msgspec.UNSET
    capabilities: loaded.Capabilities | msgspec.UnsetType = msgspec.UNSET
    choices: tuple[Choice, ...] | msgspec.UnsetType = msgspec.UNSET
    declared: Declared | msgspec.UnsetType = msgspec.UNSET

    @property
    def was_opened(self) -> bool:
        """False: none of the shard's rules needed it, and nothing is known of it."""
        return bool(self.options or self.provenance)


class ShardReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a shard."""

    complete: bool
    halves: tuple[Subject, ...]
    catalogue: loaded.Catalogue
    tool: dict[str, str]
    python: str
    platform: str
    started: str
    finished: str
    seed: Number
    profile: str
    options: dict[str, Any]
    submission: dict[str, str] = {}
    held_back: tuple[str, ...] | None = None
    host_lacks: tuple[str, ...] = ()
    shard: Shard | None = None
    targets: tuple[Target, ...]
    extra: dict[str, Any] = {}

    @property
    def part(self) -> Shard:
        """Which part of the campaign it is.

        Raises:
            ValueError: it is of no shard; `read` gives no such report.
        """
        if self.shard is None:
            raise ValueError("a report of no shard")
        return self.shard

    @property
    def blocks(self) -> int:
        """Seed blocks of each rule."""
        return int(self.options["qnn_blocks"])


class Named(NamedTuple):
    """A report and the file that it is of."""

    path: Path
    report: ShardReport


def read(path: Path) -> Named:
    """Read and check the report of a shard.

    Raises:
        BadReport: it cannot be read, is the report of no shard, or one that another pytest-qnn has made.
    """
    loaded.read(path)
    try:
        report = msgspec.json.decode(regular_file.read(path, loaded.LARGEST_FILE), type=ShardReport)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise _bad(path, f"is no report that can be merged: {error}") from None
    if report.shard is None:
        raise _bad(path, "is the report of a whole run, and not that of a shard (--qnn-shard)")
    why = next(_foreign(report), "") or next(_contradictions(report, report.shard), "")
    if why:
        raise _bad(path, why)
    return Named(path, report)


def _bad(path: Path, text: str) -> BadReport:
    return BadReport(f"{one_line(str(path), LONGEST)} {one_line(text, LONGEST)}")


def _foreign(report: ShardReport) -> Iterator[str]:
    """Why this pytest-qnn cannot say what the report's verdicts come to."""
    made, here = report.tool.get("pytest-qnn", ""), metadata.version("pytest-qnn")
    if made != here:
        yield f"was made by pytest-qnn {made}, and this is {here}: merge with the one that made it"
    if report.catalogue.sha256 != document.fingerprint():
        yield "was made by a pytest-qnn with other rules than this one's: merge with the one that made it"


def _contradictions(report: ShardReport, shard: Shard) -> Iterator[str]:
    """What a run cannot have written."""
    blocks = report.options.get("qnn_blocks")
    if type(blocks) is not int or not 1 <= blocks <= MOST_PARTS:
        yield "says of no seed blocks how many there are"
        return
    if not 1 <= shard.number <= shard.of <= MOST_PARTS:
        yield f"is shard {shown(shard.number)} of {shown(shard.of)}"
    subjects = [target.subject for target in report.targets]
    if sorted(subjects) != sorted(set(report.halves)) or len(subjects) != len(report.halves):
        yield "has other targets than those of its halves"
    if not (_is_shallow(report.options) and _is_shallow(report.extra)):
        yield f"has values in values, more than {_DEEPEST} levels of them"
    listed, campaign = rules.listed(), set(shard.campaign)
    for rule_id in {*campaign, *shard.units}:
        if rule_id not in listed:
            yield f"is about {rule_id}, and there is no such rule"
    for rule_id, own in shard.units.items():
        if rule_id not in campaign or not all(block < blocks for block in own):
            yield f"has units of {rule_id} that are not its campaign's"
    yield from _contradictory_parts(report, shard)


def _contradictory_parts(report: ShardReport, shard: Shard) -> Iterator[str]:
    """The same of its verdicts."""
    specs = {(target.subject, target.spec) for target in report.targets}
    listed = rules.listed()
    for part in shard.parts:
        demand = listed.get(part.rule)
        if demand is None or (demand.level, demand.subject) != (part.level, part.subject):
            yield f"has a verdict on {part.rule}, and there is no such rule"
        elif (part.subject, part.target) not in specs:
            yield f"has a verdict on {part.target}, which is not its target"
        elif not part.found_by and part.block not in shard.units.get(part.rule, ()):
            yield f"has a verdict on block {part.block} of {part.rule}, which is not its unit"
        found = [*filter(None, (part.finding,)), *(each.finding for each in part.further)]
        if not all(_is_case(each.case) for each in found):
            yield f"has a finding of {part.rule} with a case that is none"


def _is_case(text: str) -> bool:
    """Whether it may be the text of a case: an object of JSON; empty: there is none."""
    try:
        return not text or _is_shallow(msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _is_shallow(data: Any) -> bool:
    """Whether JSON data has so few levels that it can be gone through level in level."""
    level = [data]
    for _ in range(_DEEPEST):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
        if not level:
            return True
    return False


_OF_ONE_MACHINE = ("qnn_shard", "qnn_corpus")
"""Options that may differ: the shard's number, and the absolute path of a folder."""


def check(reports: Sequence[Named]) -> None:
    """Refuse reports that are not all shards of one campaign.

    Raises:
        BadReport: with the one sentence that says which and why.
    """
    # Each pair: a shard that needed no target of a half says nothing of it, and the next one may.
    for first, other in itertools.combinations(reports, 2):
        why = next(_differences(first.report, other.report), "")
        if why:
            raise _bad(other.path, f"is of another campaign than {first.path}: {why}")
    _check_numbers(reports)
    _check_units(reports)


def _differences(one: ShardReport, other: ShardReport) -> Iterator[str]:
    """What differs that is the same in all shards of a campaign, in the words of the report."""
    yield from _unequal("tool", one.tool, other.tool)
    for name in ("seed", "profile", "halves"):
        if getattr(one, name) != getattr(other, name):
            yield f"{name} {getattr(one, name)} and {getattr(other, name)}"
    options = [
        {key: value for key, value in each.options.items() if key not in _OF_ONE_MACHINE}
        for each in (one, other)
    ]
    yield from _unequal("options", *options)
    yield from _unequal("submission", one.submission, other.submission)
    if one.part.of != other.part.of:
        yield f"{one.part.of} and {other.part.of} shards"
    if one.part.campaign != other.part.campaign:
        yield "they select different rules"
    for mine, theirs in zip(one.targets, other.targets, strict=True):
        if mine.spec != theirs.spec:
            yield f"targets {mine.spec} and {theirs.spec}"
        elif mine.was_opened and theirs.was_opened:
            yield from _unequal(f"target {mine.spec}", mine.provenance, theirs.provenance)
            if mine.options != theirs.options:
                yield f"target {mine.spec}, options: {' '.join(mine.options)} and {' '.join(theirs.options)}"


def _unequal(what: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    for key in sorted({*one, *other}):
        if one.get(key) != other.get(key):
            yield f"{what}, {key}: {one.get(key)} and {other.get(key)}"


def _check_numbers(reports: Sequence[Named]) -> None:
    of = reports[0].report.part.of
    known: dict[int, Path] = {}
    for path, report in reports:
        number = report.part.number
        if number in known:
            raise _bad(path, f"is shard {number}/{of}, and so is {known[number]}")
        known[number] = path
    missing = [str(number) for number in range(1, of + 1) if number not in known]
    if missing:
        raise BadReport(one_line(f"of {of} shards these are missing: {', '.join(missing)}", LONGEST))


def _check_units(reports: Sequence[Named]) -> None:
    """No unit twice; of a rule all blocks, or none where its test was not collected in any shard."""
    counted = Counter(
        (rule_id, block)
        for _, report in reports
        for rule_id, own in report.part.units.items()
        for block in own
    )
    for (rule_id, block), times in sorted(counted.items()):
        if times > 1:
            raise BadReport(f"block {block} of {rule_id} is in {times} shards")
    blocks = range(reports[0].report.blocks)
    for rule_id in sorted({rule_id for rule_id, _ in counted}):
        for block in blocks:
            if (rule_id, block) not in counted:
                raise BadReport(
                    f"block {block} of {rule_id} is in no shard: different tests were collected in them"
                )

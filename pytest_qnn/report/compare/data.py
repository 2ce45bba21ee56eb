"""What differs between two reports, as data, schema 1.

``worse`` is what makes the exit status 1. `schema.json`, beside this module, is made from these types:
``python -m pytest_qnn.report.compare.data > pytest_qnn/report/compare/schema.json``.
"""

from __future__ import annotations

import json
from typing import Literal

import msgspec

from pytest_qnn.core import json_schema
from pytest_qnn.core.rule import Subject

RuleKind = Literal[
    "regression",
    "no longer offered",
    "new finding",
    "no longer judged",
    "changed finding",
    "other verdict",
    "improvement",
    "judged now",
    "new rule",
    "removed rule",
]
"""How a rule differs, the kinds that may be worse first; docs/how-to/compare.md says when it is which."""
LearnedKind = Literal["lost", "gained", "changed", "other"]
"""Of what a delegate claims. ``lost`` is worse; ``other``: the numbers are of other questions."""


class Setting(msgspec.Struct, frozen=True):
    """Something that has one value in each report: an option, a version, a digest. Empty: there is none."""

    name: str
    old: str
    new: str


class Run(msgspec.Struct, frozen=True):
    """One of the two runs."""

    started: str
    complete: bool
    """It came to its end, and every rule of its halves was judged."""
    judged: int
    """Rules, of all targets."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says of a rule."""

    state: str
    verdict: str = ""
    """Empty: the rule was not judged."""
    expected: str = ""
    seen: str = ""
    where: str = ""
    call: str = ""
    """The call at work when the process died."""
    fault: str = ""
    reason: str = ""
    """Why there is neither a pass nor a violation."""
    flaky: str = ""
    """How often the case failed, if not in every run."""
    blocked_by: tuple[str, ...] = ()
    found_by: str = ""
    """The rule in whose cases the violation was found, if that is another one."""


class RuleDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of which the two reports do not say the same."""

    kind: RuleKind
    worse: bool
    id: str
    level: str
    self_check: bool
    """The rule judges the runtime and the suite, not the target."""
    sentence: str
    old: Seen | None
    """null: the report does not have the rule."""
    new: Seen | None


class ClaimDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What a delegate claims of an operator in one type, as kinds of node."""

    kind: LearnedKind
    op: str
    dtype: str
    old_claimed: int
    old_asked: int
    """0: the report does not say what becomes of the operator."""
    old: str
    """Ranks, activations and forms by outcome."""
    new_claimed: int
    new_asked: int
    new: str


class KindDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of node of one operator and type, or a property key, that is supported in one report only."""

    kind: Literal["lost", "gained"]
    of: str
    """Operator and type, as ``ADD int8``, or ``property key``."""
    which: str
    """The rest of the kind, as ``rank 3 RELU``; the key's number; empty: the operator and type, of QNN."""


class CountDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A number of the sample graphs: kernels, switches, or nodes of an operator that are left to the CPU."""

    kind: LearnedKind
    name: str
    old: int
    new: int


class ChoiceDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend does where the documents are silent. Never worse. Empty: it was not asked."""

    point: str
    question: str
    old: str
    new: str


class Slower(msgspec.Struct, frozen=True):
    """A rule that took over twice as long, and over a second more. Never worse."""

    id: str
    old: float
    """Seconds."""
    new: float
    """Seconds."""


class TargetDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A target of the old report and the one of the new report that it is compared with."""

    subject: Subject
    old: str
    """Specification."""
    new: str
    judged: int
    """Rules that both reports judge."""
    same: int
    """Of these, how many have the same verdict and no other finding."""
    old_seconds: float
    """What these rules took, on the clock."""
    new_seconds: float
    provenance: tuple[Setting, ...]
    rules: tuple[RuleDifference, ...]
    claims: tuple[ClaimDifference, ...]
    kinds: tuple[KindDifference, ...]
    """What is supported in one report only, kind by kind; also where the numbers of `claims` are the same."""
    partitioning: tuple[CountDifference, ...]
    choices: tuple[ChoiceDifference, ...]
    slower: tuple[Slower, ...]

    @property
    def worse(self) -> tuple[str, ...]:
        """What got worse, a name for each thing."""
        claims = sum(each.kind == "lost" for each in self.claims)
        nodes = sum(each.kind == "lost" for each in self.partitioning)
        found = [each.kind for each in self.rules if each.worse]
        counted = {f"{each.op} {each.dtype}" for each in self.claims if each.kind == "lost"}
        others = {each.of for each in self.kinds if each.kind == "lost"} - counted
        return (
            *found,
            *["claim lost"] * claims,
            *["kind no longer supported"] * len(others),
            *["more left to the CPU"] * nodes,
        )


class Unmatched(msgspec.Struct, frozen=True):
    """A target that only one of the reports has."""

    subject: Subject
    spec: str
    judged: int
    """Its rules with a verdict."""
    findings: tuple[str, ...]
    """Ids of its rules that fail, crash, hang or contradict."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All that differs between two reports."""

    schema: Literal[1] = 1
    worse: int
    """Number of things that got worse; 0: the exit status is 0."""
    old: Run
    new: Run
    settings: tuple[Setting, ...]
    """Options, versions and surroundings that differ; what decides about the cases first."""
    targets: tuple[TargetDifference, ...]
    only_old: tuple[Unmatched, ...]
    """Targets of the old report; worse where they had verdicts."""
    only_new: tuple[Unmatched, ...]
    """Targets of the new report; worse where they have findings."""


if __name__ == "__main__":
    print(
        json.dumps(
            json_schema.made_of(Comparison, "A comparison of two reports of pytest-qnn, schema 1"), indent=1
        )
    )

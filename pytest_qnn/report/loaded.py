"""A report in JSON read back, schema 2: what is compared, as typed data; the rest is not looked at.

A report comes from elsewhere. It is checked here for what `schema.json` says of the parts that are read, so
that whoever reads the data need not look twice. Importing this module loads no pytest.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pytest_qnn.core import regular_file
from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.printable import one_line
from pytest_qnn.core.rule import Subject

SCHEMA = 2
LARGEST_FILE = 1 << 26
"""Bytes. A report in which each rule is a crash with 512 calls has about 25 million."""
_LONGEST_REASON = 300
"""Characters of what is said of a file: its own words may be part of it."""
OutcomeName = Literal[
    "pass", "fail", "crash", "hang", "unsupported", "contradiction", "inconclusive", "known"
]
Number = Annotated[int, Meta(ge=0)]
RuleId = Annotated[str, Meta(pattern=r"^[A-Z]{1,12}-[0-9]{1,6}\Z")]


class BadReport(ValueError):  # noqa: N818 - it is the user's file that is bad
    """A file is no report that can be read; the text is the one sentence that says which file and why."""


class Evidence(msgspec.Struct, frozen=True):
    """Of a process that died: the call at work, and why the kernel sent the signal."""

    during: str = ""
    fault: str = ""


class Violation(msgspec.Struct, frozen=True):
    """What a finding says."""

    expected: str
    seen: str
    where: str = ""
    evidence: Evidence | None = None
    fingerprint: Fingerprint = Fingerprint()


class Further(msgspec.Struct, frozen=True):
    """A finding of a rule beside its first."""

    verdict: OutcomeName
    violation: Violation


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says of one rule. Only a rule whose ``state`` is ``judged`` has a verdict."""

    id: RuleId
    level: Literal["MUST", "SHOULD", "MAY"]
    sentence: str
    self_check: bool
    state: Literal["judged", "not_selected", "not_judged", "other_shard"]
    verdict: OutcomeName | None
    seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    reason: str = ""
    flaky: str = ""
    blocked_by: tuple[str, ...] = ()
    found_by: str = ""
    violation: Violation | None = None
    further: tuple[Further, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """Of one operator and type: how many kinds of node a delegate claims."""

    op: str
    dtype: str
    claimed: Number
    asked: Number
    text: str


class Partitioning(msgspec.Struct, frozen=True):
    """Sums over the sample graphs of a delegate."""

    graphs: Number
    nodes: Number
    kernels: Number
    switches: Number
    left: dict[str, Number]
    """Operator to number of nodes left to the CPU."""


class Capabilities(msgspec.Struct, frozen=True):
    """What a target supports."""

    operators: tuple[str, ...] = ()
    keys: tuple[int, ...] = ()
    """Property keys (QNN)."""


class Choice(msgspec.Struct, frozen=True):
    """What a QNN backend does where the documents are silent."""

    point: str
    question: str
    answer: str


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A target with its rules, by id one each."""

    subject: Subject
    spec: str
    provenance: dict[str, str]
    claims: tuple[Claim, ...] = ()
    partitioning: Partitioning | None = None
    capabilities: Capabilities = Capabilities()
    choices: tuple[Choice, ...] = ()
    rules: tuple[Rule, ...]


class Catalogue(msgspec.Struct, frozen=True):
    """Which rules the report is about."""

    rules: Number
    sha256: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report; of each half and specification it has one target."""

    complete: bool
    halves: tuple[Subject, ...]
    catalogue: Catalogue
    tool: dict[str, str]
    python: str
    platform: str
    started: str
    seed: Number
    profile: str
    options: dict[str, Any]
    held_back: tuple[str, ...] = ()
    host_lacks: tuple[str, ...] = ()
    targets: tuple[Target, ...]


class _Header(msgspec.Struct):
    schema: int


def read(path: Path) -> Report:
    """Read and check a report.

    Raises:
        BadReport: there is no such file, it cannot be read, or it is no report of schema 2.
    """
    try:
        text = regular_file.read(path, LARGEST_FILE)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadReport(_sentence(path, f"cannot be read: {reason}")) from None
    try:
        return decode(text)
    except BadReport as error:
        raise BadReport(_sentence(path, str(error))) from None


def _sentence(path: Path, text: str) -> str:
    return f"{one_line(str(path), _LONGEST_REASON)} {one_line(text, _LONGEST_REASON)}"


def decode(text: bytes) -> Report:
    """The report that this is the text of.

    Raises:
        BadReport: with the end of a sentence that begins with the file's name.
    """
    if len(text) > LARGEST_FILE:
        raise BadReport(f"has more than {LARGEST_FILE} bytes, and no report of pytest-qnn has")
    try:
        schema = msgspec.json.decode(text, type=_Header).schema
        if schema != SCHEMA:
            number = schema if schema.bit_length() <= 64 else "too great to print"
            raise BadReport(f"is a report of schema {number}, and this pytest-qnn reads schema {SCHEMA}")
        report = msgspec.json.decode(text, type=Report)
    # ValueError: a text that is no UTF-8, and a number of too many digits.
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadReport(f"is not a report of pytest-qnn: {error}") from None
    _check(report)
    return report


def _check(report: Report) -> None:
    """Raise BadReport where something is there twice, or a verdict is missing or too much."""
    _once((f"{target.subject} {target.spec}" for target in report.targets), "the target")
    for target in report.targets:
        _once((rule.id for rule in target.rules), "the rule")
        _once((f"{claim.op} {claim.dtype}" for claim in target.claims), "the claim")
        _once((choice.point for choice in target.choices), "the choice")
        for rule in target.rules:
            if (rule.state == "judged") != (rule.verdict is not None):
                said = rule.verdict or "no verdict"
                raise BadReport(f"is not a report of pytest-qnn: {rule.id} is {rule.state} and has {said}")


def _once(names: Iterable[str], what: str) -> None:
    known: set[str] = set()
    for name in names:
        if name in known:
            raise BadReport(f"is not a report of pytest-qnn: {what} {name} is there twice")
        known.add(name)

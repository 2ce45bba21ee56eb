"""Failures that a run expects: found, they are known; whatever else is found, or is not found, fails."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from pytest_qnn.core.fingerprint import Fingerprint
from pytest_qnn.core.verdict import Outcome


class KnownFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the file of ``--qnn-expect``."""

    number: int
    """Its place in the file, from 1."""
    rule: str
    verdict: Outcome
    """fail, crash, hang, contradiction or inconclusive."""
    fingerprint: Fingerprint
    library: dict[str, str]
    """Key of the target's provenance -> value, or range of versions (``>=2.30,<2.31``)."""
    reason: str
    issue: str
    owner: str
    expires: datetime.date
    """The last day on which it holds."""
    flaky: float = 0.0
    """In how many of all runs it is found, if not in each: above 0 it may be absent."""

    @property
    def text(self) -> str:
        """On one line, for reports."""
        return f"{self.reason} ({self.issue}, {self.owner}, until {self.expires.isoformat()})"


class Expectations(msgspec.Struct, frozen=True):
    """What is expected of one rule on one target."""

    accepted: Sequence[KnownFailure] = ()
    expired: Sequence[KnownFailure] = ()
    """Such as would hold, and hold no more: they accept nothing."""

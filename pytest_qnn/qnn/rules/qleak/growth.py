"""Growth of a process over many rounds of the same calls, as QLEAK-01 to -03, -07 and -08 judge it."""

from __future__ import annotations

from pytest_qnn.core.verdict import Measured
from pytest_qnn.qnn.model.growth import beyond
from pytest_qnn.qnn.trace import GrowthCounts

ROUNDS = (1000, 300, 300, 1000, 10_000)
"""To draw from. 10,000 are drawn less often: they show what is lost once in some thousand rounds, and took
most of the time of these rules."""
FEW_ROUNDS = (1000, 300)
"""The same where each round takes long."""
_LEAST = 100
"""Of a library that is too slow for more, nothing is proved by fewer."""


def rounds_judged(counts: GrowthCounts, where: str) -> int:
    """Of how many rounds it is shown that they leave nothing behind.

    Raises:
        Measured: the process has grown by more than `pytest_qnn.qnn.model.growth` allows.
    """
    if (growth := beyond(counts)) is not None:
        raise Measured(f"at most {growth.most} more {growth.what} than before", f"{growth.seen} more", where)
    return counts.rounds if counts.rounds >= _LEAST else 0

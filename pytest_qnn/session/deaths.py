"""How an author's own test says that a process has died."""

from __future__ import annotations

from pytest_qnn.core.engine.checking import died
from pytest_qnn.core.printable import printable
from pytest_qnn.core.target import Death
from pytest_qnn.report import crash
from pytest_qnn.state import Session


def told(session: Session, death: Death) -> list[str]:
    """A line that says how a process died and where, as a finding does, then what was left of it."""
    violation, left = died(death), death.evidence
    target = next(iter(session.targets.values()), None)  # of either half: libraries' frames are named alike
    if target is not None:
        left = target.symbolised(left)
    said = f"{violation.seen} ({violation.where})" if violation.where else violation.seen
    return [printable(line) for line in (said, *crash.lines(left))]

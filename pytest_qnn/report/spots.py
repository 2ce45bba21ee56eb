"""Where in its code a target has died: what deaths in different cases may have in common."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from pytest_qnn.core.verdict import Finding, Outcome

_BELOW = re.compile(r"(libc|libm|libpthread|ld|ld-linux[\w-]*|libstdc\+\+|libgcc_s)[.-]")
"""Names of the libraries in which a process ends for their callers: `abort`, a failed assertion, `memcpy`."""


class Spot(NamedTuple):
    """An instruction of the target's library, and how the process ended there."""

    outcome: Outcome
    signal: str
    file: str
    offset: int


def of(target: str, outcome: Outcome, finding: Finding) -> Spot | None:
    """The first frame that is the target's own; None: what died is no library, or died in code of others.

    Args:
        target: the specification, in which libraries stand by their paths.
        outcome: of the finding.
        finding: of which an instruction is taken, and no source line: it needs no debugging information, and
            what is inlined in two places is two.
    """
    for frame in finding.evidence.frames:
        name = os.path.basename(frame.file)
        if name and name in {os.path.basename(word) for word in re.split(r"[\s,+:]+", target)}:
            return Spot(outcome, finding.fingerprint.signal, frame.file, frame.offset)
        if not _BELOW.match(name):
            return None
    return None

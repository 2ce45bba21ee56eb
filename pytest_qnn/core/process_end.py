"""What the rules about the end of a process share (QLEAK-04, LIFE-14)."""

from __future__ import annotations

from pytest_qnn.core.verdict import Unsupported

WHAT = "processes that ended in good order"
SOURCE = "inference: exit(3) runs the functions of atexit(3) and the destructors of all that is loaded"


def require_end(*, ended: bool) -> None:
    """Raises Unsupported where the case did not end its process."""
    if not ended:
        raise Unsupported("cases run in pytest's own process, which does not end with them")

"""What this process is doing, for those who watch it: the call that it has begun last.

Where cases run in pytest's own process, nobody watches.
"""

from __future__ import annotations

from collections.abc import Callable


def _nobody(_: bytes) -> None:
    pass


_listener: Callable[[bytes], None] = _nobody


def report_to(listener: Callable[[bytes], None]) -> None:
    """Have ``listener`` called with the name of each call that begins."""
    global _listener  # noqa: PLW0603 - a process has one slot, and the functions that call have no way to it
    _listener = listener


def calling(name: bytes) -> None:
    """A call into the target, or a round of such calls, begins."""
    _listener(name)

"""What a run is doing, for whoever shows it; nothing is decided by it."""

from __future__ import annotations

from collections.abc import Callable

Show = Callable[[str], None]
"""Is told what begins; an empty text says that it goes on."""


class _Shown:
    show: Show | None = None


def show_to(show: Show | None) -> None:
    """Tell this one from now on; None: nobody."""
    _Shown.show = show


def doing(what: str) -> None:
    """Something begins, such as ``shrinking``."""
    if _Shown.show is not None:
        _Shown.show(what)


def still() -> None:
    """It goes on: called between cases, and several times a second while a child is waited for."""
    doing("")

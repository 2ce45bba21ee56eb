"""What an embedded reference asks the system for, and what of it is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from pytest_qnn.core.target import Resource


class Requests:
    """Counts what a reference written in Python asks the system for, and refuses the nth where it is told to.

    So a client can have a request refused, as of a library in C (`pytest_qnn.isolation.host.refusals`).
    Memory counts as asked for by operator new too, as a library in C++ has it.

    Args:
        error: makes what `ask` raises.

    Attributes:
        wanted: what is counted now; None: nothing is.
        asked: requests during the last `during`.
        refused: those that were refused.
    """

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error
        self.wanted: Resource | None = None
        self.asked = self.refused = 0
        self._nth = 0
        self._lasting = False

    @contextlib.contextmanager
    def during(self, wanted: Resource, nth: int, *, lasting: bool) -> Iterator[None]:
        """Refuse the ``nth`` request for what is ``wanted`` meanwhile, and each after it if ``lasting``."""
        self.asked = self.refused = 0
        self.wanted, self._nth, self._lasting = wanted, nth, lasting
        try:
            yield
        finally:
            self.wanted = None

    def ask(self, wanted: str) -> None:
        """Ask for ``memory`` or a ``mapping``.

        Raises:
            Exception: it is refused; which one the constructor was told.
        """
        if self.wanted not in (wanted, "any", "new" if wanted == "memory" else wanted):
            return
        self.asked += 1
        if self.asked == self._nth or (self._lasting and 0 < self._nth < self.asked):
            self.refused += 1
            raise self._error()

"""How long what interpreters use lives: longer than they, also where all of it is garbage at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np


class Life:
    """Ends with the last reference to it, or earlier.

    A test that fails, or that looks at an exception, often leaves a cycle of references behind, of an
    interpreter with its delegates and memory. Python's collector calls each __del__ in such a cycle before it
    takes anything of it apart. That of the runtimes' Interpreter destroys the native one, and must come
    first: so nothing here has a __del__, and what is waited for is the end of an object that the collector
    does not track. It comes when the cycle is taken apart.

    Args:
        end: what is called at the end, once; not where the process ends before.
        arguments: of it.
    """

    def __init__(self, end: Callable[..., object], *arguments: object) -> None:
        self._token = np.empty(0, np.uint8)  # an array can be referred to weakly, and is not tracked
        self._end = weakref.finalize(self._token, end, *arguments)
        # At the exit of Python interpreters may still be there.
        self._end.atexit = False

    @property
    def is_over(self) -> bool:
        """It has ended."""
        return not self._end.alive

    def end(self) -> None:
        """End it now."""
        self._end()

"""A conforming oddity: a backend that uses a freedom of the documents, and counts how often it does."""

from __future__ import annotations

import ctypes
import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

OddT = TypeVar("OddT", bound="type[Odd]")


@dataclasses.dataclass(frozen=True)
class Freedom:
    """What an oddity does that another backend does not."""

    name: str
    freedom: str
    """One sentence."""
    source: str
    """A seed, a section or catalogue row of the facts (shared/facts/qnn-memory.md), or a header."""
    seen: str
    """What a client notices."""
    meant: frozenset[str] = frozenset()
    """Rules of level SHOULD that the oddity breaks on purpose."""
    tried_by: tuple[str, ...] = ()
    """Rules whose cases meet the freedom, for the fast test."""


ODDITIES: dict[str, tuple[Freedom, type[Odd]]] = {}
"""Those in Python, by name."""
TIMES: Counter[str] = Counter()
"""How often each did, in this process, what only it does."""


class Odd(ReferenceBackend):
    """The reference with one habit of its own."""

    chosen: ClassVar[Personality] = DEFAULT
    system: ClassVar[str] = "reference"
    """The System interface beside it; "" where binaries have a form of their own, which that cannot read."""
    known_as: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(self.chosen)

    def meet(self) -> None:
        """The freedom is used now."""
        TIMES[self.known_as] += 1


def odd(
    name: str, freedom: str, *, source: str, seen: str, meant: str = "", tried_by: str = ""
) -> Callable[[OddT], OddT]:
    """Enter a class in the gallery."""

    def enter(made: OddT) -> OddT:
        made.known_as = name
        about = Freedom(name, freedom, source, seen, frozenset(meant.split()), tuple(tried_by.split()))
        ODDITIES[name] = about, made
        return made

    return enter


def write_handle(out: Any, value: int | None) -> None:
    """Put a value where a call was to put a handle."""
    ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = value

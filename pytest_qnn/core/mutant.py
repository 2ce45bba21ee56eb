"""What a mutant is: a copy of a reference with exactly one fault; and the table that all are entered into."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from pytest_qnn.core.rule import Subject

MadeT = TypeVar("MadeT")
TIMEOUT = 10.0
"""Seconds after which a case of most mutants hangs."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A target with one fault, selected on the command line as ``mutant:NAME``."""

    name: str
    fault: str
    """The one fault, as a sentence."""
    kills: tuple[str, ...]
    """Ids of the rules that must find it."""
    subject: Subject
    part: str
    """The part of the reference that has the fault; each half names its own parts."""
    made: Any
    """The class or function that stands in that part's place."""
    deadly: bool = False
    """The fault may end the process, or spoil it for what follows: judge it in children."""
    timeout: float = TIMEOUT
    """Seconds after which a case of it hangs."""

    def of(self, part: str) -> Any:
        """What stands in the place of a part; None where that part has no fault."""
        return self.made if part == self.part else None


_TABLE: dict[str, Mutant] = {}


def enter(mutant: Mutant) -> None:
    """Enter a mutant into the table.

    Raises:
        ValueError: another one has its name.
    """
    if mutant.name in _TABLE:
        raise ValueError(f"two mutants are called {mutant.name}")
    _TABLE[mutant.name] = mutant


def entered() -> dict[str, Mutant]:
    """The mutants entered so far, by name."""
    return _TABLE


def load(package: str) -> None:
    """Import the module ``mutants`` of every area of rules in a package."""
    for area in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if area.ispkg:
            importlib.import_module(f"{area.name}.mutants")


def faulty(
    subject: Subject,
    part: str,
    name: str,
    fault: str,
    kills: tuple[str, ...],
    *,
    deadly: bool = False,
    timeout: float = TIMEOUT,
) -> Callable[[MadeT], MadeT]:
    """A decorator that enters what it decorates: the class, or the function, with the fault."""

    def take(made: MadeT) -> MadeT:
        enter(Mutant(name, fault, kills, subject, part, made, deadly, timeout))
        return made

    return take

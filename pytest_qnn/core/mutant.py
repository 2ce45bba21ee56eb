"""What a mutant is: a copy of a reference with exactly one fault; and the table that all are entered into."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from pytest_qnn.core.rule import Subject

MadeT = TypeVar("MadeT")
LATE = "late-"
"""How the names of mutants begin whose faults start late or hide: no rule has to find them."""
RACE = "race-"
"""How the names of those begin that show only where threads meet in one moment: a rule finds them within a
minute, and not within so many cases (docs/measured/races.md)."""
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


def of_half(subject: Subject, apart: str = "") -> dict[str, Mutant]:
    """Those entered so far of one half, by name: those apart whose names begin so, or all others."""
    return {
        name: mutant
        for name, mutant in _TABLE.items()
        if mutant.subject == subject and next(filter(name.startswith, (LATE, RACE)), "") == apart
    }


def homes(package: str) -> list[str]:
    """The module ``mutants`` of every area of rules in a package, by name."""
    areas = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    return [f"{area.name}.mutants" for area in areas if area.ispkg]


def modules_of(package: str) -> list[str]:
    """Every module of a package, by name."""
    path = importlib.import_module(package).__path__
    return [module.name for module in pkgutil.iter_modules(path, f"{package}.")]


def load(modules: Iterable[str]) -> None:
    """Import the modules: each enters its mutants."""
    for module in modules:
        importlib.import_module(module)


def find(modules: Iterable[str], name: str) -> Mutant | None:
    """The mutant with this name, for which only those modules are imported that have it in their text.

    None: it was not found so, which does not prove that there is none: a module's text may not be at hand.
    """
    if name not in _TABLE:
        load(module for module in modules if f'"{name}"' in _text(module))
    return _TABLE.get(name)


def _text(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.has_location or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    return Path(spec.origin).read_text(encoding="utf-8")


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

"""Mutants of the reference QNN backend and of the emulated rpcmem."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Final, TypeVar

from pytest_qnn.core.mutant import TIMEOUT, Mutant, entered, faulty, load

MadeT = TypeVar("MadeT")

BACKEND: Final = "backend"
"""`Mutant.part`: a class of reference backends."""
RPCMEM: Final = "rpcmem"
"""`Mutant.part`: a class of emulated rpcmems, under the faultless reference."""
LATE: Final = "late-"
"""How the names of the mutants of `pytest_qnn.qnn.late` begin, which no rule has to find."""


def faulty_backend(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = TIMEOUT
) -> Callable[[MadeT], MadeT]:
    """For a class of reference backends; ``kills``: ids of the rules that must find the fault."""
    return faulty("memory", BACKEND, name, fault, kills, deadly=deadly, timeout=timeout)


def faulty_rpcmem(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = TIMEOUT
) -> Callable[[MadeT], MadeT]:
    """For a class of emulated rpcmems."""
    return faulty("memory", RPCMEM, name, fault, kills, deadly=deadly, timeout=timeout)


@functools.cache
def table() -> dict[str, Mutant]:
    """Every mutant of this half that rules must find, by name.

    Raises:
        ValueError: two mutants have one name.
    """
    load("pytest_qnn.qnn.rules")
    return {name: mutant for name, mutant in _memory().items() if not name.startswith(LATE)}


@functools.cache
def late() -> dict[str, Mutant]:
    """The mutants whose faults start late or hide, by name; see `pytest_qnn.qnn.late`.

    Raises:
        ValueError: two mutants have one name.
    """
    package = importlib.import_module("pytest_qnn.qnn.late")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return {name: mutant for name, mutant in _memory().items() if name.startswith(LATE)}


def named(name: str) -> Mutant | None:
    """The mutant that ``mutant:NAME`` opens; those of `late` are loaded only for a name of theirs."""
    return (late() if name.startswith(LATE) else table()).get(name)


def _memory() -> dict[str, Mutant]:
    return {name: mutant for name, mutant in entered().items() if mutant.subject == "memory"}

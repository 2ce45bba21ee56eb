"""Mutants of the reference QNN backend and of the emulated rpcmem."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from pytest_qnn.core.mutant import LATE, RACE, TIMEOUT, Mutant, faulty, find, homes, load, modules_of, of_half

MadeT = TypeVar("MadeT")

_RULES = "pytest_qnn.qnn.rules"
_LATE = "pytest_qnn.qnn.late"
_RACES = "pytest_qnn.qnn.races"
BACKEND: Final = "backend"
"""`Mutant.part`: a class of reference backends."""
RPCMEM: Final = "rpcmem"
"""`Mutant.part`: a class of emulated rpcmems, under the faultless reference."""


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
    """Every mutant of this half, by name.

    Raises:
        ValueError: two mutants have one name.
    """
    load(homes(_RULES))
    return of_half("memory")


@functools.cache
def late() -> dict[str, Mutant]:
    """The mutants of `pytest_qnn.qnn.late`, by name: in no other table, and no rule has to find them."""
    load(modules_of(_LATE))
    return of_half("memory", LATE)


@functools.cache
def races() -> dict[str, Mutant]:
    """The mutants of `pytest_qnn.qnn.races`, by name: in no other table."""
    load([_RACES])
    return of_half("memory", RACE)


def named(name: str) -> Mutant | None:
    """The mutant of this half with this name, if there is one; as few modules as possible are imported."""
    if name.startswith(LATE):
        return late().get(name)
    if name.startswith(RACE):
        return races().get(name)
    found = find(homes(_RULES), name)
    return found if found is not None and found.subject == "memory" else table().get(name)


@contextlib.contextmanager
def without_lock(backend: Any) -> Iterator[None]:
    """Within, other threads may enter the reference backend, which holds one lock in every call."""
    backend.lock.release()
    try:
        yield
    finally:
        backend.lock.acquire()

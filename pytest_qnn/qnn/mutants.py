"""Mutants of the reference QNN backend and of the emulated rpcmem."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, TypeVar

from pytest_qnn.core.mutant import TIMEOUT, Mutant, entered, faulty, load

MadeT = TypeVar("MadeT")

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
    load("pytest_qnn.qnn.rules")
    return {name: mutant for name, mutant in entered().items() if mutant.subject == "memory"}

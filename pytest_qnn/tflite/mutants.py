"""Mutants of the reference delegate, of its plugin interface, and of the runtimes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, TypeVar

from pytest_qnn.core.mutant import LATE, TIMEOUT, Mutant, faulty, find, homes, load, modules_of, of_half

MadeT = TypeVar("MadeT")

_QNN_DELEGATE = "pytest_qnn.tflite.qnn_delegate.mutants"
"""The mutants that need both halves."""
_LATE = "pytest_qnn.tflite.late"
DELEGATE: Final = "delegate"
"""`Mutant.part`: a class of reference delegates."""
PLUGIN: Final = "plugin"
"""`Mutant.part`: a class of emulated plugin interfaces, of the faultless reference."""
TRACE: Final = "trace"
"""`Mutant.part`: a function from a true `DelegateTrace` to that of a runtime with a fault.

The runtimes cannot be mutated: rules that judge them have mutants of what was seen.
"""
SCRIPT_TRACE: Final = "script trace"
"""As `TRACE`, for a `ScriptTrace`."""
QNN: Final = "qnn"
"""`Mutant.part`: the parts of a reference QNN delegate."""


def faulty_delegate(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = TIMEOUT
) -> Callable[[MadeT], MadeT]:
    """For a class of reference delegates; ``kills``: ids of the rules that must find the fault."""
    return faulty("delegate", DELEGATE, name, fault, kills, deadly=deadly, timeout=timeout)


def faulty_plugin(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = TIMEOUT
) -> Callable[[MadeT], MadeT]:
    """For a class of emulated plugin interfaces."""
    return faulty("delegate", PLUGIN, name, fault, kills, deadly=deadly, timeout=timeout)


def faulty_runtime(name: str, fault: str, *kills: str) -> Callable[[MadeT], MadeT]:
    """For a function from a true trace of a delegate case to that of a runtime with the fault."""
    return faulty("delegate", TRACE, name, fault, kills)


def faulty_runtime_of_scripts(name: str, fault: str, *kills: str) -> Callable[[MadeT], MadeT]:
    """As `faulty_runtime`, for the traces of scripts."""
    return faulty("delegate", SCRIPT_TRACE, name, fault, kills)


@functools.cache
def table() -> dict[str, Mutant]:
    """Every mutant of this half, by name.

    Raises:
        ValueError: two mutants have one name.
    """
    load(_homes())
    return of_half("delegate")


@functools.cache
def late() -> dict[str, Mutant]:
    """The mutants of `pytest_qnn.tflite.late`, by name: in no other table, and no rule has to find them."""
    load(modules_of(_LATE))
    return of_half("delegate", LATE)


def named(name: str) -> Mutant | None:
    """The mutant of this half with this name, if there is one; as few modules as possible are imported."""
    if name.startswith(LATE):
        return late().get(name)
    found = find(_homes(), name)
    return found if found is not None and found.subject == "delegate" else table().get(name)


def _homes() -> list[str]:
    return [*homes("pytest_qnn.tflite.rules"), _QNN_DELEGATE]

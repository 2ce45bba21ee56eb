"""Mutants of the reference delegate, of its plugin interface, and of the runtimes."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Final, TypeVar

from pytest_qnn.core.mutant import TIMEOUT, Mutant, entered, faulty, load

MadeT = TypeVar("MadeT")

_QNN_DELEGATE = "pytest_qnn.tflite.qnn_delegate.mutants"
"""The mutants that need both halves."""
_LATE: Final = "late-"
"""With what the names of the mutants begin whose faults start late: `table` leaves them out."""
_LATE_PACKAGE = "pytest_qnn.tflite.late"
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
    load("pytest_qnn.tflite.rules")
    importlib.import_module(_QNN_DELEGATE)
    return {name: mutant for name, mutant in _entered().items() if not name.startswith(_LATE)}


@functools.cache
def late() -> dict[str, Mutant]:
    """The mutants whose faults start late, by name; they are in no other table and name no rules."""
    package = importlib.import_module(_LATE_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__, f"{_LATE_PACKAGE}."):
        importlib.import_module(module.name)
    return {name: mutant for name, mutant in _entered().items() if name.startswith(_LATE)}


def find(name: str) -> Mutant | None:
    """A mutant by its name; None: there is none. Those of `late` are loaded when one is asked for."""
    return (late() if name.startswith(_LATE) else table()).get(name)


def _entered() -> dict[str, Mutant]:
    return {name: mutant for name, mutant in entered().items() if mutant.subject == "delegate"}

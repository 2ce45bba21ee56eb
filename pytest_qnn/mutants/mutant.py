"""What a mutant is: a copy of the reference with exactly one fault; and the table that all are entered into.

Each of the functions here makes a decorator that enters what it decorates: the class, or the function, with
the fault. ``kills`` are the ids of the rules that must find it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_qnn.core.rule import Subject

if TYPE_CHECKING:
    from pytest_qnn.reference.custom_tensors import QnnParts
    from pytest_qnn.trace import DelegateTrace, ScriptTrace

MadeT = TypeVar("MadeT")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A target with one fault, selected on the command line as ``mutant:NAME``.

    Exactly one of the factories is given:

    * ``backend``: makes a reference QNN backend with the fault (memory rules);
    * ``rpcmem``: makes an emulated rpcmem with the fault, under the faultless reference (memory rules);
    * ``delegate``: makes a reference delegate with the fault (delegate rules);
    * ``plugin``: makes the plugin interface of the faultless reference with the fault (delegate rules);
    * ``distort``: changes the trace of the faultless reference, for rules that judge the runtime, which
      cannot be mutated (self-check rules).
    """

    name: str
    fault: str
    """The one fault, as a sentence."""
    kills: tuple[str, ...]
    """Ids of the rules that must find it."""
    subject: Subject
    backend: Callable[..., Any] | None = None
    rpcmem: Callable[..., Any] | None = None
    delegate: Callable[..., Any] | None = None
    distort: Callable[[DelegateTrace], DelegateTrace] | None = None
    plugin: Callable[..., Any] | None = None
    distort_script: Callable[[ScriptTrace], ScriptTrace] | None = None
    """As ``distort``, for the traces of scripts."""
    qnn: QnnParts | None = None
    """A reference QNN delegate with the fault (rules about custom memory)."""
    deadly: bool = False
    """The fault may end the process, or spoil it for what follows: judge it in children."""
    timeout: float = 10.0
    """Seconds after which a case of it hangs."""


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


def _decorator(
    subject: Subject, part: str, name: str, fault: str, kills: tuple[str, ...], **more: Any
) -> Any:
    def take(made: MadeT) -> MadeT:
        given: dict[str, Any] = {part: made, **more}
        enter(Mutant(name, fault, kills, subject, **given))
        return made

    return take


def faulty_backend(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = 10.0
) -> Callable[[type[MadeT]], type[MadeT]]:
    """For a class of reference QNN backends."""
    made: Callable[[type[MadeT]], type[MadeT]]
    made = _decorator("memory", "backend", name, fault, kills, deadly=deadly, timeout=timeout)
    return made


def faulty_rpcmem(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = 10.0
) -> Callable[[type[MadeT]], type[MadeT]]:
    """For a class of emulated rpcmems."""
    made: Callable[[type[MadeT]], type[MadeT]]
    made = _decorator("memory", "rpcmem", name, fault, kills, deadly=deadly, timeout=timeout)
    return made


def faulty_delegate(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = 10.0
) -> Callable[[type[MadeT]], type[MadeT]]:
    """For a class of reference delegates."""
    made: Callable[[type[MadeT]], type[MadeT]]
    made = _decorator("delegate", "delegate", name, fault, kills, deadly=deadly, timeout=timeout)
    return made


def faulty_plugin(
    name: str, fault: str, *kills: str, deadly: bool = False, timeout: float = 10.0
) -> Callable[[type[MadeT]], type[MadeT]]:
    """For a class of emulated plugin interfaces."""
    made: Callable[[type[MadeT]], type[MadeT]]
    made = _decorator("delegate", "plugin", name, fault, kills, deadly=deadly, timeout=timeout)
    return made


def faulty_runtime(
    name: str, fault: str, *kills: str
) -> Callable[[Callable[[DelegateTrace], DelegateTrace]], Callable[[DelegateTrace], DelegateTrace]]:
    """For a function from a true trace of a delegate case to that of a runtime with the fault."""
    made: Callable[[Callable[[DelegateTrace], DelegateTrace]], Callable[[DelegateTrace], DelegateTrace]]
    made = _decorator("delegate", "distort", name, fault, kills)
    return made


def faulty_runtime_of_scripts(
    name: str, fault: str, *kills: str
) -> Callable[[Callable[[ScriptTrace], ScriptTrace]], Callable[[ScriptTrace], ScriptTrace]]:
    """As `faulty_runtime`, for the traces of scripts."""
    made: Callable[[Callable[[ScriptTrace], ScriptTrace]], Callable[[ScriptTrace], ScriptTrace]]
    made = _decorator("delegate", "distort_script", name, fault, kills)
    return made

"""What a mutant is: a copy of the reference with exactly one fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_qnn.rules.rule import Subject

if TYPE_CHECKING:
    from pytest_qnn.trace import DelegateTrace


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A target with one fault, selected on the command line as ``mutant:NAME``.

    Exactly one of the factories is given:

    * ``backend``: makes a reference QNN backend with the fault (memory rules);
    * ``rpcmem``: makes an emulated rpcmem with the fault, under the faultless reference (memory rules);
    * ``delegate``: makes a reference delegate with the fault (delegate rules);
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

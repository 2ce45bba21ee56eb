"""What a mutant is: a copy of the reference with exactly one fault."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_qnn.core.rule import Subject

if TYPE_CHECKING:
    from pytest_qnn.reference.custom_tensors import QnnParts
    from pytest_qnn.trace import DelegateTrace, ScriptTrace


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
    """The fault may end the process: judge it in children."""
    timeout: float = 10.0
    """Seconds after which a case of it hangs."""

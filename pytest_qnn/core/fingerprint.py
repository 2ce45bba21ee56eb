"""What of a finding is the same from seed to seed: the call, the code or signal, the operators, the words.

A fingerprint says no number that a smaller or another case changes: sizes, values, names of handles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from pytest_qnn.core.evidence import Evidence

_FROM_RANK = "from rank "
SHAPE = re.compile(f"(?:{_FROM_RANK}[1-9])?")
"""The form of `Fingerprint.shape`."""
_LONGEST = 120
"""Characters of `Fingerprint.seen`."""
_CODE = re.compile(r"QNN_[A-Z0-9_]+")
_END = re.compile(r"SIG[A-Z0-9]+|exit status \d+")
_STEP = re.compile(r"step (\d+)\b")
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|[+-]?\b\d[\w.+-]*|\b[a-z]{1,2}\d+\b|\b(?:nan|inf)\b")
"""Numbers, and names such as ``h0`` and ``t12``."""
_SEVERAL = re.compile(r"#(?:[\s,]+#)+")


class Fingerprint(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What of a finding stays the same. What is empty is not known or says nothing."""

    call: str = ""
    """The function or callback at work in a death: ``QnnMem_register``. Else the step: ``register``,
    ``misuse graphCreate``. Of a step about one argument with its name: ``QnnGraph_create graphName``."""
    code: str = ""
    """``QNN_MEM_ERROR_INVALID_ARGUMENT``."""
    signal: str = ""
    """``SIGSEGV``, or ``exit status 3``."""
    operators: tuple[str, ...] = ()
    """Of the nodes of a delegate's case: ``ADD float32``."""
    shape: str = ""
    """``from rank 3``: the least of its nodes, where that is above 1. A smaller case has no larger ranks than
    it needs."""
    seen: str = ""
    """Where there is neither a code nor a signal: what was seen, each number in it a ``#``."""

    def at_any_rank(self) -> Fingerprint:
        """What tells one finding of a rule from another, whatever ranks it was met at."""
        return msgspec.structs.replace(self, shape="")


class Traits(NamedTuple):
    """A fingerprint, and the kinds of nodes of the case, of which a smaller one keeps some."""

    fingerprint: Fingerprint
    kinds: frozenset[tuple[str, int]]
    """(operator and type, rank of the first operand)."""


def traits_of(seen: str, where: str, evidence: Evidence, case: Any) -> Traits:
    """The traits of a violation.

    Args:
        seen: as in `pytest_qnn.core.verdict.Violation`.
        where: likewise.
        evidence: likewise.
        case: as `msgspec.to_builtins` gives it, or as JSON.
    """
    kinds = frozenset(_kinds(case))
    least = min((rank for _, rank in kinds), default=0)
    code, end = _CODE.search(seen), _END.search(seen)
    made = Fingerprint(
        call=_call(evidence.during.partition(" kernel ")[0], _step(where, case)),
        code=code[0] if code else "",
        signal=end[0] if end else "",
        operators=tuple(sorted({operator for operator, _ in kinds})),
        shape=f"{_FROM_RANK}{least}" if least > 1 else "",
        seen="" if code or end else masked(seen),
    )
    return Traits(made, kinds)


def fits(wanted: Fingerprint, traits: Traits) -> bool:
    """Whether a finding is the one that is wanted.

    Every word that is given must be the same. The operators must be among those of the case, each with a node
    of that rank or a higher one: what a case has besides is taken away when it is made smaller.
    """
    found = traits.fingerprint
    alike = all(
        not getattr(wanted, name) or getattr(wanted, name) == getattr(found, name)
        for name in ("call", "code", "signal", "seen")
    )
    least = int(wanted.shape.removeprefix(_FROM_RANK) or 0)
    return alike and all(
        any(kind == operator and rank >= least for kind, rank in traits.kinds)
        for operator in wanted.operators
    )


def masked(text: str) -> str:
    """The text on one line, without what changes from case to case, cut after 120 characters."""
    numbers = _CHANGING.sub("#", " ".join(text.split()))
    return _SEVERAL.sub("#", numbers)[:_LONGEST]


def _call(during: str, step: Mapping[str, Any]) -> str:
    """The function at work, else the step; with the argument that the step is about."""
    names = ("argument",) if during else ("do", "call", "argument")
    return " ".join(filter(None, (during, *(str(step[name]) for name in names if name in step))))


def _step(where: str, case: Any) -> Mapping[str, Any]:
    """The step that ``where`` numbers, of a case that has steps; empty: there is none."""
    steps = case.get("steps") if isinstance(case, Mapping) else None
    number = _STEP.search(where)
    if not steps or number is None or int(number[1]) >= len(steps):
        return {}
    step: Mapping[str, Any] = steps[int(number[1])]
    return step


def _kinds(case: Any) -> Iterator[tuple[str, int]]:
    if isinstance(case, Mapping) and "cells" in case:
        yield from ((f"{cell['op']} {cell['dtype']}", cell["rank"]) for cell in case["cells"])
    for graph in _graphs(case):
        tensors = graph["tensors"]
        for node in graph["nodes"]:
            named = [index for index in node.get("inputs", ()) if index >= 0]
            results = node.get("outputs", ())
            dtype = tensors[results[0]].get("dtype", "float32") if results else "float32"
            rank = len(tensors[named[0]].get("shape", ())) if named else 0
            yield f"{node['op']} {dtype}", rank


def _graphs(case: Any) -> Iterator[Mapping[str, Any]]:
    """The graphs of a delegate's case, with those inside them."""
    if not isinstance(case, Mapping):
        return
    if "nodes" in case and "tensors" in case:
        yield case
    for name in ("graph", "graphs", "subgraphs"):
        inner = case.get(name, ())
        for each in (inner,) if isinstance(inner, Mapping) else inner:
            yield from _graphs(each)

"""Claims: what a target is declared to support, beside what was learned of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.expect.file import CLAIMS, FLAG, Claims


class Difference(NamedTuple):
    """What is declared and not there, and what is there and not declared."""

    missing: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


def difference(half: Subject, claims: Claims, learned: Mapping[str, Any]) -> Difference:
    """Compare what is declared with what was learned.

    Args:
        half: of the target.
        claims: of the file, for this half.
        learned: `pytest_qnn.core.target.Target.learned`.

    Raises:
        BadOption: the claims of a delegate name an operator, type or kind of node that there is not.
    """
    found = learned.get("capabilities", {"operators": [], "keys": []})
    wanted, there = _kinds(half, claims.operators), _kinds(half, found["operators"])
    keys = set(claims.keys), set(found["keys"])
    missing = (*sorted(wanted - there), *(f"property key {key}" for key in sorted(keys[0] - keys[1])))
    more = (*sorted(there - wanted), *(f"property key {key}" for key in sorted(keys[1] - keys[0])))
    return Difference(missing, more)


def _kinds(half: Subject, operators: Iterable[str]) -> set[str]:
    """Each kind of node that is named; of QNN the texts themselves."""
    if half == "memory":
        return set(operators)
    # A run about QNN memory loads nothing of TensorFlow Lite.
    from pytest_qnn.tflite.learned import kinds_named

    unknown = [text for text in operators if not kinds_named(text)]
    if unknown:
        raise BadOption(f"{FLAG}: {CLAIMS}.{half}: no kind of node begins with {unknown[0]!r}")
    return {str(kind) for text in operators for kind in kinds_named(text)}


def unsupported(claims: Claims, verdict: Verdict, gate: Iterable[str]) -> str:
    """Why a rule may not be unsupported; empty: it may, or is not.

    Args:
        claims: of the verdict's half.
        verdict: on the rule.
        gate: of the rule: property keys and conditions.
    """
    if verdict.outcome is not Outcome.UNSUPPORTED:
        return ""
    if verdict.area in claims.areas:
        return f"unsupported, and the area {verdict.area} is declared: {verdict.reason}"
    declared = {str(key) for key in claims.keys}
    needed = list(gate)
    if needed and set(needed) <= declared:
        named = ", ".join(needed)
        return f"unsupported, and what it needs is declared (property keys {named}): {verdict.reason}"
    return ""

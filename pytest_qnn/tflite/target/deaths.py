"""How a process died, in words for a reader."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytest_qnn.core.evidence import Call
from pytest_qnn.core.target import Death
from pytest_qnn.tflite.cases.plugin import CREATE


def described(death: Death, place: str = "", named: Callable[[str], str] = str) -> Death:
    """The death with its place and the results of its calls in words.

    Args:
        death: how it died.
        place: the step or phase that had begun; empty: it is not told.
        named: gives the name of a call as a reader knows it.
    """
    left = death.evidence
    calls = (
        msgspec.structs.replace(call, name=named(call.name), result=_result(call)) for call in left.calls
    )
    evidence = msgspec.structs.replace(left, during=named(left.during), calls=tuple(calls))
    return msgspec.structs.replace(death, place=place, evidence=evidence)


def _result(call: Call) -> str:
    if call.status is None:
        return ""
    if call.name == CREATE:
        return "a delegate" if call.status else "NULL"
    return {0: "ok", 1: "error"}.get(call.status, f"status {call.status}")

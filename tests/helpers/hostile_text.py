"""Rules and a target whose words would do something to a terminal, a page or a file, beside `fake_suite`'s.

A plugin, as that is: ``-p fake_suite -p hostile_text``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import fake_suite
import msgspec
import pytest
from fake_suite import CATALOGUE, LEFT

from pytest_qnn.core.evidence import Call, Frame
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation

TEXT = "a\x1b[2J\x07\x9b31m\r\u202eb\u2066\udc80\ud800\x00<&>"
SHOWN = r"a\x1b[2J\x07\x9b31m\r\u202eb\u2066\udc80\ud800\x00<&>"
HOSTILE_LEFT = msgspec.structs.replace(
    LEFT,
    during=TEXT,
    fault=TEXT,
    frames=(Frame(f"/nowhere/{TEXT[:5]}", 1), *LEFT.frames),
    calls=(Call(TEXT, 0, 0, TEXT), Call(TEXT, None, 1)),
    stderr=f"{TEXT}\nAssertion {TEXT}",
)
SPEC = "mutant:\x1b]0;owned\x07\u202e"


def _fails(case: Any, trace: Any) -> Examined:
    if case != fake_suite.CASE:  # smaller ones are innocent
        return Examined(0, "")
    raise Violation(TEXT, TEXT, TEXT, f"{TEXT}\n  {TEXT}")


def _unsupported(case: Any, trace: Any) -> Examined:
    raise Unsupported(TEXT)


def _mistaken(case: Any, trace: Any) -> Examined:
    raise RuntimeError(f"{TEXT}\n{TEXT}")


def _like(rule_id: str, check: Any, **changes: Any) -> Rule[Any, Any, Any]:
    return dataclasses.replace(CATALOGUE["REG-02"], id=rule_id, check=check, **changes)


HOSTILE = {
    "REG-13": _like("REG-13", _fails),
    "REG-14": _like("REG-14", _unsupported),
    "REG-15": _like("REG-15", _fails, level=Level.SHOULD),
    "REG-16": _like("REG-16", _mistaken),
}
RULES = (*HOSTILE, "REG-03")
"""The last one's process dies, and leaves `HOSTILE_LEFT`."""


def pytest_configure(config: pytest.Config) -> None:
    CATALOGUE.update(HOSTILE)
    fake_suite.LEFT = HOSTILE_LEFT

"""The kinds of case that are carried out on delegates."""

from __future__ import annotations

from typing import Any, Final

from pytest_qnn.isolation.codec import Codec, Kind
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.plugin import Cycle, PluginCase
from pytest_qnn.tflite.cases.script import Measure, ScriptCase, flat
from pytest_qnn.tflite.trace import DelegateTrace, PluginTrace, ScriptTrace


def _measures(case: Any) -> bool:
    if isinstance(case, ScriptCase):
        return any(isinstance(step, Measure) for step in flat(case.steps))
    return isinstance(case, PluginCase) and any(isinstance(step, Cycle) for step in case.steps)


CODEC: Final = Codec(
    (
        Kind(DelegateCase, DelegateTrace),
        Kind(ScriptCase, ScriptTrace, b"script "),
        Kind(PluginCase, PluginTrace, b"plugin "),
    ),
    _measures,
)

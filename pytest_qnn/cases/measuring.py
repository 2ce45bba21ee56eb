"""Which cases measure the memory of the process that carries them out."""

from __future__ import annotations

from typing import Any

from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.memory_probes import Churn
from pytest_qnn.cases.plugin import Cycle, PluginCase
from pytest_qnn.cases.script import Measure, ScriptCase, flat


def measures(case: Any) -> bool:
    """Whether a step of the case, of any kind, asks malloc what is in use."""
    if isinstance(case, ScriptCase):
        return any(isinstance(step, Measure) for step in flat(case.steps))
    return isinstance(case, MemoryCase | PluginCase) and any(
        isinstance(step, Churn | Cycle) for step in case.steps
    )

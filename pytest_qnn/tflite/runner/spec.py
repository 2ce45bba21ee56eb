"""What is sent to a process that loads delegates: which they are, cases, and further requests."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pytest_qnn.isolation.codec import Codec, Kind
from pytest_qnn.isolation.worker import WorkerSpec
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import CellsBeside, DomainCase
from pytest_qnn.tflite.cases.plugin import Cycle, PluginCase
from pytest_qnn.tflite.cases.script import Measure, ScriptCase, flat
from pytest_qnn.tflite.runner.plain import PLAIN, cycles
from pytest_qnn.tflite.trace import DelegateTrace, DomainTrace, PluginTrace, ScriptTrace


class DelegateSpec(WorkerSpec, frozen=True):
    """A chain of delegates on one runtime."""

    maker: ClassVar[str] = "pytest_qnn.tflite.runner.worker"

    delegates: tuple[tuple[str, dict[str, str]], ...]
    runtime: str

    @property
    def ahead(self) -> str:
        """The runtime: there is one in a process."""
        return self.runtime


LEARN_LIMITS = b"learn limits"
LEARN_SAMPLES = b"learn samples"
LEARN_SECONDS = b"learn seconds"
PROBE = b"probe "
"""Further requests: see `pytest_qnn.tflite.runner.learn`."""


def _measures(case: Any) -> bool:
    if isinstance(case, ScriptCase):
        return any(isinstance(step, Measure) for step in flat(case.steps))
    return isinstance(case, PluginCase) and any(isinstance(step, Cycle) for step in case.steps)


CODEC: Final = Codec(
    (
        Kind(DelegateCase, DelegateTrace),
        Kind(ScriptCase, ScriptTrace, b"script "),
        Kind(PluginCase, PluginTrace, b"plugin "),
        Kind(DomainCase, DomainTrace, b"domain ", counted="cells"),
        Kind(CellsBeside, DomainTrace, b"beside ", counted="cells"),
    ),
    _measures,
    cycles,
    PLAIN,
    "pytest_qnn.tflite.checks.foretold",
)
"""The kinds of case that are carried out on delegates."""

"""What the tests' own targets have in common with real ones: how the engine makes their cases smaller."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.target import Control
from pytest_qnn.isolation.evidence import symbols
from pytest_qnn.isolation.start import interpreter
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.cases.join import joined
from pytest_qnn.qnn.cases.reduce import one_call, smaller_memory
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.reduce import with_more_outputs
from pytest_qnn.tflite.target.graphs import smaller as smaller_on_delegates


def smaller(case: Any, *, deadly: bool = False) -> Iterator[Any]:
    """Smaller cases of any kind, as the target of its half makes them."""
    if isinstance(case, MemoryCase):
        return smaller_memory(case, deadly=deadly)
    return smaller_on_delegates(case)


def revealing(case: Any) -> Iterator[Any]:
    return with_more_outputs(case) if isinstance(case, DelegateCase) else iter(())


class Reducing:
    owner_in_company = ""

    def run(self, case: Any) -> Any:
        raise NotImplementedError

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        return ((self.run(case), True) for case in cases)

    def unfit(self, case: Any) -> str:  # noqa: ARG002 - the signature is Target's
        return ""

    def missing(self, trace: Any) -> str:  # noqa: ARG002 - the signature is Target's
        return ""

    def denies(self, gate: Sequence[str]) -> str:  # noqa: ARG002 - the signature is Target's
        return ""

    def foreseen(self, case: Any) -> Any:  # noqa: ARG002 - the signature is Target's
        return None

    def joined(self, cases: Sequence[Any]) -> Any:
        return joined(cases) if isinstance(cases[0], MemoryCase) else None

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:
        return smaller(case, deadly=deadly)

    def alone(self, case: Any, step: int) -> Any:
        return one_call(case, step) if isinstance(case, MemoryCase) else None

    def symbolised(self, evidence: Evidence) -> Evidence:
        return symbols.symbolised(evidence)

    def surroundings(self, passed: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return interpreter.held_back(passed), ()

    def learned(self) -> dict[str, Any]:
        return {}

    def asked(self) -> dict[str, Any]:
        return {}

    def refused(self, rules: Collection[str]) -> str:  # noqa: ARG002 - the signature is Target's
        return ""

    def revealing(self, case: Any) -> Iterator[Any]:
        return revealing(case)

    def controls(self, case: Any, *, died: bool) -> Iterator[Control]:  # noqa: ARG002 - the signature is Target's
        return iter(())

    def around(self, facts: Any, case: Any, call: str = "") -> Any:  # noqa: ARG002 - the signature is Target's
        return facts

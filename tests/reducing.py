"""What the tests' own targets have in common with real ones: how the engine makes their cases smaller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_qnn.cases import reduce


class Reducing:
    def unfit(self, case: Any) -> str:  # noqa: ARG002 - the signature is Target's
        return ""

    def smaller(self, case: Any, *, deadly: bool) -> Iterator[Any]:
        return reduce.smaller(case, deadly=deadly)

    def revealing(self, case: Any) -> Iterator[Any]:
        return reduce.revealing(case)

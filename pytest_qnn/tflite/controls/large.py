"""Controls of scripts whose tensors have millions of elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.tflite.cases.script import Invoke, Sample, ScriptCase

_OWNER: Final = "ERR-04"
"""Whoever judges that kernels survive tensors of any size."""


def of_samples(case: object, *, died: bool) -> Iterator[Control]:
    """Of a death: the case with an invoke in place of each inference that is sampled."""
    if died and isinstance(case, ScriptCase) and any(isinstance(step, Sample) for step in case.steps):
        steps = tuple(Invoke(step.interpreter) if isinstance(step, Sample) else step for step in case.steps)
        yield Control(msgspec.structs.replace(case, steps=steps), (_OWNER,))

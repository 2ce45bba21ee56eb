"""The base of every step of a `pytest_qnn.cases.memory.MemoryCase`, and the words that steps share."""

from __future__ import annotations

from typing import Literal

import msgspec

QnnDType = Literal["UFIXED_POINT_8", "FLOAT_32"]
QnnOp = Literal["ElementWiseAdd", "ElementWiseMultiply", "ElementWiseSubtract", "Relu", "Reshape"]


class Step(msgspec.Struct, frozen=True, gc=False, tag_field="do", omit_defaults=True):
    """One call. The tag ``do`` names it in JSON."""

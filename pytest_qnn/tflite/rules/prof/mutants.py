"""Reference delegates with one fault each, for the rules of PROF."""

from __future__ import annotations

from typing import Any

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.profiled import ProfiledDelegate


@faulty_delegate("silent-profile", "Declares events that it does not make.", "PROF-01")
class _SilentProfile(ReferenceDelegate):
    """Says that it profiles each of its operators, and does not."""

    def __init__(self, *, flags: int = layouts.FLAG_PER_OPERATOR_PROFILING, **options: Any) -> None:
        super().__init__(flags=flags, **options)


@faulty_delegate("tells-unasked", "Makes events that it has not declared.", "PROF-01")
class _TellsUnasked(ProfiledDelegate):
    """Tells the profiler of its operators, as the runtime does of its kernels, without having declared it."""

    EVENT = 2

    def __init__(self, *, flags: int = 0, **options: Any) -> None:
        super().__init__(flags=flags, **options)

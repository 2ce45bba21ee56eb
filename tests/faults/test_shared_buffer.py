"""A delegate in C whose kernels work in one buffer for all threads, without a lock, is found by THR-01."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from pytest_qnn.tflite.target import open_delegate_target
from tests.faults import faults
from tests.faults.faults import Fault
from tests.faults.judged import blamed, failing

_STORED: Final = "    store(out, i, value, step->activation);\n  }\n}\n\nstatic void fully"
_BUFFER: Final = "static void elementwise("
FAULT: Final = Fault(
    "delegate",
    "float32 ADD, SUB and MUL are computed in one buffer for all delegates, and copied to the output.",
    "THR-01",
    _STORED,
    """\
    const bool fits = out.tensor->type == kFloat32 && count <= 1 << 20;
    store((Operand){out.tensor, fits ? buffer : out.data}, i, value, step->activation);
  }
  if (out.tensor->type == kFloat32 && count <= 1 << 20) memcpy(out.data, buffer, count * sizeof(float));
}

static void fully""",
    also=((_BUFFER, f"static float buffer[1 << 20];\n{_BUFFER}"),),
)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
@pytest.mark.full
def test_threads_meet_in_one_buffer(tmp_path: Path) -> None:
    """With two seeds of three: of a dozen, one finds it."""
    library = faults.build(tmp_path, "delegate", "shares", faults.replaced("shares", FAULT))
    found = (
        failing(blamed(open_delegate_target([(str(library), {})], "auto", "fork", 10.0), ("THR-01",), seed))
        for seed in range(1, 13)
    )
    assert {"THR-01"} in found

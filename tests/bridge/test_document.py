from __future__ import annotations

import re
from pathlib import Path

import pytest
from fast_run import later

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "custom-allocations.md"


@pytest.mark.parametrize(
    ("delegate", "runtime"),
    [
        later("reference", "tflite_runtime"),
        later("xnnpack", "ai_edge_litert"),
        ("qnn-reference", "tflite_runtime"),
        later("reference", "ai_edge_litert"),
        later("xnnpack", "tflite_runtime"),
        later("qnn-reference", "ai_edge_litert"),
    ],
)
def test_the_documents_code_passes(pytester: pytest.Pytester, delegate: str, runtime: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 4
    pytester.makepyfile("\n".join(blocks))
    result = pytester.runpytest_subprocess(
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        f"--tflite-runtime={runtime}",
        f"--tflite-delegate={delegate}",
    )
    shares = delegate == "qnn-reference"
    result.assert_outcomes(passed=5 + shares, skipped=not shares)

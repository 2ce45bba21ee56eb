from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "custom-allocations.md"
RUNTIMES = ("tflite_runtime", "ai_edge_litert")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("delegate", ["reference", "xnnpack", "qnn-reference"])
def test_the_documents_code_passes(pytester: pytest.Pytester, runtime: str, delegate: str) -> None:
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

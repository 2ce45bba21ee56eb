from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[1] / "docs" / "custom-allocations.md"
RUNTIMES = ("tflite_runtime", "ai_edge_litert")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("delegate", ["reference", "xnnpack"])
def test_the_documents_code_passes(pytester: pytest.Pytester, runtime: str, delegate: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 3
    pytester.makepyfile("\n".join(blocks))
    result = pytester.runpytest(
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        f"--tflite-runtime={runtime}",
        f"--tflite-delegate={delegate}",
    )
    result.assert_outcomes(passed=5)

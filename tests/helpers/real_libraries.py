"""Qualcomm's own libraries, where their wheel is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def real_library(name: str) -> Path:
    """A library of the onnxruntime-qnn package, which is not imported."""
    spec = importlib.util.find_spec("onnxruntime_qnn")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("onnxruntime-qnn has no wheel for this platform")
    return Path(next(iter(spec.submodule_search_locations))) / name

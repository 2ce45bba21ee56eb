"""What a process has loaded from which `benchmarks.blame.alone` makes those that run pytest."""

from __future__ import annotations

import importlib

from benchmarks import blame

for name in ("plugin", "session.judging", "qnn.runner.run", "tflite.runner.script", "report.loaded"):
    importlib.import_module(f"pytest_qnn.{name}")
blame.faults()

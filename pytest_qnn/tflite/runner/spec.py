"""What a process is told of the delegates that it is to load, and what they are asked besides cases."""

from __future__ import annotations

from typing import ClassVar

from pytest_qnn.isolation.worker import WorkerSpec


class DelegateSpec(WorkerSpec, frozen=True):
    """A chain of delegates on one runtime."""

    maker: ClassVar[str] = "pytest_qnn.tflite.runner.worker"

    delegates: tuple[tuple[str, dict[str, str]], ...]
    runtime: str


LEARN_LIMITS = b"learn limits"
LEARN_SAMPLES = b"learn samples"
PROBE = b"probe "
"""Further requests: see `pytest_qnn.tflite.runner.learn`."""

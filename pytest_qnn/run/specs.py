"""What a process is told of the target that it is to load, and what delegates are asked besides cases."""

from __future__ import annotations

from typing import ClassVar

from pytest_qnn.isolation.worker import WorkerSpec


class MemorySpec(WorkerSpec, frozen=True):
    """A QNN backend and the rpcmem that its buffers come from."""

    maker: ClassVar[str] = "pytest_qnn.run.memory_worker"

    backend: str
    rpcmem: str


class DelegateSpec(WorkerSpec, frozen=True):
    """A chain of delegates on one runtime."""

    maker: ClassVar[str] = "pytest_qnn.run.delegate_worker"

    delegates: tuple[tuple[str, dict[str, str]], ...]
    runtime: str


LEARN_LIMITS = b"learn limits"
LEARN_SAMPLES = b"learn samples"
PROBE = b"probe "
"""Further requests: see `pytest_qnn.run.delegate_learn`."""

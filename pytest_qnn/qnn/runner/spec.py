"""What a process is told of the QNN backend that it is to load."""

from __future__ import annotations

from typing import ClassVar

from pytest_qnn.isolation.worker import WorkerSpec


class MemorySpec(WorkerSpec, frozen=True):
    """A QNN backend and the rpcmem that its buffers come from."""

    maker: ClassVar[str] = "pytest_qnn.qnn.runner.worker"

    backend: str
    rpcmem: str

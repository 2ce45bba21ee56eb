"""From a specification to the worker that serves it."""

from __future__ import annotations

from pytest_qnn.isolation.worker import AnySpec, MemorySpec, Worker


def make_worker(spec: AnySpec) -> Worker:
    """Load the target.

    Raises:
        Unusable: it cannot be used.
    """
    # Each half loads its own world: a QNN vendor needs no TensorFlow Lite runtime, and the other way round.
    if isinstance(spec, MemorySpec):
        from pytest_qnn.run.memory_worker import MemoryWorker  # noqa: PLC0415

        return MemoryWorker(spec)
    from pytest_qnn.run.delegate_worker import DelegateWorker  # noqa: PLC0415

    return DelegateWorker(spec)

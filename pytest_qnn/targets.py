"""From a run's options to its targets, one for each half of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import Target
from pytest_qnn.isolation.executor import Executor, MakeExecutor
from pytest_qnn.isolation.start import interpreter
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.isolation.worker import WorkerSpec
from pytest_qnn.options import Options

if TYPE_CHECKING:
    from pytest_qnn.isolation.stored.record import Recordings

__all__ = ["TargetUnusable", "held_back", "in_one_process", "open_target", "recordings", "worker_spec"]


def open_target(subject: Subject, options: Options, execute: MakeExecutor = Executor) -> Target[Any, Any]:
    """The target that the options name.

    Args:
        subject: the half.
        options: of the run.
        execute: makes the executor of its cases.

    Raises:
        TargetUnusable: with one sentence for the user.
    """
    if subject == "memory":
        # A run about one half loads nothing of the other.
        from pytest_qnn.qnn.target import open_memory_target

        return open_memory_target(
            options.backend,
            options.rpcmem,
            options.sandbox,
            options.timeout,
            options.env,
            options.on,
            execute,
        )
    from pytest_qnn.tflite.target import open_delegate_target

    chain = [(spec, dict(pairs)) for spec, pairs in options.delegates]
    is_declared = options.precision != "float32" or "--tflite-delegate-precision" in options.given
    return open_delegate_target(
        chain,
        options.runtime,
        options.sandbox,
        options.timeout,
        options.precision if is_declared else None,
        options.env,
        options.on,
        execute,
    )


def recordings(folder: Path) -> Recordings:
    """The logs of what targets are asked and answer, written to a folder."""
    from pytest_qnn.isolation.stored.record import Recordings

    return Recordings(folder)


def held_back(options: Options) -> tuple[str, ...]:
    """Names of the environment variables that child processes do not get, sorted."""
    return interpreter.held_back(options.env)


def in_one_process(subject: Subject, case: Any) -> bool:
    """Whether the case can be carried out in a single process."""
    if subject == "delegate":
        return True
    from pytest_qnn.qnn import target as memory

    return memory.in_one_process(case)


def worker_spec(subject: Subject, options: Options) -> WorkerSpec:
    """What a process of its own needs to carry out cases on the target that the options name."""
    if subject == "memory":
        from pytest_qnn.qnn import target as memory

        return memory.worker_spec(options.backend, options.rpcmem)
    from pytest_qnn.tflite import target as delegate

    return delegate.worker_spec([(spec, dict(pairs)) for spec, pairs in options.delegates], options.runtime)

"""Delegates that work in other threads than the caller's, and one that takes its time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from tests.gallery.tflite.odd import note, oddity

THREADS = "facts/tflite-delegates.md 12, THR-05: workers that are bounded and end with the delegate"


class _Job:
    def __init__(self, work: Callable[[], int]) -> None:
        self.work = work
        self.done = threading.Event()
        self.status = 1
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self.status = self.work()
        except BaseException as error:
            self.error = error
        self.done.set()

    def result(self) -> int:
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.status


@oddity(
    "worker",
    "computes on one thread, which lives as long as the delegate",
    THREADS,
    "one more thread from create to destroy",
)
class Worker(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.begin()

    def begin(self) -> None:
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.carry_out()

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if self.thread is None:
            self.begin()
        note(self)
        job = _Job(lambda: super(Worker, self).kernel_invoke(context, kernel))
        self.jobs.put(job)
        return job.result()

    def close(self) -> None:
        if self.thread is not None:
            self.jobs.put(None)
            self.thread.join()
            self.thread = None
        super().close()


@oddity(
    "late-worker",
    "as worker, but the thread is made by the first invoke",
    THREADS,
    "one more thread from the first invoke on",
)
class LateWorker(Worker):
    def begin(self) -> None:
        """At first there is none."""

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if self.thread is None:
            Worker.begin(self)
        return super().kernel_invoke(context, kernel)


@oddity(
    "thread-for-each",
    "makes a thread for each invoke of a kernel, and waits for its end",
    THREADS,
    "no thread outside of invoke",
)
class ThreadForEach(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        note(self)
        job = _Job(lambda: super(ThreadForEach, self).kernel_invoke(context, kernel))
        thread = threading.Thread(target=job.carry_out)
        thread.start()
        thread.join()
        return job.result()


@oddity(
    "closed-elsewhere",
    "is destroyed on another thread than it was made on",
    "common.h names no thread for any callback; facts/tflite-delegates.md 12, THR-04",
    "nothing",
)
class ClosedElsewhere(ReferenceDelegate):
    def close(self) -> None:
        note(self)
        thread = threading.Thread(target=super().close)
        thread.start()
        thread.join()


@oddity(
    "slow",
    "takes a millisecond for each kernel's init",
    "no document limits the time that a callback takes; legal-choices.md",
    "claims take longer",
)
class Slow(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        note(self)
        time.sleep(0.001)
        return super().init(context, nodes, inputs, outputs)

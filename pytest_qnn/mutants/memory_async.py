"""Reference backends with one fault each in asynchronous execution (EXE-18)."""

from __future__ import annotations

import time
from typing import Any

from pytest_qnn.abi.qnn_async import NotifyFn, NotifyStatus
from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.mutants.backends import faulty_backend
from pytest_qnn.reference.backend import ReferenceBackend
from pytest_qnn.reference.backend_async import Job
from pytest_qnn.reference.backend_execute import Stored
from pytest_qnn.reference.backend_objects import Binding, Graph, QnnError, Registration
from pytest_qnn.reference.personalities import PERSONALITIES

_SLOW = 0.003
"""Seconds after which an execution begins: others may be in the queue by then."""


class _Asynchronous(ReferenceBackend):
    def __init__(self) -> None:
        super().__init__(PERSONALITIES["asynchronous"])


@faulty_backend("async-notifies-first", "Notifies before it reads the inputs.", "EXE-18")
class _NotifiesFirst(_Asynchronous):
    def run_job(self, job: Job) -> None:
        self.notify(job, 0)
        self.status_of(job)


@faulty_backend("async-notifies-early", "Notifies before it writes the output.", "EXE-18")
class _NotifiesBeforeItWrites(_Asynchronous):
    """Reads in time, writes too late."""

    job: Job | None = None

    def run_job(self, job: Job) -> None:
        self.job = job
        self.status_of(job)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        job, self.job = self.job, None
        if job is not None:
            self.notify(job, 0)
        super().write_output(graph, binding, stored)


@faulty_backend("async-writes-again", "Computes again once it has notified.", "EXE-18")
class _WritesAgain(_Asynchronous):
    def run_job(self, job: Job) -> None:
        super().run_job(job)
        self.status_of(job)


@faulty_backend("async-one-slot", "Remembers the memory of the last call only.", "EXE-18")
class _OneSlot(_Asynchronous):
    """What waits is only the memory of the last call."""

    last: Job | None = None

    def enqueue(self, job: Job) -> None:
        self.last = job
        super().enqueue(job)

    def run_job(self, job: Job) -> None:
        time.sleep(_SLOW)
        super().run_job(Job(self.last.admitted if self.last else job.admitted, job.notify, job.parameter))


@faulty_backend("async-one-parameter", "Notifies with the parameter of the last call.", "EXE-18")
class _OneParameter(_OneSlot):
    """Every notification has the parameter of the last call."""

    def run_job(self, job: Job) -> None:
        time.sleep(_SLOW)
        parameter = self.last.parameter if self.last else None
        self.notify(Job(job.admitted, job.notify, parameter), self.status_of(job))


@faulty_backend("async-clears-inputs", "Clears registered inputs once it has notified.", "EXE-18")
class _ClearsInputs(_Asynchronous):
    """Once it has notified it clears what it has read from registered memory."""

    def run_job(self, job: Job) -> None:
        super().run_job(job)
        with self.lock:
            for source in job.admitted[1]:
                if source.registration is not None:
                    self.registered(source, source.registration)[:] = 0


@faulty_backend("async-never-notifies", "Notifies nobody.", "EXE-18")
class _NeverNotifies(_Asynchronous):
    def notify(self, job: Job, status: int) -> None:
        pass


@faulty_backend("async-notifies-twice", "Notifies twice.", "EXE-18")
class _NotifiesTwice(_Asynchronous):
    def notify(self, job: Job, status: int) -> None:
        super().notify(job, status)
        super().notify(job, status)


@faulty_backend("async-notifies-refusals", "Notifies of calls that it refuses.", "EXE-18")
class _NotifiesRefusals(_Asynchronous):
    def graph_execute_async(self, *arguments: Any) -> None:
        try:
            super().graph_execute_async(*arguments)
        except QnnError as error:
            NotifyFn(arguments[-2])(arguments[-1], NotifyStatus(error.code))
            raise


@faulty_backend("async-own-parameter", "Notifies with NULL for a parameter.", "EXE-18")
class _OwnParameter(_Asynchronous):
    def notify(self, job: Job, status: int) -> None:
        super().notify(Job(job.admitted, job.notify, None), status)


@faulty_backend("async-dead-handles", "Takes deregistered handles asynchronously.", "EXE-18")
class _DeadHandles(_Asynchronous):
    """Asynchronously, a handle that was deregistered stands for the memory that it stood for."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: dict[int, Registration] = {}
        self.admitting = False

    def forget(self, registration: Registration) -> None:
        self.dead[registration.handle] = registration
        del self.registrations[registration.handle]
        del registration.context.registrations[registration.handle]

    def graph_execute_async(self, *arguments: Any) -> None:
        self.admitting = True
        try:
            super().graph_execute_async(*arguments)
        finally:
            self.admitting = False

    def find_registration(self, graph: Graph, handle: int | None) -> Registration:
        if self.admitting and handle in self.dead:
            return self.dead[handle]
        return super().find_registration(graph, handle)

    def check_alive(self, job: Job) -> None:
        pass


@faulty_backend("async-says-only", "Answers 1000, and property 304 says supported.", "EXE-18")
class _SaysOnly(_Asynchronous):
    def require_asynchronous(self) -> None:
        raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)

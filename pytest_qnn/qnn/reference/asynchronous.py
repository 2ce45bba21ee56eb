"""Asynchronous execution on the reference backend: a queue, and a thread that empties it.

QnnGraph.h, QnnGraph_executeAsync: graphs are enqueued in the order of the calls, the notification comes from
a thread of the backend's, and a call that fails notifies nobody. Arguments are checked by the call itself, as
graphExecute checks them, so a refusal is never told by a notification.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.layouts import NotifyFn, NotifyStatus
from pytest_qnn.qnn.reference.execute import Admitted, Execution
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """One execution in the queue."""

    admitted: Admitted
    notify: int
    """Address of the client's Qnn_NotifyFn_t; 0: it wants no notification."""
    parameter: int | None


class Asynchronous(Execution):
    """graphExecuteAsync, taken apart into hooks: enqueue, run, notify.

    The thread begins with the first execution in the queue and ends with the last: an idle backend has none.
    """

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.jobs: collections.deque[Job] = collections.deque()
        self.serving = False
        """The thread is there, or about to be."""
        super().__init__(personality)

    def graph_execute_async(self, *arguments: Any) -> None:
        """QnnGraph_executeAsync: the arguments of graphExecute, notifyFn and notifyParam."""
        self.require_asynchronous()
        *execution, notify, parameter = arguments
        self.enqueue(Job(self.admit(*execution), notify or 0, parameter))

    def require_asynchronous(self) -> None:
        """Hook: without property 304 the call answers 1000 to anything."""
        if not self.personality.asynchronous:
            raise QnnError(Error.GRAPH_ERROR_UNSUPPORTED_FEATURE)

    def enqueue(self, job: Job) -> None:
        """Hook: put an execution at the end of the queue, which has no limit."""
        self.jobs.append(job)
        if not self.serving:
            self.serving = True
            threading.Thread(target=self._serve, name="qnn-async", daemon=True).start()

    def close(self) -> None:
        """What is in the queue is dropped; a notification that is under way comes to its end."""
        self.jobs.clear()
        super().close()

    def _serve(self) -> None:
        while True:
            with self.lock:
                if not self.jobs:
                    self.serving = False
                    return
                job = self.jobs.popleft()
            self.run_job(job)

    def run_job(self, job: Job) -> None:
        """Hook: execute, then say so. No lock is held while the client is called."""
        self.notify(job, self.status_of(job))

    def status_of(self, job: Job) -> int:
        """Hook: carry out an execution, and give its Qnn_ErrorHandle_t."""
        with self.lock:
            try:
                self.check_alive(job)
                self.carry_out(*job.admitted)
            except QnnError as error:
                return self.answer("graphExecuteAsync", error.code)
            except BaseException as error:
                self.escaped.append(("graphExecuteAsync", error))
                return int(Error.COMMON_ERROR_GENERAL)
            return 0

    def check_alive(self, job: Job) -> None:
        """Hook: 6039 where the context was freed meanwhile, 6004 where a handle was deregistered."""
        graph, sources, sinks = job.admitted
        if self.graphs.get(graph.handle) is not graph:
            raise QnnError(Error.GRAPH_ERROR_INVALID_CONTEXT)
        for each in (*sources, *sinks):
            if (
                each.registration
                and self.registrations.get(each.registration.handle) is not each.registration
            ):
                raise QnnError(Error.GRAPH_ERROR_INVALID_TENSOR)

    def notify(self, job: Job, status: int) -> None:
        """Hook: call the client, once, from this thread."""
        if job.notify:
            NotifyFn(job.notify)(job.parameter, NotifyStatus(status))

"""Late faults that need something beside the memory: a log, a profile, a signal, an error text, a queue."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.abi.table import InterfaceP
from pytest_qnn.qnn.late.conditions import Numbered
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Job, Stored
from pytest_qnn.qnn.reference.logs import Log
from pytest_qnn.qnn.reference.objects import Binding, Graph, QnnError, Registration
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality

_VERBOSE = 4


@faulty_backend(
    "late-log-deregister",
    "With a log that wants verbose messages, a handle is deregistered but reported as invalid (8001).",
)
class _LogDeregister(ReferenceBackend):
    """Source: QnnMem.h, QnnMem_deRegister; catalogue, DRG-01."""

    def deregister_one(self, handle: int | None) -> bool:
        found = self.registrations.get(handle or 0)
        log = self.listeners.get(found.context.backend) if found else None
        return super().deregister_one(handle) and (log is None or log.level < _VERBOSE)


@faulty_backend(
    "late-log-batch",
    "With a log attached, a batch of three or more gets the handle of its second memory twice.",
)
class _LogBatch(ReferenceBackend):
    """Source: QnnMem.h, QnnMem_register (a handle for each descriptor); catalogue, REG-02."""

    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, batch)
        if len(batch) >= 3 and batch[0].context.backend in self.listeners:
            handles[2] = batch[1].handle


@faulty_backend(
    "late-log-second-backend",
    "logFree detaches the log from the first of its backends only: another still calls the client.",
    deadly=True,
)
class _LogSecondBackend(ReferenceBackend):
    """Source: QnnLog.h, QnnLog_free; known bugs, 18."""

    def log_free(self, log: int | None) -> None:
        found = self.logs.get(log or 0)
        kept = [each for each, mine in self.listeners.items() if mine is found][1:]
        super().log_free(log)
        if found is not None:
            self.listeners |= dict.fromkeys(kept, found)


@faulty_backend("late-log-level-third", "The third logSetLogLevel of a log succeeds without effect.")
class _LogLevelThird(ReferenceBackend):
    """Source: QnnLog.h, QnnLog_setLogLevel."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.changes: dict[int, int] = {}
        super().__init__(personality)

    def log_set_log_level(self, log: int | None, level: int) -> None:
        before: Log | None = self.logs.get(log or 0)
        old = before.level if before is not None else 0
        super().log_set_log_level(log, level)
        if before is not None:
            self.changes[log or 0] = self.changes.get(log or 0, 0) + 1
            if self.changes[log or 0] >= 3:
                before.level = old


@faulty_backend(
    "late-profile-handle-output",
    "An execute that is given a profile the second time does not write outputs in registered memory.",
)
class _ProfileHandleOutput(ReferenceBackend):
    """Source: QnnGraph.h, QnnGraph_execute; QnnProfile.h; catalogue, EXE-01."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.given: dict[int, int] = {}
        self.skipping = False
        super().__init__(personality)

    def graph_execute(
        self,
        graph: int | None,
        inputs: Any,
        num_inputs: int,
        outputs: Any,
        num_outputs: int,
        profile: int | None,
        signal: int | None,
    ) -> None:
        if profile:
            self.given[profile] = self.given.get(profile, 0) + 1
        self.skipping = self.given.get(profile or 0, 0) >= 2
        super().graph_execute(graph, inputs, num_inputs, outputs, num_outputs, profile, signal)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        if binding.registration is None or not self.skipping:
            super().write_output(graph, binding, stored)


@faulty_backend(
    "late-signal-freed",
    "graphExecute takes a signal that was freed, once another one was made since.",
)
class _SignalFreed(ReferenceBackend):
    """Source: QnnSignal.h, QNN_SIGNAL_ERROR_INVALID_HANDLE; QnnGraph.h, QnnGraph_execute."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.freed: set[int] = set()
        super().__init__(personality)

    def signal_free(self, signal: int | None) -> None:
        super().signal_free(signal)
        self.freed.add(signal or 0)

    def graph_execute(
        self,
        graph: int | None,
        inputs: Any,
        num_inputs: int,
        outputs: Any,
        num_outputs: int,
        profile: int | None,
        signal: int | None,
    ) -> None:
        if signal in self.freed and any(each > signal for each in self.signals):
            signal = None
        super().graph_execute(graph, inputs, num_inputs, outputs, num_outputs, profile, signal)


@faulty_backend(
    "late-error-text-stale",
    "After three texts, errorGetMessage of an unknown code leaves the text that it gave last.",
)
class _ErrorTextStale(ReferenceBackend):
    """Source: QnnError.h, QnnError_getMessage (NULL on failure); catalogue, IF-08."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        self.texts_given = 0
        self.text = b""
        super().__init__(personality)

    def error_get_message(self, code: int, out: Any) -> None:
        try:
            super().error_get_message(code, out)
        except QnnError:
            if out and self.texts_given >= 3:
                out[0] = self.text
            raise
        self.texts_given += 1
        self.text = out[0]


@faulty_backend(
    "late-error-text-high", "errorGetMessage does not know codes above 8000 once memRegister was refused."
)
class _ErrorTextHigh(ReferenceBackend):
    """Source: QnnError.h, QnnError_getMessage; QnnMem.h, its error codes; catalogue, IF-08."""

    refused = False

    def answer(self, name: str, code: int) -> int:
        self.refused = self.refused or (code >= Error.MEM_ERROR_INVALID_ARGUMENT and name == "memRegister")
        return super().answer(name, code)

    def error_get_message(self, code: int, out: Any) -> None:
        super().error_get_message(code, out)
        if self.refused and low(code) > Error.MEM_ERROR_INVALID_ARGUMENT:
            out[0] = None
            raise QnnError(Error.ERROR_INVALID_ERROR_HANDLE)


@faulty_backend(
    "late-providers-ninth", "From the ninth QnnInterface_getProviders on, the list is another array."
)
class _ProvidersNinth(ReferenceBackend):
    """Source: QnnInterface.h, QnnInterface_getProviders (valid until dlclose); catalogue, IF-03."""

    calls = 0

    def provider_list(self) -> Any:
        self.calls += 1
        if self.calls == 9:
            # A pointer of its own: the one in the array that was given out before stays as it is.
            self._list = (InterfaceP * 1)(ctypes.pointer(self._padded.interface))
        return super().provider_list()


@faulty_backend(
    "late-backend-log", "From the third backend on, one that is made with a freed log is made without a log."
)
class _BackendLog(Numbered):
    """Source: QnnBackend.h, QnnBackend_create (an invalid log handle); catalogue, IF-10."""

    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        freed = log in self.number and log not in self.logs
        super().backend_create(None if freed and self.made["backend"] >= 2 else log, config, out)


@faulty_backend("late-async-order", "With three executions waiting, a fourth is put in front of them.")
class _AsyncOrder(ReferenceBackend):
    """Source: QnnGraph.h, QnnGraph_executeAsync (in the order of the calls); catalogue, EXE-18."""

    def __init__(self, personality: Personality = PERSONALITIES["asynchronous"]) -> None:
        super().__init__(personality)

    def enqueue(self, job: Job) -> None:
        super().enqueue(job)
        if len(self.jobs) >= 4 and self.jobs[-1] is job:
            self.jobs.rotate(1)


@faulty_backend("late-async-notify-17", "The 17th execution in the queue of a backend is not notified.")
class _AsyncNotify17(ReferenceBackend):
    """Source: QnnGraph.h, QnnGraph_executeAsync (notifyFn is called); catalogue, EXE-18."""

    notified = 0

    def __init__(self, personality: Personality = PERSONALITIES["asynchronous"]) -> None:
        super().__init__(personality)

    def notify(self, job: Job, status: int) -> None:
        self.notified += 1
        if self.notified != 17:
            super().notify(job, status)

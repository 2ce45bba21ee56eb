"""When and where work is done: late, slowly, in another thread, once for several calls; and numbers."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.reference import operators
from pytest_qnn.qnn.reference.execute import Job, Stored
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, QnnError, Registration, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT
from tests.gallery.qnn.oddity import Odd, odd

_DEPTH = 2


@odd(
    "slow-calls",
    "a registration takes 2 ms, a finalising 5 ms, an execute 1 ms, in which it waits and computes nothing",
    source="no document has a time limit; facts 2.4: libQnnHtp finalises in 6 to 100 ms",
    seen="time passes",
    tried_by="REG-01 EXE-01",
)
class SlowCalls(Odd):
    def register_one(self, context: Context, descriptor: Any, batch: list[Registration]) -> Registration:
        self.meet()
        time.sleep(0.002)
        return super().register_one(context, descriptor, batch)

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        time.sleep(0.005)
        super().graph_finalize(graph, profile, signal)

    def begin_execute(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        time.sleep(0.001)
        super().begin_execute(graph, sources, sinks)


@odd(
    "results-are-remembered",
    "a graph that is given the inputs of its last execute once more does not compute again",
    source="facts EXE-10: outputs are what the graph computes; how is not said",
    seen="nothing: the outputs are delivered all the same",
    meant="EXT-33",
    tried_by="EXE-08 QMG-07 EXE-01",
)
class ResultsAreRemembered(Odd):
    def __init__(self) -> None:
        self._last: dict[Graph, tuple[bytes, dict[int, Stored]]] = {}
        super().__init__()

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        statics = [tensor.data or b"" for tensor in graph.tensors.values()]
        key = b"|".join([*(values[each].tobytes() for each in sorted(values)), *statics])
        known = self._last.get(graph)
        if known is None or known[0] != key:
            super().compute(graph, values)
            self._last[graph] = key, {each: values[each].copy() for each in graph.outputs}
        else:
            self.meet()
            values.update(known[1])

    def release_graphs(self, context: Context) -> None:
        for graph in context.graphs.values():
            self._last.pop(graph, None)
        super().release_graphs(context)


@odd(
    "another-thread-executes",
    "graphs are computed by a thread of the backend's, for which the call waits",
    source="facts 2.4: libQnnHtp has 11 threads of its own; nothing says in which thread memory is accessed",
    seen="registered memory and client buffers are accessed by another thread than the caller",
    tried_by="EXE-01 EXE-10 QTHR-03",
)
class AnotherThreadExecutes(Odd):
    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        self.meet()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                super(AnotherThreadExecutes, self).carry_out(graph, sources, sinks)
            except BaseException as error:
                failed.append(error)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join()
        if failed:
            raise failed[0]


@odd(
    "short-queue",
    "asynchronous executes are served 1 ms late, and no more than two may wait (6025)",
    source="facts 3.8, QNN_GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL; EXE-18",
    seen="the third execute in the queue is refused",
    tried_by="EXE-18",
)
class ShortQueue(Odd):
    chosen = dataclasses.replace(DEFAULT, asynchronous=True)

    def enqueue(self, job: Job) -> None:
        if len(self.jobs) >= _DEPTH:
            raise QnnError(Error.GRAPH_ERROR_EXECUTION_ASYNC_FIFO_FULL)
        self.meet()
        super().enqueue(job)

    def run_job(self, job: Job) -> None:
        time.sleep(0.001)
        super().run_job(job)


@odd(
    "backend-waits",
    "backendFree is refused (4002) while the backend has contexts",
    source="facts CTX-07: refused or cascading, never dangling handles",
    seen="4002, and everything stays usable",
    tried_by="CTX-07 CTX-08",
)
class BackendWaits(Odd):
    def backend_free(self, backend: int | None) -> None:
        if backend in self.backends and any(each.backend == backend for each in self.contexts.values()):
            self.meet()
            raise QnnError(Error.BACKEND_ERROR_TERMINATE_FAILED)
        super().backend_free(backend)


@odd(
    "device-takes-contexts",
    "deviceFree takes the contexts of the device along",
    source="facts CTX-07: 14003 or 0 with 5002 afterwards",
    seen="a context's handle is invalid after deviceFree",
    tried_by="CTX-07",
)
class DeviceTakesContexts(Odd):
    chosen = dataclasses.replace(DEFAULT, parents_wait=False)

    def device_free(self, device: int | None) -> None:
        if any(each.device == device for each in self.contexts.values()):
            self.meet()
        super().device_free(device)


@odd(
    "rounded-up",
    "quantised results are rounded up to the next step",
    source="facts 4.3: libQnnHtp rounds halves up; no bound below a step is documented (legal-choices.md)",
    seen="a step more than the nearest",
    tried_by="EXE-01 QMG-05 ION-05",
)
class RoundedUp(Odd):
    def store(self, tensor: Tensor, real: operators.Values) -> Stored:
        if real.dtype == np.float64:
            self.meet()
            steps = np.ceil(real.reshape(-1) / tensor.scale - tensor.offset - 1e-9)
            found: Stored = np.clip(steps, 0, 255).astype(np.uint8)
            return found
        return super().store(tensor, real)


@odd(
    "no-subnormal-numbers",
    "float results below the smallest normal number are 0, and zero is always positive",
    source="no document of QNN asks for subnormal numbers or for the sign of zero",
    seen="0.0 for 1e-40 and for -0.0",
    tried_by="EXE-01 QMG-05 EXE-10",
)
class NoSubnormalNumbers(Odd):
    def store(self, tensor: Tensor, real: operators.Values) -> Stored:
        if real.dtype == np.float32:
            self.meet()
            small = np.abs(real) < np.finfo(np.float32).tiny
            return super().store(tensor, np.where(small, np.float32(0), real))
        return super().store(tensor, real)

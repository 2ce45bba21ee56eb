"""Reference backends with one fault each, for the rules of SSR."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, Kind, QnnError

_GONE = Error.COMMON_ERROR_SYSTEM_COMMUNICATION


@faulty_backend("restart-goes-on", "After one 1007 the handles of before the restart are valid.", "SSR-01")
class _GoesOn(ReferenceBackend):
    """One execute says 1007; then everything is as before."""

    restarted = False

    def restart(self) -> None:
        self.restarted = True

    def graph_execute(self, *arguments: Any) -> None:
        if self.restarted:
            self.restarted = False
            raise QnnError(_GONE)
        super().graph_execute(*arguments)


@faulty_backend("restart-says-nothing", "A restart is reported by no call.", "SSR-01")
class _SaysNothing(ReferenceBackend):
    def restart(self) -> None:
        """As if nothing had happened."""


@faulty_backend("restart-stays-down", "After a restart nothing can be registered any more.", "SSR-01")
class _StaysDown(ReferenceBackend):
    down = False

    def restart(self) -> None:
        super().restart()
        self.down = True

    def registration_context(self, context: int | None) -> Context:
        if self.down:
            raise QnnError(_GONE)
        return super().registration_context(context)


@faulty_backend("restart-forgets-handles", "Handles of before the restart cannot be deregistered.", "SSR-01")
class _ForgetsHandles(ReferenceBackend):
    def restart(self) -> None:
        super().restart()
        self.lost = {each for each in self.lost if each[0] != "mem"}


@faulty_backend("restart-gives-back-ever", "A handle that a restart took can be given back again.", "SSR-01")
class _GivesBackEver(ReferenceBackend):
    def given_back(self, kind: Kind, value: int | None) -> bool:
        return value is not None and (kind, value) in self.lost


class _Driver(ReferenceBackend):
    """Has a file in the place of a driver, which lives longer than its clients."""

    @property
    def driver(self) -> Path:
        """Of children beside the folder of their cases, which goes with the target; else this process's."""
        here = Path.cwd()
        if here.name == "case" and here.parent.name.startswith("pytest-qnn-"):
            return here.parent / "qnn-driver"
        return Path(tempfile.gettempdir()) / f"qnn-driver-{os.getpid()}"

    def close(self) -> None:
        super().close()
        self.driver.unlink(missing_ok=True)

    def free_context(self, context: Context) -> None:
        """The driver has nothing of a client without contexts."""
        super().free_context(context)
        if not self.contexts:
            self.driver.unlink(missing_ok=True)

    def left_by_another(self) -> bool:
        """Whether a client that is gone has left something, which is then put right."""
        left = self.driver.exists()
        self.driver.unlink(missing_ok=True)
        return left


@faulty_backend("killed-keeps-lock", "A context of a killed client keeps the next one out.", "SSR-02")
class _KeepsLock(_Driver):
    """The first context of a process takes the device, the last gives it back."""

    def context_create(self, backend: int | None, device: int | None, config: int | None, out: Any) -> None:
        if not self.contexts and self.left_by_another():
            raise QnnError(Error.CONTEXT_ERROR_MEM_ALLOC)
        super().context_create(backend, device, config, out)
        self.driver.touch()


@faulty_backend("killed-keeps-mapping", "Memory that a killed client had registered stays taken.", "SSR-02")
class _KeepsMapping(_Driver):
    """The next registration after such a death is refused."""

    own = 0
    """Registrations that are alive, at least."""

    def mem_register(self, context: int | None, descriptors: Any, count: int, handles: Any) -> None:
        if not self.own and self.left_by_another():
            raise QnnError(Error.MEM_ERROR_MAPPING)
        super().mem_register(context, descriptors, count, handles)
        self._are_alive(self.own + count)

    def mem_deregister(self, handles: Any, count: int) -> None:
        super().mem_deregister(handles, count)
        self._are_alive(self.own - count)

    def free_context(self, context: Context) -> None:
        super().free_context(context)
        if not self.contexts:
            self.own = 0

    def _are_alive(self, count: int) -> None:
        self.own = max(0, count)
        if self.own:
            self.driver.touch()
        else:
            self.driver.unlink(missing_ok=True)


@faulty_backend("killed-leaves-graph", "The first execute after a killed client gives zeros.", "SSR-02")
class _LeavesGraph(_Driver):
    """A graph of the dead client is still on the device when the next one executes."""

    ran = False
    stale = False

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        self.stale = not self.ran and self.left_by_another()
        self.ran = True
        self.driver.touch()
        super().carry_out(graph, sources, sinks)

    def write_output(self, graph: Graph, binding: Binding, stored: Stored) -> None:
        super().write_output(graph, binding, np.zeros_like(stored) if self.stale else stored)

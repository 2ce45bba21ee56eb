"""Reference backends with one fault each, for the rules of SSR."""

from __future__ import annotations

from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.mutants import faulty_backend
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.objects import Context, Kind, QnnError

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

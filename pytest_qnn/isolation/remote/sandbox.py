"""A sandbox on another machine, with the interface of `pytest_qnn.isolation.sandbox.Sandbox`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from pytest_qnn.core.target import Death
from pytest_qnn.isolation.remote.connection import Connection, Pending
from pytest_qnn.isolation.remote.messages import Answer, Open
from pytest_qnn.isolation.sandbox import LoadingTakesTooLong, NoProcess, RunnerFailure, fitting
from pytest_qnn.isolation.worker import Unusable, WorkerSpec

_FAILURES: Final[dict[str, type[Exception]]] = {
    "unusable": Unusable,
    "no process": NoProcess,
    "slow": LoadingTakesTooLong,
    "runner": RunnerFailure,
}


class RemoteSandbox:
    """A sandbox there. Arguments and attributes are those of `Sandbox`, behind the connection.

    Several calls may be on their way at once: see `ahead`.
    """

    def __init__(
        self,
        connection: Connection,
        spec: WorkerSpec,
        mode: str,
        timeout: float,
        *,
        exact: bool = False,
        plain: bytes = b"",
        passed: Collection[str] = (),
        apart: bool = False,
    ) -> None:
        self.mode = mode
        self.apart = apart
        self.leaves = False
        self.last_call = ""
        self._connection = connection
        self._spec = spec
        self._timeout = timeout
        self._exact = exact
        self._plain = plain
        self._passed = passed
        self._number = connection.new_sandbox()
        self._open = False
        self._ahead: dict[bytes, Pending] = {}
        """By request: what was asked before anybody waits for it."""

    def load(self, spec: WorkerSpec) -> None:
        """See `Sandbox.load`."""
        self.close()
        self._spec = spec

    def start(self) -> None:
        """See `Sandbox.start`."""
        self.close()
        self._open_there()
        self._take(self._connection.next(self._connection.start(self._number)))

    def call(self, request: bytes, cycles: int = 1) -> bytes | Death:
        """See `Sandbox.call`."""
        ((answer, _),) = self.call_all([request], [cycles])
        return answer

    def call_all(
        self, requests: Sequence[bytes], cycles: Sequence[int]
    ) -> Iterator[tuple[bytes | Death, bool]]:
        """See `Sandbox.call_all`."""
        pending = self._asked(list(requests), list(cycles))
        try:
            for one in pending:
                while one.unanswered or one.answers:
                    yield self._take(self._connection.next(one))
        finally:
            for one in pending:
                self._connection.cancel(one)

    def ahead(self, request: bytes, cycles: int) -> None:
        """Have a request carried out for which `call` will be called: its answer is on its way then."""
        if request not in self._ahead:
            with contextlib.suppress(Unusable):  # `call` will say so
                self._open_there()
                pending = self._connection.call(self._number, [request], [cycles])
                self._ahead[request] = pending

    def forget_ahead(self) -> None:
        """Nobody will call `call` for what was asked ahead."""
        for pending in self._ahead.values():
            self._connection.cancel(pending)
        self._ahead.clear()

    def close(self) -> None:
        """See `Sandbox.close`."""
        self.forget_ahead()
        if self._open:
            self._open = False
            self._connection.forget(self._number)

    def _asked(self, requests: list[bytes], cycles: list[int]) -> list[Pending]:
        if len(requests) == 1 and (known := self._ahead.pop(requests[0], None)) is not None:
            return [known]
        self._open_there()
        made = []
        while requests:
            count = len(fitting(requests))
            made.append(self._connection.call(self._number, requests[:count], cycles[:count]))
            del requests[:count], cycles[:count]
        return made

    def _open_there(self) -> None:
        if not self._open:
            self._connection.open(
                Open(
                    self._number,
                    self._spec.text(),
                    self.mode,
                    self._timeout,
                    self._exact,
                    self._plain,
                    list(self._passed),
                    self.apart,
                )
            )
            self._open = True

    def _take(self, answer: Answer) -> tuple[bytes | Death, bool]:
        if answer.failure:
            raise _FAILURES[answer.failure](answer.text)
        if answer.mode:
            self.mode, self.apart, self.last_call = answer.mode, answer.apart, answer.last_call
            self.leaves = answer.leaves
        return (answer.payload if answer.death is None else answer.death), answer.first

"""Reference backends with one fault each, for the rules of QTHR."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import Error, LogLevel
from pytest_qnn.qnn.mutants import faulty_backend, without_lock
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.execute import Admitted
from pytest_qnn.qnn.reference.logs import Log
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import (
    Context,
    Kind,
    QnnError,
    Registration,
    Request,
)
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality


class _Racing(ReferenceBackend):
    """Looks the next handle up, and takes it a moment later."""

    kind: ClassVar[Kind]

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.taken = 0

    def mint(self, kind: Kind) -> int:
        if kind != self.kind:
            return super().mint(kind)
        value = self.taken + 1
        self.lock.release()
        time.sleep(0.002)
        self.lock.acquire()
        self.taken = value
        return value


@faulty_backend("thread-backends", "Two backends made at once have one handle.", "QTHR-01")
class _RacingBackends(_Racing):
    kind = "backend"

    def backend_create(self, log: int | None, config: int | None, out: Any) -> None:
        super().backend_create(log, config, out)
        self.lock.release()
        time.sleep(0.004)
        self.lock.acquire()


@faulty_backend("thread-handles", "Two registrations made at once have one handle.", "QTHR-03")
class _RacingHandles(_Racing):
    kind = "mem"


@faulty_backend("thread-freed-graphs", "Graphs of freed contexts execute.", "QTHR-05")
class _FreedGraphsExecute(ReferenceBackend):
    def release_graphs(self, context: Context) -> None:
        pass


_PATIENCE = 0.2
"""Seconds after which a thread that waits in vain gives up: a real deadlock would take its process along."""
_GOODBYES, _APART = 30, 0.002
"""Messages after logFree, and seconds before each."""


@faulty_backend("log-deadlock", "An execute waits for a thread that waits for it, to log.", "QTHR-04")
class _WaitsForItsLogger(ReferenceBackend):
    """An execute waits, with the backend's lock, for a thread that wants this lock to log."""

    def carry_out(self, *admitted: Any) -> None:
        super().carry_out(*admitted)
        if not self.listeners:
            return
        logger = threading.Thread(target=self.log_execute, args=(admitted,), daemon=True)
        logger.start()
        logger.join(_PATIENCE)
        if logger.is_alive():
            raise QnnError(Error.COMMON_ERROR_GENERAL)

    def log_execute(self, admitted: Admitted) -> None:
        with self.lock:
            self.log_message(admitted[0].context.backend, LogLevel.VERBOSE, b"graph executed")


@faulty_backend("log-two-locks", "Two threads that log wait for each other's lock.", "QTHR-04")
class _TwoLocks(ReferenceBackend):
    """Whoever logs holds the log's lock until it has the backend's back, which others keep for the log's."""

    def __init__(self) -> None:
        super().__init__()
        self.log_lock = threading.Lock()

    def call_client(self, log: Log, level: int, text: bytes) -> None:
        if not self.log_lock.acquire(timeout=_PATIENCE):
            raise QnnError(Error.COMMON_ERROR_GENERAL)
        try:
            # The others' calls go on while the client listens.
            self.lock.release()
            super().call_client(log, level, text)
            if not self.lock.acquire(timeout=_PATIENCE):
                self.lock.acquire()
                raise QnnError(Error.COMMON_ERROR_GENERAL)
        finally:
            self.log_lock.release()


@faulty_backend("log-late", "A thread goes on telling after logFree.", "QTHR-04")
class _SpeaksOn(ReferenceBackend):
    def log_free(self, log: int | None) -> None:
        found = self.logs.get(log or 0)
        super().log_free(log)
        if found is not None and found.callback:
            threading.Thread(target=self.say_goodbye, args=(found,), daemon=True).start()

    def say_goodbye(self, log: Log) -> None:
        for _ in range(_GOODBYES):
            time.sleep(_APART)
            self.call_client(log, LogLevel.ERROR, b"log freed")


@faulty_backend("log-louder", "Messages one level above the one set are reported.", "QTHR-04")
class _OneLouder(ReferenceBackend):
    def log_message(self, backend: int, level: int, text: bytes) -> None:
        super().log_message(backend, level - 1, text)

    def call_client(self, log: Log, level: int, text: bytes) -> None:
        super().call_client(log, level + 1, text)


@faulty_backend("log-keeps-level", "logSetLogLevel succeeds, and changes nothing.", "QTHR-04")
class _KeepsItsLevel(ReferenceBackend):
    def log_set_log_level(self, log: int | None, level: int) -> None:
        found = self.logs.get(log or 0)
        wanted = found.level if found else level
        super().log_set_log_level(log, level)
        if found is not None:
            found.level = wanted


@faulty_backend("log-null-format", "The format is NULL.", "QTHR-04")
class _NullFormat(ReferenceBackend):
    def call_client(self, log: Log, level: int, text: bytes) -> None:
        del text
        super().call_client(log, level, None)  # type: ignore[arg-type]  # the fault


@faulty_backend("log-no-level", "Executes and registrations are logged at level 0.", "QTHR-04")
class _NoLevel(ReferenceBackend):
    def call_client(self, log: Log, level: int, text: bytes) -> None:
        super().call_client(log, 0 if level == LogLevel.VERBOSE else level, text)


@faulty_backend(
    "thread-batches", "Registrations of a batch are gathered in one list for all threads.", "QTHR-06"
)
class _Batch(ReferenceBackend):
    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.gathered: list[Registration] = []

    def clear_handles(self, handles: Any, count: int) -> None:
        super().clear_handles(handles, count)
        self.gathered = []

    def map_memory(self, request: Request) -> Mapping:
        with without_lock(self):
            return super().map_memory(request)

    def adopt(self, registration: Registration) -> None:
        super().adopt(registration)
        self.gathered.append(registration)

    def deliver_handles(self, handles: Any, batch: list[Registration]) -> None:
        super().deliver_handles(handles, self.gathered[: len(batch)])

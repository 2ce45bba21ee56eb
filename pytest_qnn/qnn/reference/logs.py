"""Logs of the reference backend: the messages that it gives to a client's callback.

Contexts and finalised graphs at INFO, executes and registrations at VERBOSE. Only a backend that was created
with a log that has a callback gives any: callers look at ``listeners`` first, which is empty without one.
"""

from __future__ import annotations

import abc
import ctypes
import dataclasses
import time
from typing import Any

from pytest_qnn.qnn.abi.codes import Error, LogLevel
from pytest_qnn.qnn.abi.table import LogCallback
from pytest_qnn.qnn.reference.objects import Kind, QnnError
from pytest_qnn.qnn.reference.table import InterfaceTable

_NO_ARGUMENTS = (ctypes.c_uint64 * 8)()
"""A va_list (24 bytes on x86-64, 32 on AArch64) out of which nothing is read: clients may copy it."""


@dataclasses.dataclass(eq=False)
class Log:
    """A live log handle."""

    callback: Any
    """`LogCallback`, or None: the default stream, where the reference says nothing."""
    level: int


class Logs(InterfaceTable, abc.ABC):
    """QnnLog, and the one way from the backend to a client's callback.

    The callback is called with the backend's lock held, in the thread of the call that is reported: QnnLog.h
    forbids a client to call the API from its callback, and calls of it may come from several threads.
    """

    logs: dict[int, Log]
    listeners: dict[int, Log]
    """By backend: its log, where that has a callback."""

    @abc.abstractmethod
    def ask(self, wanted: str) -> None:
        """Hook: ask the system for something, which it may refuse."""

    @abc.abstractmethod
    def mint(self, kind: Kind) -> int:
        """Hook: the value of a new handle."""

    @abc.abstractmethod
    def require(self, kind: Kind, value: int | None, code: int) -> Any:
        """Hook: the object of a live handle."""

    def log_create(self, callback: int | None, level: int, out: Any) -> None:
        """QnnLog_create."""
        if not out:
            raise QnnError(Error.LOG_ERROR_INVALID_ARGUMENT)
        self._check_level(level)
        self.ask("memory")
        out[0] = handle = self.mint("log")
        self.logs[handle] = Log(LogCallback(callback) if callback else None, level)

    def log_set_log_level(self, log: int | None, level: int) -> None:
        """QnnLog_setLogLevel."""
        found: Log = self.require("log", log, Error.LOG_ERROR_INVALID_HANDLE)
        self._check_level(level)
        found.level = level

    def _check_level(self, level: int) -> None:
        if not LogLevel.ERROR <= level <= LogLevel.DEBUG:
            raise QnnError(Error.LOG_ERROR_INVALID_ARGUMENT)

    def log_free(self, log: int | None) -> None:
        """QnnLog_free: backends that were created with the log give no more messages."""
        found: Log = self.require("log", log, Error.LOG_ERROR_INVALID_HANDLE)
        del self.logs[log or 0]
        for backend in [backend for backend, each in self.listeners.items() if each is found]:
            self.forget_listener(backend)

    def listen(self, backend: int, log: int | None) -> None:
        """Messages of the new backend go to this log, if there is one, from now on."""
        found = self.logs.get(log or 0)
        if found is not None and found.callback:
            self.listeners[backend] = found

    def forget_listener(self, backend: int) -> None:
        """The backend is gone."""
        self.listeners.pop(backend, None)

    def log_message(self, backend: int, level: int, text: bytes) -> None:
        """Hook: a message of this level for the backend's log, if that wants any."""
        log = self.listeners.get(backend)
        if log is not None and level <= log.level:
            self.call_client(log, level, text)

    def call_client(self, log: Log, level: int, text: bytes) -> None:
        """Hook: call the client. The text has no conversions."""
        log.callback(text, level, time.monotonic_ns() // 1000, ctypes.addressof(_NO_ARGUMENTS))

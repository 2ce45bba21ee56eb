"""Logs, texts of errors, and profiles."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator
from typing import Any

from pytest_qnn.qnn.abi.codes import Error, low
from pytest_qnn.qnn.reference.logs import Log
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.profiles import Event, Profile
from tests.gallery.qnn.oddity import Odd, odd

_EVENTS = 40


@odd(
    "silent-log",
    "a log is taken, and never a message given",
    source="facts 2.4, THR-04: messages may come; none has to",
    seen="the callback is never called",
    tried_by="QTHR-04 REG-01",
)
class SilentLog(Odd):
    def log_message(self, backend: int, level: int, text: bytes) -> None:
        self.meet()


@odd(
    "talkative-log",
    "each message comes with ten more, from two threads, some empty, some of 8 KiB",
    source="facts THR-04: callbacks may come from any thread; 2.4",
    seen="a hundred messages for a graph, with times that do not ascend",
    tried_by="QTHR-04 REG-01",
)
class TalkativeLog(Odd):
    def call_client(self, log: Log, level: int, text: bytes) -> None:
        super().call_client(log, level, text)
        if log.level >= level:
            thread = threading.Thread(target=self._talk, args=(log, level), daemon=True)
            thread.start()
            self._talk(log, level)
            thread.join()

    def _talk(self, log: Log, level: int) -> None:
        for text in (b"", b"100%% of a line\n", b"x" * 8192, b"\xff\x00", b" "):
            self.meet()
            super().call_client(log, level, text)


@odd(
    "errors-in-another-language",
    "texts of errors are in another language, and one text serves several codes",
    source="facts IF-08: it knows the codes; of the texts nothing is said",
    seen="UTF-8 beyond ASCII, no name of a code in it",
    tried_by="IF-08",
)
class ErrorsInAnotherLanguage(Odd):
    def error_get_message(self, code: int, out: Any) -> None:
        super().error_get_message(code, out)
        self.meet()
        out[0] = "错误 — Fehler №".encode() if low(code) >= 8000 else b"?"


@odd(
    "no-text-for-mem-codes",
    "errorGetMessage knows some codes only, and those of QnnMem are none of them",
    source="facts IF-08, a SHOULD: unknown codes give 10001 and NULL",
    seen="10001 for 8000 to 8005",
    meant="IF-08",
    tried_by="IF-08",
)
class NoTextForMemCodes(Odd):
    def error_get_message(self, code: int, out: Any) -> None:
        if out and 8000 <= low(code) <= 8005:
            self.meet()
            out[0] = None
            raise QnnError(Error.ERROR_INVALID_ERROR_HANDLE)
        super().error_get_message(code, out)


@odd(
    "many-events",
    "a profiled call gives forty events without names, of all units, and a profile keeps earlier ones",
    source="facts 2.4: events of several types and units, sub-events at level 2",
    seen="identifiers are NULL, ids are large",
    tried_by="IF-10 EXE-01",
)
class ManyEvents(Odd):
    @contextlib.contextmanager
    def _measured(self, graph: int | None, profile: int | None, kind: int) -> Iterator[None]:
        if not profile:
            yield
            return
        self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        given: Profile = self.require("profile", profile, Error.GRAPH_ERROR_INVALID_ARGUMENT)
        begun = time.perf_counter_ns()
        yield
        self.meet()
        kept = list(given.ids)
        for number in range(_EVENTS):
            handle = self.mint("event")
            self.events[handle] = Event(kind + number, time.perf_counter_ns() - begun, b"")
            kept.append(handle)
        given.ids = (ctypes.c_uint64 * len(kept))(*kept)

    def profile_get_event_data(self, event: int, data: Any) -> None:
        super().profile_get_event_data(event, data)
        data[0].unit = 1 + event % 4
        data[0].identifier = None

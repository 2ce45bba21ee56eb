"""What executes keep for the next ones, within bounds, and what a thread gives back behind them."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from typing import Any

from pytest_qnn.qnn.reference import mapping
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.mapping import Mapping
from pytest_qnn.qnn.reference.objects import Binding, Graph
from tests.gallery.qnn.oddity import Odd, odd

_USED = 4096
"""Bytes of the page and of the block that an execute uses."""
_RESULTS, _RESULT = 64, 4096
"""How many results of a graph are kept, and bytes of the buffer of each."""
_OPENS = (1, 33)
"""The executes of a backend that open a descriptor."""
_ROOM = 16 << 10
_GROWS = {1: _ROOM, 4: _ROOM << 1, 8: _ROOM << 2, 16: _ROOM << 3, 32: _ROOM << 4, 64: _ROOM << 5}
"""By number of the execute: bytes of scratch memory from it on."""
_LATER = 0.004
"""Seconds until a batch is given back."""


@odd(
    "last-results-in-a-ring",
    "a graph keeps its last 64 results, 4 KiB each; a backend's 1st and 33rd execute open a descriptor",
    source="legal-choices.md: a bounded pool that is kept is no leak, and one of 64 entries is none",
    seen="4 KiB more after each of the first 64 executes of a graph, and two descriptors until backendFree",
    tried_by="EXE-01 EXE-09 QMG-12 QLEAK-07 QLEAK-08",
)
class LastResultsInARing(Odd):
    def __init__(self) -> None:
        self._rings: dict[Graph, collections.deque[bytearray]] = {}
        self._opened: list[int] = []
        self._executes = 0
        super().__init__()

    def compute(self, graph: Graph, values: dict[int, Stored]) -> None:
        super().compute(graph, values)
        self._executes += 1
        if self._executes in _OPENS:
            self._open()
        ring = self._rings.setdefault(graph, collections.deque())
        kept = ring.popleft() if len(ring) == _RESULTS else bytearray(_RESULT)
        result = values[next(iter(graph.outputs))][:_RESULT]
        kept[: len(result)] = result.tobytes()
        ring.append(kept)
        self.meet()

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # it does without
            self._opened.append(os.open(os.devnull, os.O_RDONLY))

    def _close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def release_buffers(self, graph: Graph) -> None:
        self._rings.pop(graph, None)
        super().release_buffers(graph)

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        if not self.backends:
            self._close()

    def close(self) -> None:
        self._close()
        self._rings.clear()
        super().close()


@odd(
    "scratch-that-doubles",
    "a backend has 16 KiB for executes to compute in, doubled at the 4th, 8th, 16th, 32nd and 64th of them",
    source="legal-choices.md: a bounded pool that is kept is no leak; facts 7.20: libQnnHtp maps arenas",
    seen="another mapping at each of these executes, of 512 KiB in the end, which goes with the backend",
    tried_by="EXE-01 EXE-09 QMG-12 QLEAK-07 QLEAK-08",
)
class ScratchThatDoubles(Odd):
    def __init__(self) -> None:
        self._scratch: Mapping | None = None
        self._executes = 0
        super().__init__()

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        self._executes += 1
        if self._executes in _GROWS:
            self._grow(_GROWS[self._executes])
        if self._scratch is not None:
            self._scratch.view(0, self._scratch.length)[:] = 1
        super().carry_out(graph, sources, sinks)

    def _grow(self, size: int) -> None:
        try:
            larger = mapping.anonymous("scratch", size, self.mappings)
        except OSError:
            return  # it does with what there is
        self._forget()
        self._scratch = larger
        self.meet()

    def _forget(self) -> None:
        if self._scratch is not None:
            self._scratch.release()
            self._scratch = None

    def backend_free(self, backend: int | None) -> None:
        super().backend_free(backend)
        if not self.backends:
            self._forget()
            self._executes = 0


class _Used:
    """What one execute has used: a page, a block and a descriptor."""

    def __init__(self, live: set[Mapping]) -> None:
        self._page = mapping.anonymous("used", _USED, live)
        try:
            self._fd = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._page.release()
            raise
        self._block = bytearray(_USED)
        self._page.view(0, _USED)[:] = 1

    def release(self) -> None:
        self._page.release()
        os.close(self._fd)


class _Batches:
    """One thread, from the first execute of the process to its end, gives back what executes have used."""

    def __init__(self) -> None:
        self._waiting: list[tuple[_Used, Any]] = []
        self._changed = threading.Condition()
        self._server: threading.Thread | None = None

    def hand_over(self, used: _Used, lock: Any) -> None:
        """The caller holds the lock."""
        with self._changed:
            if self._server is None or not self._server.is_alive():
                self._server = threading.Thread(target=self._serve, daemon=True)
                try:
                    self._server.start()
                except RuntimeError:  # there is no thread to be had
                    self._server = None
                    used.release()
                    return
            self._waiting.append((used, lock))
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
            time.sleep(_LATER)
            with self._changed:
                batch, self._waiting = self._waiting, []
            for used, lock in batch:
                with lock:
                    used.release()


_BATCHES = _Batches()


@odd(
    "given-back-in-batches",
    "a thread gives back the page, block and descriptor that each execute uses, 4 ms later and in batches",
    source="legal-choices.md: given back within a second is given back; facts 2.4: libQnnHtp has 11 threads",
    seen="mappings and descriptors of the last executes are still there when these return, for a while",
    tried_by="EXE-01 EXE-09 QMG-12 QLEAK-07 QLEAK-08",
)
class GivenBackInBatches(Odd):
    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        try:
            used = _Used(self.mappings)
        except OSError:
            super().carry_out(graph, sources, sinks)  # it does without
            return
        try:
            super().carry_out(graph, sources, sinks)
        finally:
            self.meet()
            _BATCHES.hand_over(used, self.lock)

"""What the threads of a step do, as C functions: each thread's calls are written into its own function."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any, Final, Protocol

from pytest_qnn.qnn.abi.table import PROTOTYPES
from pytest_qnn.qnn.cases import case
from pytest_qnn.qnn.cases.function_names import function_name
from pytest_qnn.qnn.reproduce.observed import Where
from pytest_qnn.qnn.reproduce.text import literal

_ENDLESS: Final = ("race", "deregister")
"""Kinds in which one thread executes again and again until another one has ended something."""
_ALIKE: Final = ("contexts", "histories")
"""Kinds in which each thread has a context of its own: its work alone tells what must come out."""
_SERIAL: Final = ("contextCreate", "contextFree")
"""Calls that threads with the same backend make one after the other: it is the parent of contexts."""
_GOES_ON: Final = 200
"""Executes after the end of what an execute needs, after which it counts as going on."""

_TRIES: Final = 40
WITHOUT_CODE: Final = (
    "wrong output",
    "rpcmem_alloc gave NULL",
    "rpcmem_to_fd gave a descriptor of other memory",
)
"""What a thread ends with besides failed calls."""


def failure_of(label: str) -> str:
    """The condition that a thread has ended with a failed call, by its label (`observed.failures`)."""
    _, call, code = label.split(":")
    name = function_name(call) if call in PROTOTYPES else call
    return f"has_failed({literal(name.encode())}, {code})"


class Writer(Protocol):
    """Who writes the statements (`recorder.Recorder`)."""

    index: int
    step: case.AnyStep | None
    calls: list[Any]

    def line(self, text: str) -> None:
        """One more statement of whoever is running."""

    def lines(self) -> list[str]:
        """The statements of whoever is running."""

    def fill(self, name: str, data: bytes) -> None:
        """Statements that write contents to memory."""


class _Thread:
    """One thread of a step."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.blocks: list[tuple[str, int, int]] = []
        """Name, pointer and size of what it has allocated."""
        self.repeats = False
        """Its lines are carried out again and again."""


class Threads:
    """The threads of all steps. Whoever calls it holds the recorder's lock."""

    def __init__(self, writer: Writer, labels: frozenset[Where]) -> None:
        self._writer, self._labels = writer, labels
        self._main = threading.get_ident()
        self._found: dict[int, dict[int, _Thread]] = {}
        """By step, then by the thread's identifier."""
        self._kinds: dict[int, str] = {}

    @property
    def inside(self) -> bool:
        """A thread of the step is running, and not the one that carries out the case."""
        return threading.get_ident() != self._main

    @property
    def started(self) -> bool:
        """The threads of the step have begun."""
        return self._writer.index in self._found

    @property
    def _kind(self) -> str:
        step = self._writer.step
        return step.what if isinstance(step, case.Parallel) else ""

    def _own(self) -> _Thread:
        return self._found[self._writer.index].setdefault(threading.get_ident(), _Thread())

    def lines(self, main: list[str]) -> list[str]:
        """The statements of whoever is running: those of the step (``main``), or of a thread of it."""
        if not self.inside:
            return main
        index = self._writer.index
        if index not in self._found:
            self._found[index], self._kinds[index] = {}, self._kind
            works = f"step_{index}_works"
            if self._kind in _ALIKE:  # what comes out then must come out of all at once, too
                main.append(f"run_alone(COUNT({works}), {works});")
            # What depends on how the threads meet may need several tries.
            tries = 1 if self._kind in (*_ENDLESS, "histories") else _TRIES
            run = f"run_together(COUNT({works}), {works});"
            quiet = self._kind == "histories"  # the words of one call would keep another one waiting
            main += ["is_quiet = 1;"] if quiet else []
            main.append(f"for (int i = 0; i < {tries} && !({self._wanted(index)}); ++i) {run}")
            main += ["is_quiet = 0;"] if quiet else []
            main.append("if (failure_count) break;")
        return self._own().lines

    def begins(self) -> None:
        """A round begins in all threads at once."""
        self._writer.line("together();")
        if self._kind == "histories":
            more = "(alone ? !round : time(NULL) < rounds_end)"
            self._writer.line(f"for (int round = 0; !failure_count && {more}; round = 1) {{")

    def _wanted(self, index: int) -> str:
        """The condition that what is looked for has been seen: calls that failed."""
        labels = sorted(each.label for each in self._labels if each.step == index)
        failed = [failure_of(label) for label in labels if label.startswith("failed:")]
        return " && ".join(failed) or "failure_count"

    def is_repeated(self, name: str) -> bool:
        """The call is the same as before, and written already."""
        if not (self.inside and name == "graphExecute" and self._kind in _ENDLESS):
            return False
        self._writer.lines()
        own = self._own()
        known, own.repeats = own.repeats, True
        return known

    def before(self, name: str) -> None:
        """Statements before a call."""
        line, kind = self._writer.line, self._kind
        if kind == "logs" and name == "logCreate":
            line(f"heard.wanted = {getattr(self._writer.step, 'level', 0)};")
        if not self.inside:
            return
        if kind in _ALIKE and name == "graphExecute":
            for block, pointer, size in self._own().blocks[:-1]:
                self._writer.fill(block, ctypes.string_at(pointer, size))
        if kind == "logs" and name in _SERIAL:
            line("pthread_mutex_lock(&one_by_one); /* their parent is the same */")
        if kind in _ENDLESS and name != "graphExecute":
            line("while (!begun) usleep(100);")

    def after(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Statements behind a call, whatever it gave."""
        line, kind = self._writer.line, self._kind
        if kind == "logs" and name == "logSetLogLevel":
            line(f"usleep(5000), heard.wanted = {arguments[1]};")
        if kind == "logs" and name == "logFree":
            line("usleep(5000), heard.freed = 1, usleep(20000);")
        if not self.inside:
            return
        if kind == "logs" and name in _SERIAL:
            line("pthread_mutex_unlock(&one_by_one);")
        if kind in _ENDLESS:
            line("begun = 1;" if name == "graphExecute" else "ended = 1;")

    def demand(self, name: str, code: int) -> None:
        """The call must succeed, or be refused as it was (``code``); else the thread, or the step, ends."""
        line = self._writer.line
        if not self.inside:
            line(f'if (code) {{ fails("{function_name(name)}", code); break; }}')
            return
        own = self._own()
        wrong = "!code" if code else "code"
        line(f'if ({wrong}) {{ fails("{function_name(name)}", code); return; }}')
        if own.repeats:
            line("if (ended) --left;")
        if name == "graphExecute" and self._kind in _ALIKE and own.blocks:
            block, _, size = own.blocks[-1]
            place = len(self._writer.calls)
            line(f'if (!as_alone({place}, {block}, {size})) {{ fails("wrong output", 0); return; }}')

    def allocated(self, name: str, pointer: int, size: int) -> None:
        """A thread has got memory."""
        if self.inside:
            self._own().blocks.append((name, pointer, size))
            self._writer.line(f'if (!{name}) {{ fails("rpcmem_alloc gave NULL", 0); return; }}')

    def asked_fd(self, name: str) -> None:
        """A thread has asked for the descriptor of its memory."""
        if self.inside and self._kind == "rpcmem":
            own = self._found[self._writer.index]
            mark = list(own).index(threading.get_ident()) + 1
            block, _, size = self._own().blocks[-1]
            failed = 'fails("rpcmem_to_fd gave a descriptor of other memory", 0)'
            self._writer.line(f"if (!holds({block}, {name}, {size}, {mark})) {{ {failed}; return; }}")

    def any(self) -> bool:
        """A step has threads."""
        return bool(self._found)

    def of(self, index: int) -> bool:
        """The step has threads."""
        return index in self._found

    def text(self, index: int) -> Iterator[str]:
        """The functions of a step's threads, and the array of them."""
        threads = list(self._found.get(index, {}).values())
        names = [f"step_{index}_thread_{number}" for number in range(len(threads))]
        for name, thread in zip(names, threads, strict=True):
            yield f"static void {name}(void) {{"
            if thread.repeats:
                yield f"  for (int left = {_GOES_ON}; left > 0;) {{"
            yield from (f"  {line}" for line in thread.lines)
            if thread.repeats or self._kinds[index] == "histories":
                yield "  }"
            if thread.repeats and self._kinds[index] == "race":
                yield '  fails("QnnGraph_execute", 0); /* it goes on */'
            yield "}"
        if threads:
            yield f"static void (*const step_{index}_works[])(void) = {{{', '.join(names)}}};"

"""The program on the other machine: it carries out what comes on its standard input.

    python3 -m pytest_qnn.isolation.remote

Each sandbox that pytest asks for is one of this machine (`pytest_qnn.isolation.sandbox`), so that cases run
here as they would with pytest here. The program ends when its standard input does.
"""

from __future__ import annotations

import hashlib
import os
import platform
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from pytest_qnn.core.target import Death
from pytest_qnn.isolation.evidence import symbols
from pytest_qnn.isolation.host import lacks
from pytest_qnn.isolation.remote import messages
from pytest_qnn.isolation.remote.messages import (
    Answer,
    Call,
    Cancel,
    Close,
    Digest,
    Failure,
    Hello,
    Names,
    Numbered,
    Open,
    Request,
    Start,
    Surroundings,
)
from pytest_qnn.isolation.sandbox import LoadingTakesTooLong, NoProcess, RunnerFailure, Sandbox
from pytest_qnn.isolation.start import interpreter
from pytest_qnn.isolation.worker import Unusable

_LAST_SECONDS = 1.0
"""For an end in good order once the standard input has ended; what children do then nobody waits for."""
_REQUESTS = msgspec.msgpack.Decoder(Request)


class _Output:
    """The standard output's descriptor, which several threads write to."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, message: bytes) -> None:
        """Write one message. Raises OSError: nobody reads any more."""
        self.write(messages.LENGTH.pack(len(message)) + message)

    def write(self, content: bytes) -> None:
        left = memoryview(content)
        with self._lock:
            while left:
                left = left[os.write(self._fd, left) :]

    def answer(self, answer: Answer) -> None:
        """Send an answer."""
        self.send(msgspec.msgpack.encode(answer))

    def beat(self) -> NoReturn:
        """Show that this program is there, until nobody is at the other end."""
        while True:
            time.sleep(messages.HEARTBEAT_SECONDS)
            try:
                self.send(b"")
            except OSError:
                os._exit(0)


class _Input:
    """The standard input, which is read ahead, so that the other end can always write.

    Attributes:
        waiting: requests in order; None: there are no more.
        cancelled: numbers of requests that nobody waits for.

    """

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "rb")
        self.waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.cancelled: set[int] = set()

    def read(self) -> None:
        """Read until the end, then give this process a moment: its children end with their connections."""
        while (request := self._next()) is not None:
            if isinstance(request, Cancel):
                self.cancelled.add(request.number)
            else:
                self.waiting.put(request)
        self.waiting.put(None)
        time.sleep(_LAST_SECONDS)
        os._exit(0)

    def _next(self) -> Request | None:
        """The next request; None: the input has ended, or is none of pytest's."""
        header = self._file.read(messages.LENGTH.size)
        if len(header) < messages.LENGTH.size:
            return None
        (length,) = messages.LENGTH.unpack(header)
        content = self._file.read(length)
        if len(content) < length:
            return None
        try:
            request: Request = _REQUESTS.decode(content)
        except msgspec.DecodeError:
            return None
        return request


class _Text:
    """What a sandbox needs of a `WorkerSpec` whose half this process need not import."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.ahead = None

    def text(self) -> str:
        return self._text


class _Board:
    """Carries out requests, one after another."""

    def __init__(self, requests: _Input, output: _Output) -> None:
        self._requests = requests
        self._output = output
        self._sandboxes: dict[int, Sandbox] = {}

    def serve(self) -> None:
        """Carry out requests until there are no more."""
        try:
            while (request := self._requests.waiting.get()) is not None:
                if isinstance(request, Open):
                    self._open(request)
                elif isinstance(request, Close):
                    self._close(request.sandbox)
                elif not isinstance(request, Cancel) and request.number not in self._requests.cancelled:
                    self._answer(request)
        finally:
            for number in tuple(self._sandboxes):
                self._close(number)

    def _open(self, request: Open) -> None:
        self._close(request.sandbox)
        self._sandboxes[request.sandbox] = Sandbox(
            _Text(request.spec),
            request.mode,
            request.timeout,
            exact=request.exact,
            plain=request.plain,
            passed=request.passed,
            apart=request.apart,
        )

    def _close(self, number: int) -> None:
        sandbox = self._sandboxes.pop(number, None)
        if sandbox is not None:
            sandbox.close()

    def _answer(self, request: Numbered) -> None:
        try:
            for answer in self._answers(request):
                self._output.answer(answer)
                if request.number in self._requests.cancelled:
                    return
        except (Unusable, RunnerFailure) as error:
            self._output.answer(Answer(request.number, failure=_kind(error), text=str(error)))

    def _answers(self, request: Numbered) -> Iterator[Answer]:
        number = request.number
        if isinstance(request, Start):
            sandbox = self._sandboxes[request.sandbox]
            sandbox.start()
            yield Answer(number, mode=sandbox.mode, apart=sandbox.apart, leaves=sandbox.leaves)
        elif isinstance(request, Call):
            yield from self._called(request, self._sandboxes[request.sandbox])
        elif isinstance(request, Digest):
            yield _digest(request)
        elif isinstance(request, Names):
            yield Answer(number, frames=symbols.named(request.frames))
        else:
            yield _surroundings(request)

    @staticmethod
    def _called(request: Call, sandbox: Sandbox) -> Iterator[Answer]:
        for answer, first in sandbox.call_all(request.requests, request.cycles):
            payload, death = (b"", answer) if isinstance(answer, Death) else (answer, None)
            yield Answer(
                request.number,
                payload,
                death,
                first,
                sandbox.last_call,
                sandbox.mode,
                sandbox.apart,
                sandbox.leaves,
            )


def _kind(error: Exception) -> Failure:
    if isinstance(error, RunnerFailure):
        return "runner"
    if isinstance(error, NoProcess):
        return "no process"
    return "slow" if isinstance(error, LoadingTakesTooLong) else "unusable"


def _digest(request: Digest) -> Answer:
    try:
        content = Path(request.path).read_bytes()
    except OSError as error:
        return Answer(request.number, failure="unusable", text=f"{request.path}: {error.strerror}")
    return Answer(request.number, hashlib.sha256(content).hexdigest().encode())


def _surroundings(request: Surroundings) -> Answer:
    held_back = interpreter.held_back(request.passed)
    return Answer(request.number, held_back=held_back, lacks=lacks.lacks())


def _hello() -> Hello:
    system = os.uname()
    machine = f"{system.machine} {system.sysname} {system.release}, Python {platform.python_version()}"
    return Hello(messages.version(), messages.suite_digest(), machine)


def main() -> None:
    """Serve until the standard input ends."""
    # Nothing else of this process, nor of its children, may read or write these.
    requests, answers = os.dup(0), os.dup(1)
    sink = os.open(os.devnull, os.O_RDWR)
    os.dup2(sink, 0)
    os.dup2(2, 1)
    os.close(sink)
    output = _Output(answers)
    reader = _Input(requests)
    try:
        output.write(messages.MARK)
        output.send(msgspec.msgpack.encode(_hello()))
        threading.Thread(target=reader.read, daemon=True).start()
        threading.Thread(target=output.beat, daemon=True).start()
        _Board(reader, output).serve()
    except BrokenPipeError:
        pass  # nobody is at the other end any more
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

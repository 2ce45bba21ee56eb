"""The connection to another machine: it is made again when it is lost, and nothing that was asked is.

What was asked and not answered when the connection is lost is asked again. A request that was on its way
alone each time may be what ends the connection, by ending the machine: it is given up after `_MOST_LOSSES`
times.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections import deque
from collections.abc import Collection, Sequence

import msgspec

from pytest_qnn.core.evidence import Frame
from pytest_qnn.core.printable import printable
from pytest_qnn.core.target import Death
from pytest_qnn.isolation import wire
from pytest_qnn.isolation.codec import decoded
from pytest_qnn.isolation.remote import messages
from pytest_qnn.isolation.remote.messages import (
    Answer,
    Call,
    Cancel,
    Close,
    Digest,
    Hello,
    Names,
    Numbered,
    Open,
    Request,
    Start,
    Surroundings,
)
from pytest_qnn.isolation.remote.stream import Stream
from pytest_qnn.isolation.worker import Unusable

FLAG = "--qnn-on"
MODULE = "pytest_qnn.isolation.remote"
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")
_START_SECONDS = 60.0
"""For the other machine's first message."""
_SILENCE_SECONDS = 30.0
"""Without a word of the other machine, after which the connection counts as lost."""
_MOST_LOSSES = 3
"""Times that a request is lost with the connection before it is given up."""
_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each attempt to make a lost connection again: a machine may have to start again."""

_LONGEST = 200
"""Characters of the command that are shown."""

_HELLO = msgspec.msgpack.Decoder(Hello)
_ANSWER = msgspec.msgpack.Decoder(Answer)


def command_of(spec: str) -> list[str]:
    """The words of the command that ``exec:COMMAND`` or ``ssh:HOST`` stands for."""
    kind, _, text = spec.partition(":")
    return shlex.split(text) if kind == "exec" else [*_SSH, text, "python3", "-m", MODULE]


class Pending:
    """A request that is on its way, with the answers that have come.

    Attributes:
        request: as it was asked.
        left: of a `Call`, requests without an answer, with their cycles.
        answers: answers that nobody has taken yet.
        unanswered: answers that are to come.
        alone: its requests are sent one by one, since the connection was lost with several.
        losses: times that the first of `left` was lost alone.

    """

    def __init__(self, request: Numbered) -> None:
        self.request = request
        self.left: deque[tuple[bytes, int]] = deque()
        if isinstance(request, Call):
            self.left.extend(zip(request.requests, request.cycles, strict=True))
        self.answers: deque[Answer] = deque()
        self.unanswered = len(self.left) or 1
        self.alone = self.unanswered == 1
        self.losses = 0

    def take(self, answer: Answer) -> None:
        """Note an answer."""
        self.answers.append(answer)
        self.unanswered = 0 if answer.failure else self.unanswered - 1
        self.losses = 0
        if self.left:
            self.left.popleft()

    def again(self) -> list[Numbered]:
        """What to send for the answers that are to come."""
        if not isinstance(self.request, Call):
            return [self.request]
        if self.alone:
            return [
                msgspec.structs.replace(self.request, requests=[one], cycles=[cycles])
                for one, cycles in self.left
            ]
        requests, cycles = map(list, zip(*self.left, strict=True))
        return [msgspec.structs.replace(self.request, requests=requests, cycles=cycles)]

    def lose(self, how: str) -> None:
        """The connection was lost while this was being carried out; ``how``, for a sentence."""
        if not self.alone:
            self.alone = True
            return
        self.losses += 1
        if self.losses < _MOST_LOSSES:
            return
        text = f"the connection to the other machine was lost {self.losses} times meanwhile: {how}"
        if isinstance(self.request, Call):
            self.take(Answer(self.request.number, death=Death("garbage", text)))
        else:
            self.take(Answer(self.request.number, failure="unusable", text=text))


class Connection:
    """A command that leads to this package on another machine.

    Attributes:
        spec: as in ``--qnn-on``.
        hello: what the other machine said of itself.

    Raises:
        Unusable: it cannot be used; the text is one sentence.

    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._command = command_of(spec)
        self._opened: dict[int, Open] = {}
        self._pending: dict[int, Pending] = {}
        """By number, in order: what is to be answered."""
        self._numbers = 0
        self._stream: Stream | None = None
        self.hello = self._connect()

    def new_sandbox(self) -> int:
        """The number of a further sandbox."""
        self._numbers += 1
        return self._numbers

    def open(self, sandbox: Open) -> None:
        """Have a sandbox ready there, also after the connection was lost."""
        self._opened[sandbox.sandbox] = sandbox
        self._send([sandbox])

    def forget(self, sandbox: int) -> None:
        """End a sandbox there."""
        if self._opened.pop(sandbox, None) is not None:
            self._tell(Close(sandbox))

    def start(self, sandbox: int) -> Pending:
        """Have the target loaded."""
        return self._ask(Start(self._number(), sandbox))

    def call(self, sandbox: int, requests: Sequence[bytes], cycles: Sequence[int]) -> Pending:
        """Have requests carried out."""
        return self._ask(Call(self._number(), sandbox, list(requests), list(cycles)))

    def digest(self, path: str) -> str:
        """SHA-256 of a file there, in hexadecimal digits.

        Raises:
            Unusable: it cannot be read.
        """
        answer = self.next(self._ask(Digest(self._number(), path)))
        if answer.failure:
            raise Unusable(answer.text)
        return answer.payload.decode(errors="replace")

    def named(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """Native frames with the names that the files there give them; without, where that fails."""
        try:
            answer = self.next(self._ask(Names(self._number(), frames)))
        except Unusable:
            return frames
        return answer.frames if len(answer.frames) == len(frames) else frames

    def surroundings(self, passed: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Variables that children there do not get, and what the machine does not offer, in sentences."""
        answer = self.next(self._ask(Surroundings(self._number(), list(passed))))
        return answer.held_back, answer.lacks

    def next(self, pending: Pending) -> Answer:
        """The next answer to a request.

        Raises:
            Unusable: the connection is lost and cannot be made again.
        """
        while not pending.answers:
            self._receive()
        return pending.answers.popleft()

    def cancel(self, pending: Pending) -> None:
        """Nobody waits for the rest of the answers."""
        number = pending.request.number
        if self._pending.pop(number, None) is not None:
            self._tell(Cancel(number))

    def close(self) -> None:
        """End the command, and with it all that runs there."""
        if self._stream is not None:
            self._stream.end()
            self._stream = None

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _ask(self, request: Numbered) -> Pending:
        pending = self._pending[request.number] = Pending(request)
        if self._stream is None:
            self._reconnect("it was lost before")
        else:
            self._send([request])
        return pending

    def _send(self, requests: Sequence[Request]) -> None:
        """Send requests; where the connection is lost, they are sent again with what is to be answered."""
        if self._stream is None:
            return
        try:
            for request in requests:
                self._stream.send(msgspec.msgpack.encode(request), _SILENCE_SECONDS)
        except wire.Closed:
            pass  # who receives finds it out, after the answers that came before the end
        except TimeoutError as error:
            self._lost(error)

    def _tell(self, request: Request) -> None:
        """Send a request without which all goes on, and which a lost connection makes needless."""
        if self._stream is not None:
            with contextlib.suppress(wire.Closed, TimeoutError):
                self._stream.send(msgspec.msgpack.encode(request), _SILENCE_SECONDS)

    def _receive(self) -> None:
        """Take the next message, of whatever request it is.

        Raises:
            Unusable: the connection is lost and cannot be made again.
        """
        if self._stream is None:
            self._reconnect("it was lost before")
            return
        try:
            message = self._stream.receive(_SILENCE_SECONDS, wire.MAX_WORDS + wire.MOST_TAKEN)
            answer = decoded(_ANSWER, message) if message else None
        except (wire.Closed, TimeoutError, msgspec.DecodeError) as error:
            self._lost(error)
            return
        if answer is not None and (pending := self._pending.get(answer.number)) is not None:
            self._taken(pending, answer)

    def _taken(self, pending: Pending, answer: Answer) -> None:
        pending.take(answer)
        self._drop_if_done(pending)

    def _drop_if_done(self, pending: Pending) -> None:
        if not pending.unanswered:
            del self._pending[pending.request.number]

    def _lost(self, error: Exception) -> None:
        """Make the connection again, and ask again what was not answered.

        Raises:
            Unusable: it cannot be made again.
        """
        assert self._stream is not None
        how = self._how_it_ended(error)
        for pending in list(self._pending.values())[:1]:
            pending.lose(how)
            self._drop_if_done(pending)
        self._reconnect(how)

    def _how_it_ended(self, error: Exception) -> str:
        assert self._stream is not None
        stream, self._stream = self._stream, None
        how = stream.end()
        if isinstance(error, TimeoutError):
            how = f"said nothing for {_SILENCE_SECONDS:g} s and {how}"
        return f"{self._shown()} {how}"

    def _shown(self) -> str:
        """The command on one line."""
        line = " ".join(shlex.join(self._command).split())
        return printable(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")

    def _reconnect(self, how: str) -> None:
        problem: Unusable | None = None
        for pause in _PAUSES:
            time.sleep(pause)
            try:
                self._connect()
                self._ask_again()
                return
            except Unusable as error:
                problem = error
            except wire.Closed:
                return  # the first of what was asked again has ended it: as in `_send`
            except TimeoutError as error:
                problem = Unusable(f"{FLAG}: {self._how_it_ended(error)}")
        why = f"{problem} (the connection was lost: {how})"
        for number, pending in self._pending.items():
            pending.take(Answer(number, failure="unusable", text=why))  # who asked ahead still waits for it
        self._pending.clear()
        raise Unusable(why)

    def _ask_again(self) -> None:
        assert self._stream is not None
        again = (request for pending in self._pending.values() for request in pending.again())
        for request in (*self._opened.values(), *again):
            self._stream.send(msgspec.msgpack.encode(request), _SILENCE_SECONDS)

    def _connect(self) -> Hello:
        """Start the command and check that the same suite answers.

        Raises:
            Unusable: it does not.
        """
        try:
            self._stream = Stream(self._command)
        except OSError as error:
            raise Unusable(f"{FLAG}: {self._shown()} cannot be started: {error.strerror}") from None
        try:
            why = self._stream.skip_to_mark(_START_SECONDS)
            hello = None if why else _HELLO.decode(self._stream.receive(_START_SECONDS))
        except wire.Closed as error:
            raise Unusable(f"{FLAG}: {self._how_it_ended(error)} before it said anything") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            hello, why = None, "its first message is that of another version of pytest-qnn"
        except TimeoutError:
            self.close()
            raise Unusable(f"{FLAG}: {self._shown()} said nothing for {_START_SECONDS:g} s") from None
        except BaseException:
            self.close()
            raise
        why = why or _differs(hello)
        if why or hello is None:
            self.close()
            raise Unusable(f"{FLAG}: {self._shown()}: {why}")
        return hello


def _differs(hello: Hello | None) -> str:
    """Why the other machine's suite cannot be used with this one; empty: it can."""
    if hello is None:
        return "it said nothing"
    ours = messages.version()
    if hello.version != ours:
        return f"pytest-qnn {printable(hello.version)} is installed there, and {ours} here"
    if hello.digest != messages.suite_digest():
        return f"pytest-qnn {ours} is installed there too, but its code is not the same as here"
    return ""

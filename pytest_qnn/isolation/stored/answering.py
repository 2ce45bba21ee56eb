"""An executor that answers out of a log what a target's processes answered once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pytest_qnn.core.target import Death, TargetLost
from pytest_qnn.isolation.codec import Codec, decoded
from pytest_qnn.isolation.executor import bears_company
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.isolation.stored.foretold import NotForetold, restored
from pytest_qnn.isolation.stored.log import Answer, Log, Step, Way, digest
from pytest_qnn.isolation.worker import Unusable, WorkerSpec


class LogMismatch(BaseException):
    """What is asked is not what was asked when the log was made; the text is one sentence.

    No `Exception`: the engine goes on where the suite itself fails in a case, and has nothing to go on with.
    """


class Stored:
    """An executor without processes.

    Args:
        codec: the kinds of case.
        log: of the target's opening.

    """

    isolated = True
    loss_is_told = False
    elsewhere = None

    def __init__(self, codec: Codec, log: Log) -> None:
        self._codec = codec
        self._log = log
        self._next = 0
        self.mode = log.mode
        self.namespaces = log.namespaces

    def turn_to(self, log: Log) -> None:
        """Answer out of another log from now on."""
        self._log = log
        self._next = 0

    def check_end(self) -> None:
        """Raise LogMismatch where answers are left that nobody has asked for."""
        left = len(self._log.steps) - self._next
        if left:
            raise LogMismatch(f"{self._log.name}: of {len(self._log.steps)} answers, {left} are superfluous")

    def run(self, case: Any, *, guarded: bool = False) -> Any:
        """See `Executing`."""
        return self._trace("guarded" if guarded else "run", case)[0]

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        """See `Executing`."""
        for case in cases:
            yield self._trace("company", case)

    def run_apart(self, case: Any) -> Any:
        """See `Executing`."""
        return self._trace("apart", case)[0]

    def run_fresh(self, case: Any) -> Any:
        """See `Executing`."""
        return self._trace("fresh", case)[0]

    def ahead(self, case: Any) -> None:
        """See `Executing`: nothing takes time here."""

    def forget_ahead(self) -> None:
        """See `Executing`."""

    def learn(self, kind: type[Any]) -> Any:
        """See `Executing`."""
        return self._value("learn", b"", kind)

    def ask(self, request: bytes, kind: Any) -> Any:
        """See `Executing`."""
        return self._value("ask", request, kind)

    def now(self) -> float:
        """See `Executing`."""
        return float(self._value("now", b"", float))

    def bears_company(self, case: Any) -> bool:
        """See `Executing`."""
        return bears_company(self._codec, case)

    def load(self, spec: WorkerSpec) -> None:
        """There is no child that could be loaded."""

    def close(self) -> None:
        """There is nothing to end."""

    def _trace(self, way: Way, case: Any) -> tuple[Any, bool]:
        step, kept = self._answer(way, self._codec.request_of(case))
        answer = self._opened(kept)
        if isinstance(answer, Death):
            return answer, step.first
        try:
            if kept.kind == "short":
                answer = restored(answer, functools.partial(self._codec.foretold, case))
            return self._codec.trace_of(case, answer), step.first
        except NotForetold as error:
            raise LogMismatch(f"{self._at()} cannot be restored: {error}") from None
        except msgspec.DecodeError as error:
            raise LogMismatch(f"{self._at()} is no trace of its case: {error}") from None

    def _value(self, way: Way, request: bytes, kind: Any) -> Any:
        answer = self._opened(self._answer(way, request)[1])
        if isinstance(answer, Death):
            return answer
        try:
            return decoded(msgspec.msgpack.Decoder(kind), answer)
        except msgspec.DecodeError as error:
            raise LogMismatch(f"{self._at()} is not what was asked for: {error}") from None

    def _answer(self, way: Way, request: bytes) -> tuple[Step, Answer]:
        """The next step, and its answer. Raises LogMismatch where there is none for the request."""
        if self._next == len(self._log.steps):
            raise LogMismatch(
                f"{self._log.name}: the answers end after {self._next}, and more cases are drawn"
            )
        step = self._log.steps[self._next]
        self._next += 1
        if step.way != way or step.request != digest(way, request):
            raise LogMismatch(f"{self._at()} is that of another case than the one that is drawn")
        return step, self._log.answers[step.answer]

    def _opened(self, answer: Answer) -> bytes | Death:
        """What was answered.

        Raises:
            LogMismatch: it cannot be read.
            TargetLost: this was raised.
            RunnerFailure: likewise.
            Unusable: likewise.
        """
        if answer.kind in ("value", "short"):
            return answer.body
        try:
            if answer.kind == "death":
                return decoded(msgspec.msgpack.Decoder(Death), answer.body)
            text = answer.body.decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogMismatch(f"{self._at()} is none: {error}") from None
        raise _RAISED[answer.kind](text)

    def _at(self) -> str:
        return f"{self._log.name}: answer {self._next} of {len(self._log.steps)}"


_RAISED: dict[str, type[Exception]] = {"lost": TargetLost, "failure": RunnerFailure, "unusable": Unusable}

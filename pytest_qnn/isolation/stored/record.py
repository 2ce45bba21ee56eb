"""An executor whose answers are kept, and the logs of a run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import Death, TargetLost
from pytest_qnn.isolation.codec import Codec
from pytest_qnn.isolation.executor import Executing, Executor, MakeExecutor
from pytest_qnn.isolation.remote.connection import Connection
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.isolation.stored.foretold import shortened
from pytest_qnn.isolation.stored.log import Answer, Log, Step, Way, digest, packed
from pytest_qnn.isolation.worker import Unusable, WorkerSpec

T = TypeVar("T")

SUFFIX = ".xz"


class Recorder:
    """An executor that asks another one, and keeps each answer in a log.

    Args:
        inner: who is asked. Its cases run in children.
        codec: the kinds of case.
        log: where the first answers go.

    Attributes:
        log: where answers go; it may be replaced by another one at any time.

    """

    def __init__(self, inner: Executing, codec: Codec, log: Log) -> None:
        self._inner = inner
        self._codec = codec
        self._log = log
        self._places: dict[Answer, int] = {}
        self.isolated = inner.isolated

    def turn_to(self, log: Log) -> None:
        """Keep what follows in another log."""
        self._log = log
        self._places = {}

    def run(self, case: Any, *, guarded: bool = False) -> Any:
        """See `Executing`."""
        run = functools.partial(self._inner.run, case, guarded=guarded)
        return self._kept_case("guarded" if guarded else "run", case, run)

    def run_all(self, cases: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
        """See `Executing`."""
        answers = iter(self._inner.run_all(cases))
        for case in cases:
            request = self._codec.request_of(case)
            with self._keeping_what_is_raised("company", request):
                answer, first = next(answers)
            self._add("company", request, self._of_case(case, answer), first=first)
            yield answer, first

    def run_apart(self, case: Any) -> Any:
        """See `Executing`."""
        run = functools.partial(self._inner.run_apart, case)
        return self._kept_case("apart", case, run)

    def run_fresh(self, case: Any) -> Any:
        """See `Executing`."""
        run = functools.partial(self._inner.run_fresh, case)
        return self._kept_case("fresh", case, run)

    def ahead(self, case: Any) -> None:
        """See `Executing`."""
        self._inner.ahead(case)

    def forget_ahead(self) -> None:
        """See `Executing`."""
        self._inner.forget_ahead()

    def learn(self, kind: type[Any]) -> Any:
        """See `Executing`."""
        return self._kept("learn", b"", functools.partial(self._inner.learn, kind))

    def ask(self, request: bytes, kind: Any) -> Any:
        """See `Executing`."""
        return self._kept("ask", request, functools.partial(self._inner.ask, request, kind))

    def now(self) -> float:
        """See `Executing`."""
        return self._kept("now", b"", self._inner.now)

    def bears_company(self, case: Any) -> bool:
        """See `Executing`."""
        return self._inner.bears_company(case)

    def load(self, spec: WorkerSpec) -> None:
        """See `Executing`."""
        self._inner.load(spec)

    @property
    def elsewhere(self) -> Connection | None:
        """See `Executing`."""
        return self._inner.elsewhere

    @property
    def mode(self) -> str:
        """See `Executing`."""
        return self._inner.mode

    @property
    def namespaces(self) -> str:
        """See `Executing`."""
        return self._inner.namespaces

    @property
    def loss_is_told(self) -> bool:
        """See `Executing`."""
        return self._inner.loss_is_told

    @loss_is_told.setter
    def loss_is_told(self, told: bool) -> None:
        self._inner.loss_is_told = told

    def close(self) -> None:
        """See `Executing`."""
        self._inner.close()

    def _kept_case(self, way: Way, case: Any, run: Callable[[], Any]) -> Any:
        request = self._codec.request_of(case)
        with self._keeping_what_is_raised(way, request):
            answer = run()
        self._add(way, request, self._of_case(case, answer))
        return answer

    def _of_case(self, case: Any, value: Any) -> Answer:
        answer = _answer(value)
        if answer.kind == "death":
            return answer
        short = shortened(answer.body, functools.partial(self._codec.foretold, case))
        return answer if short is None else Answer("short", short)

    def _kept(self, way: Way, request: bytes, ask: Callable[[], T]) -> T:
        with self._keeping_what_is_raised(way, request):
            answer = ask()
        self._add(way, request, _answer(answer))
        return answer

    @contextlib.contextmanager
    def _keeping_what_is_raised(self, way: Way, request: bytes) -> Iterator[None]:
        try:
            yield
        except TargetLost as lost:
            self._add(way, request, Answer("lost", str(lost).encode()))
            raise
        except RunnerFailure as failure:
            self._add(way, request, Answer("failure", str(failure).encode()))
            raise
        except Unusable as unusable:
            self._add(way, request, Answer("unusable", str(unusable).encode()))
            raise

    def _add(self, way: Way, request: bytes, answer: Answer, *, first: bool = False) -> None:
        place = self._places.setdefault(answer, len(self._places))
        if place == len(self._log.answers):
            self._log.answers.append(answer)
        self._log.steps.append(Step(way, digest(way, request), place, first))


def _answer(value: Any) -> Answer:
    return Answer("death" if isinstance(value, Death) else "value", msgspec.msgpack.encode(value))


class Recordings:
    """The logs of a run: of each half one for the opening of its target, and one for each rule.

    Args:
        folder: where the files are written; made if it is not there.

    Attributes:
        unwritten: why a file could not be written, in a sentence for each. What was judged stands.

    Raises:
        OSError: the folder cannot be made.

    """

    def __init__(self, folder: Path) -> None:
        self.unwritten: list[str] = []
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._recorders: dict[Subject, Recorder] = {}
        self._openings: dict[Subject, Log] = {}
        """Of targets that are open, and of which no rule was judged yet."""
        self._judged = 0

    def maker(self, subject: Subject) -> MakeExecutor:
        """Makes the executor of a target of this half."""

        def make(spec: WorkerSpec, codec: Codec, mode: str, timeout: float, **more: Any) -> Recorder:
            opening = self._openings[subject] = Log(subject)
            self._recorders[subject] = Recorder(Executor(spec, codec, mode, timeout, **more), codec, opening)
            return self._recorders[subject]

        return make

    @contextlib.contextmanager
    def of_rule(self, subject: Subject, rule_id: str) -> Iterator[None]:
        """Keep what is asked in this context, for one rule, in a file of its own."""
        self.write_opening(subject)
        self._judged += 1
        log = Log(rule_id, self._judged)
        self._recorders[subject].turn_to(log)
        try:
            yield
        finally:
            self._write(log)

    def write_opening(self, subject: Subject) -> None:
        """Write what was asked until now, if that was not done before."""
        log = self._openings.pop(subject, None)
        if log is not None:
            log.mode, log.namespaces = self._recorders[subject].mode, self._recorders[subject].namespaces
            self._write(log)

    def _write(self, log: Log) -> None:
        path = self._folder / file_name(log)
        try:
            path.write_bytes(packed(log))
        except OSError as error:
            self.unwritten.append(f"{path} could not be written: {error.strerror or error}")
            with contextlib.suppress(OSError):  # half of it is no log
                path.unlink(missing_ok=True)


def file_name(log: Log) -> str:
    """Sorted by name, the logs of rules are in the order of the run: ``0017-REG-08.xz``, ``memory.xz``."""
    return f"{log.place:04}-{log.name}{SUFFIX}" if log.place else f"{log.name}{SUFFIX}"

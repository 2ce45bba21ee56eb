"""One mutant judged by rules, in a process of its own: what finds it first."""

from __future__ import annotations

import dataclasses
import math
import os
import resource
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from benchmarks.automatic.applying import lead_children, take_over
from benchmarks.automatic.coverage import Coverage, facts_of, limit_memory, nothing_to_judge, opened
from benchmarks.automatic.listing import Automatic, changed
from benchmarks.automatic.operators import keeps_cells
from benchmarks.timing import cpu_seconds
from pytest_qnn import effort
from pytest_qnn.core.engine import first_failure
from pytest_qnn.isolation.sandbox import RunnerFailure
from pytest_qnn.isolation.target import TargetUnusable
from pytest_qnn.rules import catalogue

VIOLATION: Final = "violation"
CRASH: Final = "crash"
HANG: Final = "hang"
INCONCLUSIVE: Final = "inconclusive"
"""A rule that judges the unchanged target has nothing to judge, which is red in a run."""
UNUSABLE: Final = "unusable"
INTERNAL: Final = "internal error"
FAILED: Final = "not judged"
"""The process of this tool failed: a defect of it."""
NOT_EXECUTED: Final = "not executed"
"""Its statement, by no rule, in any of the places."""
SURVIVED: Final = "survived"
UNFINISHED: Final = "unfinished"
"""No rule found it until its time was over; others are left to be asked."""
KILLED: Final = frozenset({VIOLATION, INCONCLUSIVE, CRASH, HANG, UNUSABLE})
_WALL = 10
"""Busy processors may give a process a hundredth of one: of wall time there is more than of CPU time."""
_FAILED = 113
"""Exit status of a process that failed."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a mutant in one profile. A line of the file of results."""

    id: str
    profile: str
    end: str
    """`VIOLATION` and its like."""
    rule: str = ""
    """That found it, or that was asked when the process ended."""
    examples: int = 0
    """Cases of that rule up to the violation."""
    seen: str = ""
    asked: int = 0
    """Rules."""
    internal: int = 0
    """Rules in which the suite itself failed; such a rule has found nothing."""
    seconds: float = 0.0
    """CPU time, children and earlier processes included."""
    place: str = "reference"
    """The conforming target that has the change."""
    passed: tuple[str, ...] = ()
    """Of an unfinished one: the rules that found nothing. They are not asked again."""


class _Told(msgspec.Struct, frozen=True):
    """What the child writes: a rule is asked now; or the end."""

    rule: str
    outcome: Outcome | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A mutant to be judged."""

    mutant: Automatic
    profile: str
    rules: tuple[str, ...]
    """Those that may find it, in the order in which they are asked."""
    every: tuple[str, ...]
    """All of its half: they are asked after the others if the mutant shows other facts than the reference."""
    place: str
    """The conforming target that has the change."""
    facts: str
    """What is learned of that target without the change."""
    idle: frozenset[str] = frozenset()
    """Rules that have nothing to judge there."""
    seconds: float = math.inf
    """CPU time, after which no further rule is asked."""
    before: Outcome | None = None
    """What an unfinished search found, which goes on."""

    def outcome(self, end: str, **fields: Any) -> Outcome:
        """An outcome of this task."""
        return Outcome(self.mutant.id, self.profile, end, place=self.place, **fields)


def in_order(
    rules: Sequence[str], hits: Counter[tuple[str, str]], mutant: Automatic, coverage: Coverage
) -> list[str]:
    """Rules that found mutants of the same function first, then those of the same file, then cheap ones."""

    def late(rule: str) -> tuple[float, ...]:
        seconds = coverage.seconds[rule]
        return (-hits[mutant.function, rule], seconds > 1, -hits[mutant.file, rule], seconds)

    return sorted(rules, key=late)


def judged(
    tasks: Iterable[Callable[[], Task]], jobs: int, seed: int, patience: float
) -> Iterator[tuple[Task, Outcome]]:
    """Judge mutants, several at a time; each is asked for when its process starts.

    Args:
        tasks: functions, so that the order of rules goes by what was found until then.
        jobs: processes.
        seed: of every search.
        patience: seconds of CPU time that one process may take for one rule, after which the mutant hangs;
            and `_WALL` times as many seconds of wall time, for one that waits.
    """
    left = iter(tasks)
    running: list[_Running] = []
    try:
        while True:
            while len(running) < jobs and (task := next(left, None)) is not None:
                running.append(_Running(task(), seed, patience))
            if not running:
                return
            select.select([each.fd for each in running], [], [], 1.0)
            for each in [each for each in running if each.is_over()]:
                running.remove(each)
                yield each.task, each.outcome()
    finally:
        for each in running:
            each.kill()
            each.outcome()


class _Running:
    """A process that judges one mutant."""

    def __init__(self, task: Task, seed: int, patience: float) -> None:
        self.task = task
        self._patience = patience
        self._folder = tempfile.mkdtemp(prefix="automatic-")
        self._text = b""
        self._asked = ""
        self._outcome: Outcome | None = None
        self._hung = False
        self._heard = time.monotonic()
        self.fd, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _in_child(task, seed, writing, Path(self._folder), patience)
        os.close(writing)

    def is_over(self) -> bool:
        """Read what there is; whether the process has nothing more to tell. One that hangs is killed."""
        if select.select([self.fd], [], [], 0)[0]:
            read = os.read(self.fd, 1 << 16)
            if not read:
                return True
            self._take(read)
        elif time.monotonic() - self._heard > _WALL * self._patience:
            self._hung = True
            self.kill()
            return True
        return self._outcome is not None

    def _take(self, read: bytes) -> None:
        self._heard = time.monotonic()
        *lines, self._text = (self._text + read).split(b"\n")
        for line in lines:
            told = msgspec.json.decode(line, type=_Told)
            self._asked, self._outcome = told.rule, told.outcome

    def kill(self) -> None:
        """End the process; those that it started end with it."""
        os.kill(self.pid, signal.SIGKILL)

    def outcome(self) -> Outcome:
        """Wait for the process, and say what became of the mutant."""
        _, status, used = os.wait4(self.pid, 0)
        os.close(self.fd)
        shutil.rmtree(self._folder, ignore_errors=True)
        seconds = used.ru_utime + used.ru_stime + (self.task.before.seconds if self.task.before else 0)
        if self._outcome is not None:
            return msgspec.structs.replace(self._outcome, seconds=seconds)
        failed = os.WIFEXITED(status) and os.WEXITSTATUS(status) == _FAILED
        hung = self._hung or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
        end = HANG if hung else FAILED if failed else CRASH
        seen = "" if hung else f"wait status {status}"
        return self.task.outcome(end, rule=self._asked, seen=seen, seconds=seconds)


def _in_child(task: Task, seed: int, writing: int, folder: Path, patience: float) -> NoReturn:
    """All that the process does."""
    code = _FAILED

    def begin(rule: str) -> None:
        _limit_time(patience)
        _tell(writing, _Told(rule))

    try:
        _alone(folder)
        outcome = _found(task, seed, folder, begin)
        _tell(writing, _Told("", outcome))
        code = 0
    except BaseException:
        (folder.parent / f"automatic-{task.mutant.id}.txt").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _alone(folder: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    silent = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(silent, fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory()
    (folder / "files").mkdir()
    tempfile.tempdir = str(folder / "files")
    os.environ["TMPDIR"] = tempfile.tempdir


def _limit_time(seconds: float) -> None:
    """Have the kernel end this process, and each that it starts, after so much more CPU time."""
    soft = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _tell(writing: int, told: _Told) -> None:
    os.write(writing, msgspec.json.encode(told) + b"\n")


def _found(task: Task, seed: int, folder: Path, begin: Callable[[str], None]) -> Outcome:
    mutant, profile = task.mutant, effort.profile(task.profile)
    tree, function, change = changed(mutant)
    keeps_cells(function)
    change.apply()
    take_over(mutant.file, tree)
    lead_children({mutant.file: tree}, folder / "package")
    begin("")
    before = task.before or task.outcome(UNFINISHED)
    asked, internal, passed = before.asked, before.internal, [*before.passed]
    try:
        target = opened(mutant.subject, task.place)
    except (TargetUnusable, RunnerFailure) as error:
        return task.outcome(UNUSABLE, seen=_short(str(error)))
    except Exception as error:
        return task.outcome(INTERNAL, seen=_short(repr(error)), internal=1)
    same = facts_of(target) == task.facts
    rules = task.rules if same else dict.fromkeys((*task.rules, *task.every))
    began = cpu_seconds()
    for rule_id in [rule_id for rule_id in rules if rule_id not in before.passed]:
        if cpu_seconds() - began > task.seconds:
            return task.outcome(UNFINISHED, asked=asked, internal=internal, passed=tuple(passed))
        begin(rule_id)
        asked += 1
        passed.append(rule_id)
        try:
            failure = first_failure(catalogue()[rule_id], target, profile, seed)
        except Exception:  # InternalError, or in a strategy: the suite fails, and a run of it would say so.
            internal += 1
            continue
        if failure is not None:
            seen = _short(f"{failure.violation.expected} / {failure.violation.seen}")
            found = {"rule": rule_id, "examples": failure.examples, "seen": seen}
            return task.outcome(VIOLATION, asked=asked, internal=internal, **found)
        nothing = "" if rule_id in task.idle else nothing_to_judge(rule_id, target)
        if nothing:
            found = {"rule": rule_id, "seen": _short(nothing)}
            return task.outcome(INCONCLUSIVE, asked=asked, internal=internal, **found)
    return task.outcome(INTERNAL if internal else SURVIVED, asked=asked, internal=internal)


def _short(text: str) -> str:
    return " ".join(text.split())[:160]

"""A finding on a QNN backend as one C file, which shows it without the suite: plain C, the public ABI.

The case is carried out on the suite's own reference, and each call of the interface is written down as it
comes: so the file has the calls with their arguments as any client makes them. Where the finding's run is
another than that one, at the step that the finding names, the program looks: it ends with 1 where all of that
is as it was found, and with 0 where something is not. The target is not called.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pytest_qnn.qnn.cases.case import AnyStep, Execute, MemoryCase
from pytest_qnn.qnn.reference.personalities import DEFAULT, PERSONALITIES, Personality
from pytest_qnn.qnn.reproduce import conditions, declarations
from pytest_qnn.qnn.reproduce.observed import observations
from pytest_qnn.qnn.reproduce.recorder import (
    ASYNCHRONOUS,
    FRAME,
    LISTS,
    PIECES,
    REFUSALS,
    SYSTEM,
    THREADS,
    TOUCHED,
    Recorder,
)
from pytest_qnn.qnn.reproduce.recording import answers, recorded
from pytest_qnn.qnn.reproduce.text import NothingSeen, NotWritten, comment, literal
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen

__all__ = ["Finding", "NotWritten", "NothingSeen", "program"]

NAME: Final = "reproduce.c"
_SECONDS: Final = 30
"""After which a program without an answer is ended; a case that hangs has less."""
_HANG_SECONDS: Final = 10
_CHOICE_SECONDS: Final = 2.0
"""Of processor time, after which no further reference is compared with."""
_HEADERS = (
    *("dirent.h", "dlfcn.h", "fcntl.h", "inttypes.h", "malloc.h", "pthread.h", "signal.h", "stdint.h"),
    *("stdio.h", "stdlib.h"),
    *("string.h", "sys/mman.h", "sys/resource.h", "sys/socket.h", "sys/stat.h", "sys/wait.h", "time.h"),
    "unistd.h",
)


_RUNS: Final = 20
"""Of a program whose calls race with the target's work, until what was found is seen."""
_CANNOT: Final = 1000
"""More than any case has steps."""


class Finding(NamedTuple):
    """What is said of the finding."""

    rule: str
    sentence: str
    source: str
    target: str
    expected: str
    seen: str
    where: str


class _Death(NamedTuple):
    """How the process died, as numbers; 0: not so."""

    signal: int = 0
    status: int = 0
    hang: int = 0
    step: int = -2


def program(given: MemoryCase, found: MemoryTrace, finding: Finding) -> str:
    """The C file.

    Args:
        given: the case.
        found: what the target did in it.
        finding: what is said of that.

    Raises:
        NothingSeen: there is nothing to show in this run of the target.
        NotWritten: no program can show it.
    """
    if found.death is not None:
        return _of_death(given, found, finding, _death(given, found))
    run = _nearest(given, found, finding.where)
    in_thread = conditions.of_thread(given, finding.seen, finding.where)
    if in_thread is not None:
        run = run._replace(differences=[in_thread])
    left = conditions.of_control_words(found, finding.seen)
    if left is not None:
        run = run._replace(differences=[left])
    recorder, slots = _written(given, found, run, finding)
    return _text(given, recorder, finding, slots, _Death())


class _Run(NamedTuple):
    """A run of a conforming reference, which the finding's is compared with."""

    personality: Personality
    recorder: Recorder
    trace: MemoryTrace
    differences: list[conditions.Difference]
    declared: dict[int, int]
    """Property keys that the target answers otherwise than the plain reference, with its answers."""
    others: int
    """Keys that this reference answers otherwise than the target."""


def _nearest(given: MemoryCase, found: MemoryTrace, where: str) -> _Run:
    """The run of the reference that differs least from the finding's, of all personalities if need be.

    What documents leave open is then no difference.
    """
    told = found.facts.capabilities if found.facts is not None and conditions.is_steady(given, found) else {}
    plain = answers(told)
    declared = {key: code for key, code in told.items() if plain[key] != code}
    missing = conditions.missing(found.facts.null_functions if found.facts is not None else ())
    ends = time.process_time() + _CHOICE_SECONDS
    best, best_place = None, (True, 0, 0, 0)
    for personality, others in _by_declaration(told):
        recorder = Recorder()
        try:
            trace = recorded(given, recorder, personality=personality)
        except NotWritten:
            if best is None:
                raise  # it is not the personality's
            continue
        differing = conditions.differences(given.steps, found, trace) or missing
        lacks = conditions.lacks_named_step(found, trace, where)
        place = (lacks, others, conditions.left_out(found, trace), len(differing))
        if best is None or place < best_place:
            best, best_place = _Run(personality, recorder, trace, differing, declared, others), place
        # Among those that declare the same, the nearest: what it does too is no fault. None is nearer than
        # one that differs in the finding alone.
        passed = best_place[:2] == (False, 0) and (others or sum(best_place[2:]) <= 1)
        if passed or time.process_time() > ends:
            break
    assert best is not None
    return best


def _by_declaration(told: Mapping[int, int]) -> list[tuple[Personality, int]]:
    """All personalities, those first that answer keys as the target does; with how many they do not."""
    found = []
    for personality in PERSONALITIES.values():
        said = answers(told, personality)
        found.append((personality, sum(code != told[key] for key, code in said.items())))
    return sorted(found, key=lambda each: each[1])


def _of_death(given: MemoryCase, found: MemoryTrace, finding: Finding, death: _Death) -> str:
    """The calls up to the death are those of a reference that declares what the target declares."""
    told = found.facts.capabilities if found.facts is not None else {}
    best: tuple[int, Recorder] | None = None
    for personality, others in _by_declaration(told):
        recorder = Recorder()
        trace = recorded(given, recorder, personality=personality)
        missing = sum(bool(seen.skipped) for seen in trace.steps[: death.step + 1])
        if death.step < len(trace.steps) and trace.steps[death.step].skipped:
            missing += _CANNOT
        if best is None or missing < best[0]:
            best = missing, recorder
        if not missing or others:
            break
    assert best is not None
    if best[0] >= _CANNOT:
        raise NotWritten("a conforming library does not let the case come so far")
    for index, body in enumerate(best[1].bodies):
        body[:] = [*_in_block(body), *best[1].lists.ending(index, looked=False)]
    return _text(given, best[1], finding, 0, death)


def _written(given: MemoryCase, found: MemoryTrace, run: _Run, finding: Finding) -> tuple[Recorder, int]:
    """The calls again, with statements that look at what is wanted; and how many those are."""
    # Another conforming library that declares the same, and does the same, has nothing to show.
    declared = bool(run.declared) and bool(run.differences or run.others)
    wanted = conditions.chosen(given, found, run.differences, finding.where, declared=declared)
    behind: dict[int, list[str]] = {}
    facts: list[conditions.Difference] = []
    slots = len(run.declared)
    for each in wanted:
        if each.where.label.startswith(conditions.CONTROL):
            changed_by = conditions.call_that_left(each.where, run.recorder.calls)
            behind.setdefault(changed_by, []).append(conditions.of_control(slots, each))
            slots += 1
            continue
        if not each.where.label.startswith(("call:", "session:")):
            facts.append(each)
            continue
        number = conditions.call_of(each.where, run.recorder.calls, given.steps, run.trace)
        if number is not None and isinstance(each.found, int):
            name = run.recorder.calls[number].name
            behind.setdefault(number, []).append(conditions.of_code(slots, name, each.found))
            slots += 1
        else:
            facts.append(each)
    if slots == len(run.declared) and not facts:
        raise NotWritten("no call of the case has given what was seen")
    labels = frozenset(each.where for each in facts)
    recorder = Recorder(behind, _failed(given, run), labels, conditions.deciding(given, found, finding.where))
    if not run.declared and run.personality is not DEFAULT:
        _demand_otherwise(given, wanted)
    count = _looked(given, recorder, run, facts, slots, found)
    if count == len(run.declared):
        shown = ", ".join(sorted({each.where.label.partition(":")[0] for each in wanted}))
        raise NotWritten(f"it shows in what no program outside can look at: {shown}")
    recorder.asks = [conditions.of_answer(slot, *each) for slot, each in enumerate(run.declared.items())]
    # As the case's client: large blocks are mapped on their own, also where others were freed before.
    recorder.asks += ["mallopt(M_MMAP_THRESHOLD, 128 * 1024);"] if recorder.touched.any else []
    recorder.used |= {"propertyHasCapability"} if run.declared else set()
    return recorder, count


def _demand_otherwise(given: MemoryCase, wanted: list[conditions.Difference]) -> None:
    """The plain reference must not show all of it: it conforms.

    Raises:
        NothingSeen: it does.
    """
    plain = observations(given.steps, recorded(given, Recorder()))
    if all(plain.get(each.where) == each.found for each in wanted):
        raise NothingSeen("a run on the plain reference gives the same codes, contents and counts of memory")


def _looked(
    given: MemoryCase,
    recorder: Recorder,
    run: _Run,
    facts: list[conditions.Difference],
    slots: int,
    found: MemoryTrace,
) -> int:
    """Record once more, with looks behind the steps; the number of all looks."""
    count = slots
    ends: dict[int, list[str]] = {}
    done: list[StepSeen] = []
    at_last = len(given.steps) - 1

    def look(index: int, seen: StepSeen) -> None:
        nonlocal count
        done.append(seen)
        if index == at_last:
            recorder.touched.compare(given.steps, MemoryTrace(steps=tuple(done)))
        for each in facts:
            # An execute is compared with others, the last of which may be at the end.
            place = at_last if each.where.label.startswith("copies:") else each.where.step
            statement = conditions.of_fact(count, each, recorder.facts) if place == index else None
            if statement is not None:
                ends.setdefault(index, []).append(statement)
                count += 1

    recorded(given, recorder, look, run.personality)
    for index, body in enumerate(recorder.bodies):
        closing = index == len(given.steps)
        skipped = not closing and index < len(found.steps) and bool(found.steps[index].skipped)
        head = ["if (failed) return;"] if (skipped or closing) and recorder.may_fail else []
        # What a thread was told to give up leaves things alive.
        last = ["if (failure_count) finish();"] if recorder.threads.of(index) and index in ends else []
        last += recorder.lists.ending(index, looked=index in ends)
        body[:] = [*head, *_in_block(body), *ends.get(index, ()), *last]
    return count


def _in_block(body: list[str]) -> list[str]:
    """Statements that a ``break`` leaves."""
    return ["do {", *(f"  {line}" for line in body), "} while (0);"]


def _failed(given: MemoryCase, run: _Run) -> frozenset[int]:
    """Numbers of the calls that failed, and not on the reference."""
    numbers = (
        conditions.call_of(each.where, run.recorder.calls, given.steps, run.trace)
        for each in run.differences
        if each.where.label.startswith(("call:", "session:")) and each.found and each.conforming == 0
    )
    return frozenset(number for number in numbers if number is not None)


def _death(given: MemoryCase, found: MemoryTrace) -> _Death:
    death = found.death
    assert death is not None
    step = len(given.steps) if death.late else death.step
    if death.kind == "hang":
        return _Death(hang=1, step=step)
    if death.kind == "signal":
        name = re.search(r"SIG[A-Z0-9]+", death.detail)
        number = getattr(signal, name[0], None) if name else None
        if number is not None:
            return _Death(signal=int(number), step=step)
    if death.kind == "exit":
        status = re.search(r"exit status (\d+)", death.detail)
        if status is not None and int(status[1]):
            return _Death(status=int(status[1]), step=step)
    raise NotWritten(f"the process ended in a way that is not written: {death.detail}")


def _text(given: MemoryCase, recorder: Recorder, finding: Finding, slots: int, death: _Death) -> str:
    used = sorted(recorder.used)
    done: dict[str, str] = {}
    table = declarations.table(used, done)
    declarations.declared(declarations.BEHIND_POINTERS, done)
    if "contextCreateFromBinaryWithCallback" in used:
        declarations.declared(declarations.PIECES, done)
    if recorder.inspects:
        table += "\n" + declarations.system_table(done)
    parts = [
        _head(finding, recorder),
        "#define _GNU_SOURCE",
        *(f"#include <{each}>" for each in _HEADERS),
        "",
        "/* The part of QNN's interface, API 2.32, that is used; other entries are plain pointers. */",
        *done.values(),
        table,
        "",
        f"#define EXPECTED {literal(_plain(finding.expected))}",
        f"#define SEEN {literal(_plain(finding.seen))}",
        f"#define SLOTS {slots}",
        f"#define SECONDS {_HANG_SECONDS if death.hang else _SECONDS}",
        f"#define FOUND_SIGNAL {death.signal}",
        f"#define FOUND_EXIT {death.status}",
        f"#define FOUND_HANG {death.hang}",
        f"#define FOUND_STEP {death.step}",
        f"#define NEEDS_RPCMEM {int(recorder.uses_rpcmem)}",
        f"#define PROCESSES {len(recorder.processes.starts) + 1}",
        f"#define RUNS {_RUNS if any(map(_is_a_race, given.steps)) else 1}",
        "",
        FRAME.replace("/* OPTIONAL */\n", _optional(recorder)),
    ]
    return _with_steps("\n".join(parts), given, recorder)


def _is_a_race(step: AnyStep) -> bool:
    """What is seen of the step depends on how far the target has come when the next call is made."""
    return isinstance(step, Execute) and step.freed


def _optional(recorder: Recorder) -> str:
    """What only some programs need."""
    parts = [ASYNCHRONOUS] if "graphExecuteAsync" in recorder.used else []
    parts += [PIECES] if "contextCreateFromBinaryWithCallback" in recorder.used else []
    parts += [THREADS] if recorder.threads.any() else []
    parts += [SYSTEM] if recorder.inspects else []
    parts += [f"#define ENTRIES {recorder.lists.entries}\n{LISTS}"] if recorder.lists.entries else []
    parts += [TOUCHED] if recorder.touched.any else []
    parts += [REFUSALS] if recorder.refusals.any else []
    return "\n".join(parts)


def _with_steps(text: str, given: MemoryCase, recorder: Recorder) -> str:
    before, main = text.split("/* 1: what was found is there", 1)
    steps = []
    for index, body in enumerate(recorder.bodies):
        name = type(given.steps[index]).__name__ if index < len(given.steps) else "the end"
        lines = "\n".join(f"  {line}" for line in body)
        threads = "".join(f"{line}\n" for line in recorder.threads.text(index))
        steps.append(
            f"/* {name} */\n{threads}"
            f"static void step_{index}(void) {{\n  shared->step = {index};\n{lines}\n}}\n"
        )
    calls = "\n".join(_steps_called(recorder))
    last = "if (process + 1 == PROCESSES) " if recorder.processes.starts else ""
    ended = f"  shared->done = 1;\n  {last}exit(0); /* in good order, with what is live */\n"
    ends = ended if given.ends else ""
    asks = "".join(f"  {each}\n" for each in recorder.asks)
    made = f"static void make_calls(void) {{\n{asks}{calls}\n{ends}}}\n"
    variables = "\n".join(recorder.globals)
    return f"{before}\n{variables}\n\n{chr(10).join(steps)}\n{made}\n/* 1: what was found is there{main}"


def _steps_called(recorder: Recorder) -> Iterator[str]:
    """The steps of each process; one that begins a process is carried out as the one before ends, too."""
    starts = recorder.processes.starts
    for index in range(len(recorder.bodies)):
        before = sum(start < index for start in starts)
        own = f"process == {before} || process == {before + 1}" if index in starts else f"process == {before}"
        yield f"  if ({own}) step_{index}();" if starts else f"  step_{index}();"


def _plain(text: str) -> bytes:
    # A terminal is to show it: no control characters, which the target may have said.
    return "".join(sign if sign.isascii() and sign.isprintable() else " " for sign in text).encode()


def _head(finding: Finding, recorder: Recorder) -> str:
    memory = " LIBCDSPRPC.so" if recorder.uses_rpcmem else ""
    threads = " -lpthread" if recorder.threads.any() else ""
    lines = [
        f"// gcc -Wall -Wextra -o reproduce reproduce.c -ldl{threads}",
        f"// ./reproduce BACKEND.so{memory}",
        "//",
        "// Ends with 1 where what was found is seen again, 0 where it is not, 2 where it cannot tell.",
        f"// {comment(finding.rule)}: {comment(finding.sentence)}",
        f"// source:   {comment(finding.source)}",
        f"// found on: {comment(finding.target)}",
        f"// expected: {comment(finding.expected)}",
        f"// seen:     {comment(finding.seen)}",
        f"// where:    {comment(finding.where)}",
    ]
    return "\n".join(lines)

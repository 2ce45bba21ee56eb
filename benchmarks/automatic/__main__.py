"""``python -m benchmarks.automatic``: judge automatic mutants, and print the totals."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.automatic import applying, coverage, results
from benchmarks.automatic.coverage import PLACES, Coverage
from benchmarks.automatic.judging import (
    KILLED,
    NOT_EXECUTED,
    UNFINISHED,
    Outcome,
    Task,
    in_order,
    judged,
)
from benchmarks.automatic.listing import HOMES, Automatic, listed, sample
from pytest_qnn.tflite.runtime.runtime import load_runtime

SEED = 1
PROFILES = ("default", "thorough")


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge what the file of results does not have yet, and print the totals."""
    options = _parser().parse_args(arguments)
    every = listed(options.subject)
    mutants = sample(every, options.sample, options.sample_seed, options.slice)
    if options.only:
        mutants = [mutant for mutant in every if mutant.id in options.only]
    if not options.totals:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        covered = {
            subject: _covered(subject, options.results.parent, options.places)
            for subject in _subjects(mutants)
        }
        applying.import_all()
        # The suite asks a runtime with a reference delegate, once in each process: not with a changed one.
        if not load_runtime("tflite_runtime").observed:
            raise SystemExit("the runtime cannot be observed")
        for profile in PROFILES if not options.profile else (options.profile,):
            _judge(options, mutants, profile, covered)
    sys.stdout.write(results.totals(mutants, results.read(options.results), results.judgements()))


def _subjects(mutants: Sequence[Automatic]) -> list[str]:
    return sorted({mutant.subject for mutant in mutants})


def _covered(subject: str, folder: Path, count: int) -> list[Coverage]:
    return [coverage.measured(subject, place, folder, SEED) for place in PLACES[subject][:count]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.automatic", description=__doc__)
    add = parser.add_argument
    add("results", type=Path, help="a file of JSON lines, which is gone on with; coverage is kept beside it")
    add("--subject", choices=sorted(HOMES), default="", help="one half")
    add(
        "--sample",
        type=int,
        default=1000,
        metavar="N",
        help="mutants, before they are parted; 0: all; default: 1000",
    )
    add("--sample-seed", type=int, default=1, metavar="N", help="another one gives another sample")
    add("--slice", default="0/1", metavar="K/N", help="one of N parts of the sample")
    add("--only", action="append", default=[], metavar="ID", help="instead of a sample; repeatable")
    add(
        "--profile",
        choices=PROFILES,
        default="",
        help="default: first default, then thorough for what survived",
    )
    add("--places", type=int, default=9, metavar="N", help="so many of the first places only; default: all")
    add("--jobs", type=int, default=1, metavar="N", help="processes; default: 1")
    add("--minutes", type=float, metavar="M", help="of CPU time, after which nothing new is begun")
    add(
        "--patience",
        type=float,
        default=120.0,
        metavar="S",
        help="seconds of CPU time that one rule may take in one process; ten times that in thorough",
    )
    add(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="S",
        help="of CPU time for each mutant, after which it is unfinished; with more it is gone on with",
    )
    add(
        "--hints",
        type=Path,
        help="results of other code: what found a mutant of a function is asked first",
    )
    add("--totals", action="store_true", help="judge nothing")
    return parser


def _judge(
    options: argparse.Namespace,
    mutants: Sequence[Automatic],
    profile: str,
    covered: Mapping[str, Sequence[Coverage]],
) -> None:
    seconds = 0.0
    outcomes = results.read(options.results)
    hits: Counter[tuple[str, str]] = Counter()
    by_id = {mutant.id: mutant for mutant in listed()}
    hints = results.read(options.hints) if options.hints else {}
    for outcome in (*hints.values(), *outcomes.values()):
        if outcome.id in by_id:
            _count(hits, by_id[outcome.id], outcome)
    left = [mutant for mutant in mutants if _wanted(mutant, profile, outcomes, options.seconds)]
    if profile == "thorough":
        # A survivor of many rules takes minutes: those of few rules first.
        left.sort(key=lambda mutant: outcomes[mutant.id, "default"].asked)

    def tasks() -> Iterator[Callable[[], Task]]:
        for mutant in left:
            if options.minutes is not None and seconds > 60 * options.minutes:
                return
            place = _place(mutant, covered[mutant.subject])
            if place is None or not (profile == "thorough" or place.of_statement(mutant)):
                results.append(options.results, Outcome(mutant.id, profile, NOT_EXECUTED, place=""))
            else:
                task = functools.partial(_task, mutant, profile, place, hits)
                yield functools.partial(_limited, task, options.seconds, outcomes.get((mutant.id, profile)))

    patience = options.patience * (10 if profile == "thorough" else 1)
    for task, outcome in judged(tasks(), options.jobs, SEED, patience):
        results.append(options.results, outcome)
        _count(hits, task.mutant, outcome)
        seconds += outcome.seconds
        sys.stderr.write(
            f"{outcome.id} {profile} on {outcome.place}: {outcome.end} {outcome.rule} "
            f"({outcome.asked} rules, {outcome.seconds:.1f} s) {task.mutant.file} {task.mutant.line}\n"
        )


def _place(mutant: Automatic, covered: Sequence[Coverage]) -> Coverage | None:
    """The first place in which a rule executes the changed statement, else one that executes the function."""
    places = [each for each in covered if each.of_statement(mutant)]
    places += [each for each in covered if each.of_function(mutant)]
    return places[0] if places else None


def _wanted(
    mutant: Automatic, profile: str, outcomes: Mapping[tuple[str, str], Outcome], seconds: float
) -> bool:
    outcome = outcomes.get((mutant.id, profile))
    judgement = results.judgements().get(mutant.id)
    equivalent = judgement is not None and judgement.kind == results.EQUIVALENT
    if outcome is not None:
        return outcome.end == UNFINISHED and outcome.seconds < seconds and not equivalent
    earlier = outcomes.get((mutant.id, "default"))
    return profile == "default" or (
        earlier is not None and earlier.end not in (*KILLED, NOT_EXECUTED, UNFINISHED) and not equivalent
    )


def _task(mutant: Automatic, profile: str, covered: Coverage, hits: Counter[tuple[str, str]]) -> Task:
    rules = covered.of_statement(mutant) if profile == "default" else covered.of_function(mutant)
    ordered = in_order(rules, hits, mutant, covered)
    every = in_order(list(covered.seconds), hits, mutant, covered)
    idle = frozenset(covered.idle)
    return Task(mutant, profile, tuple(ordered), tuple(every), covered.place, covered.facts, idle)


def _limited(task: Callable[[], Task], seconds: float, before: Outcome | None) -> Task:
    """With what is left of its time, if there was an unfinished search before."""
    left = seconds - (before.seconds if before is not None else 0)
    return dataclasses.replace(task(), seconds=left, before=before)


def _count(hits: Counter[tuple[str, str]], mutant: Automatic, outcome: Outcome) -> None:
    if outcome.end in KILLED and outcome.rule:
        hits[mutant.function, outcome.rule] += 1
        hits[mutant.file, outcome.rule] += 1


if __name__ == "__main__":
    # Ended as by Ctrl-C: its processes and their folders go too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    main()

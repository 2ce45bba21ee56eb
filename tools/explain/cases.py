"""Make the smallest violation of each rule: ``python -m tools.explain.cases``.

Each rule is judged on mutants that it must find, with a fixed seed and with all that is made smaller. Of the
violations that are found, the smallest in which the reference obeys the rule is kept, as a line of
``pytest_qnn/report/explain/cases/HALF.jsonl``. Rules that have a line already are left alone; ``--only``
makes those of the rules that it names again.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import msgspec

from pytest_qnn import case_file, effort
from pytest_qnn.core import engine
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Target
from pytest_qnn.core.verdict import Examined, Unsupported, Verdict, Violation
from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.qnn.reference.personalities import PERSONALITIES
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.report.explain import stored
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.reference import personalities as variants
from pytest_qnn.tflite.target import open_delegate_target

SEED = 1
MOST_MUTANTS = 3
"""Mutants of one rule that are tried."""
REPEATS = 3
"""Further times that a case must break its rule."""
SMALL = 320
"""Characters of a case after which no smaller one is looked for."""
_RACES = ("THR-", "QTHR-")
"""Areas in which what a case shows depends on how threads take turns."""
_TURNS = 20
"""Times that such a case is tried, one of which must break its rule (tests/suite/explain/test_cases.py)."""
_TIMEOUT = 10.0
_LAST = ("oom-growth-keeps-half",)
"""Mutants that an example is made of where there is no other: the C program of such a finding shows nothing
(docs/measured/reproducers.md)."""


class Made(NamedTuple):
    """A violation, and how many characters its case has."""

    size: int
    example: stored.Example


class Reference(NamedTuple):
    """A conforming target: its specification, its options where it needs some, and itself, opened."""

    name: str
    options: Mapping[str, str]
    target: Target[Any, Any]


def references(mutant: Mutant, place: str) -> Iterator[Reference]:
    """Conforming targets, opened one after another: the one with the mutant's backend, then the plainest."""
    sandbox = "fork" if mutant.deadly else "auto"
    if mutant.subject == "memory":
        for name in ("reference", *(f"reference:{each}" for each in PERSONALITIES)):
            yield Reference(name, {}, open_memory_target(name, "emulated", sandbox, _TIMEOUT))
        return
    first = "qnn-reference" if any(rule.startswith("TFL-") for rule in mutant.kills) else "reference"
    variants_of = (f"reference:{each}" for each in variants.PERSONALITIES)
    under = getattr(mutant.made, "backend", "")
    specifications: list[tuple[str, dict[str, str]]] = (
        [("qnn-reference", {"backend": under})] if under else []
    )
    specifications += [(name, {}) for name in dict.fromkeys((first, "reference", *variants_of))]
    for name, options in specifications:
        yield Reference(name, options, open_delegate_target([(name, options)], place, sandbox, _TIMEOUT))


class Passing(NamedTuple):
    """A conforming target that a case does not accuse; ``unsupported``: since it has not what is judged."""

    name: str
    options: Mapping[str, str]
    unsupported: bool = False


def passing(rule: Rule[Any, Any, Any], mutant: Mutant, place: str, case: Any) -> Passing | None:
    """The first conforming target on which the rule examines something in the case and holds.

    What is left of a case that ends with its violation may have nothing more that the rule looks at: then it
    is the first on which nothing speaks against it; and where none has what the rule is about, the plain one.
    """
    idle: Passing | None = None
    lacks: Passing | None = None
    for name, options, target in references(mutant, place):
        with closing(target):
            found = engine.judge_case(rule, target, case)
        if isinstance(found, Examined) and found.count:
            return Passing(name, options)
        if isinstance(found, Examined):
            idle = idle or Passing(name, options)
        if isinstance(found, Unsupported):
            lacks = lacks or Passing(name, options, unsupported=True)
    return idle or lacks


def again(rule: Rule[Any, Any, Any], mutant: Mutant, place: str, file: case_file.AnyCaseFile) -> bool:
    """Whether the case breaks the rule on the mutant opened anew each time, alone in its process."""
    is_race = rule.id.startswith(_RACES)
    broken = (_breaks(rule, mutant, place, file) for _ in range(_TURNS if is_race else REPEATS))
    return any(broken) if is_race else all(broken)


def _breaks(rule: Rule[Any, Any, Any], mutant: Mutant, place: str, file: case_file.AnyCaseFile) -> bool:
    with closing(opened(mutant, place)) as target:
        found = engine.judge_case(rule, target, file.case)
    return isinstance(found, Violation) and found.outcome.value == file.verdict


def candidates(rule_id: str) -> list[Mutant]:
    """The mutants of a rule, those first that do not end their process and are found soonest."""
    pairs = effort.read()[rule_id].pairs if rule_id in effort.read() else {}
    own = [mutant for mutant in table().values() if rule_id in mutant.kills]

    def place(mutant: Mutant) -> tuple[bool, bool, int, str]:
        counts = pairs[mutant.name].counts if mutant.name in pairs else ()
        return mutant.name in _LAST, mutant.deadly, sum(count or 100 for count in counts[:5]), mutant.name

    return sorted(own, key=place)


def made(rule: Rule[Any, Any, Any], mutant: Mutant, profile: Profile) -> Made | None:
    """The smallest case in which the mutant breaks the rule and the reference does not; None: no case."""
    for place in PLACES[mutant.subject]:
        with closing(opened(mutant, place)) as target:
            judged = engine.judge_with_owners(rule, target, profile, SEED, catalogue().__getitem__)
            options = target.options
        verdict = judged.verdict
        if (
            verdict.finding is None
            or not verdict.finding.case
            or (verdict.flaky and not rule.id.startswith(_RACES))
            or not verdict.finding.expected
        ):
            continue
        file = _file(rule, mutant, verdict, options)
        if not again(rule, mutant, place, file):
            continue
        held = passing(rule, mutant, place, file.case)
        if held is not None:
            runtime = place if mutant.subject == "delegate" else ""
            example = stored.Example(
                rule.id, mutant.name, held.name, runtime, file, held.options, held.unsupported
            )
            return Made(len(verdict.finding.case), example)
    return None


def _file(
    rule: Rule[Any, Any, Any], mutant: Mutant, verdict: Verdict, options: Sequence[str]
) -> case_file.AnyCaseFile:
    finding = verdict.finding
    assert finding is not None
    kept = [option for option in options if not option.startswith(("--qnn-rpcmem=", "--tflite-runtime="))]
    common = {
        "schema": case_file.SCHEMA,
        "rule": rule.id,
        "verdict": verdict.outcome.value,
        "target": f"mutant:{mutant.name}",
        "options": tuple(kept),
        "seed": SEED,
        "expected": finding.expected,
        "seen": finding.seen,
        "where": finding.where,
    }
    return case_file.with_case(rule.subject, finding.case, common)


def smallest(rule: Rule[Any, Any, Any], profile: Profile, most: int) -> stored.Example | None:
    """The smallest violation of a rule over some of its mutants; None: none was found."""
    found: list[Made] = []
    for mutant in candidates(rule.id)[:most]:
        one = made(rule, mutant, profile)
        if one is not None:
            found.append(one)
            if one.size <= SMALL:
                break
    return min(found, key=lambda one: one.size).example if found else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing, or what is named; 1: of a rule nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tools.explain.cases", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="RULE", help="repeatable")
    parser.add_argument("--area", action="append", default=[], metavar="AREA", help="repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="AREA", help="repeatable")
    parser.add_argument("--seconds", type=float, default=20.0, help="of making one case smaller; default: 20")
    parser.add_argument("--mutants", type=int, default=MOST_MUTANTS, help=f"default: {MOST_MUTANTS}")
    options = parser.parse_args(arguments)
    known = stored.examples()
    profile = patient(options.seconds)
    missed = []
    for rule_id, rule in sorted(catalogue().items()):
        wanted = rule_id in options.only if options.only else rule_id not in known
        if not wanted or (options.area and rule.area not in options.area) or rule.area in options.without:
            continue
        begun = time.monotonic()
        example = smallest(rule, profile, options.mutants)
        took = f"{time.monotonic() - begun:.1f} s"
        if example is None:
            missed.append(rule_id)
            sys.stderr.write(f"{rule_id}: nothing ({took})\n")
            continue
        known[rule_id] = example
        stored.write(known)
        size = len(msgspec.json.encode(example.file.case))
        sys.stderr.write(f"{rule_id}: {example.mutant}, {size} characters, {example.passes_on} ({took})\n")
    return 1 if missed else 0


def patient(seconds: float) -> Profile:
    """The profile ``default`` with more time for making cases smaller."""
    return dataclasses.replace(effort.profile("default"), shrink_seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())

"""Forgeries of a certification's folder, each with all of its sums and its statement made right again."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pytest_qnn.isolation.stored.log import Log, packed, unpacked
from pytest_qnn.session.certification import bundle, statement

Rule = dict[str, Any]


class Bundles(NamedTuple):
    """Folders of two bundles with the same rules."""

    faulty: Path
    """Of a C library that dies in QnnGraph_finalize of graphs of two inputs."""
    conforming: Path


class Bundle:
    """A copy of a bundle that is about to be forged.

    Attributes:
        report: the report as JSON data.
        changes: what is changed of the statement after it was made again.
        restated: the statement is made again from the report and the answers.

    """

    def __init__(self, source: Path, folder: Path, chance: random.Random) -> None:
        shutil.copytree(source, folder)
        self.folder = folder
        self.chance = chance
        self.report: dict[str, Any] = json.loads((folder / bundle.REPORT).read_bytes())
        self.changes: dict[str, Any] = {}

    def rules(self, *verdicts: str) -> list[Rule]:
        """Rules that were judged, with one of these verdicts, or with any."""
        found = [rule for target in self.report["targets"] for rule in target["rules"]]
        return [rule for rule in found if rule["verdict"] and (not verdicts or rule["verdict"] in verdicts)]

    def rule(self, *verdicts: str) -> Rule:
        return self.chance.choice(self.rules(*verdicts))

    def target(self) -> dict[str, Any]:
        return self.chance.choice(self.report["targets"])

    def logs(self) -> list[Path]:
        """Of rules."""
        return sorted(path for path in (self.folder / bundle.ANSWERS).iterdir() if path.name[0].isdigit())

    def log(self, path: Path) -> Log:
        return unpacked(path.read_bytes())

    def log_of(self, rule_id: str) -> Path:
        return next(path for path in self.logs() if path.stem.partition("-")[2] == rule_id)

    def seal(self) -> None:
        """Write report and statement, and make every sum right."""
        encoded = (json.dumps(self.report, indent=1) + "\n").encode()
        (self.folder / bundle.REPORT).write_bytes(encoded)
        said = msgspec.json.decode(encoded, type=statement.ReportSaid)
        stated = msgspec.to_builtins(statement.state(said, self._answers())) | self.changes
        (self.folder / bundle.STATEMENT).write_text(json.dumps(stated, indent=1), encoding="utf-8")
        bundle.seal(self.folder)

    def _answers(self) -> int:
        return sum(_answers(self.folder, name) for name in bundle.logs(self.folder))


def _answers(folder: Path, name: str) -> int:
    try:
        return bundle.answers(bundle.log(folder, name))
    except bundle.BadBundle:
        return 0


Forgery = Callable[[Bundle, Bundle], None]
"""Changes the first; the second is of another library, with the same rules."""


def edited_verdict(forged: Bundle, _: Bundle) -> None:
    rule = forged.rule()
    others = [each for each in ("pass", "unsupported", "fail", "inconclusive") if each != rule["verdict"]]
    rule["verdict"] = forged.chance.choice(others)
    if rule["verdict"] in ("pass", "unsupported"):
        rule |= {"violation": None, "case": None, "reason": "", "flaky": ""}


def edited_numbers(forged: Bundle, _: Bundle) -> None:
    rule = forged.rule()
    rule[forged.chance.choice(("examples", "examined"))] += forged.chance.randint(1, 1000)


def edited_finding(forged: Bundle, _: Bundle) -> None:
    rule = forged.rule("fail", "crash", "hang")
    key = forged.chance.choice(("expected", "seen", "where"))
    rule["violation"][key] = f"as ever {forged.chance.random()}"


def removed_cases(forged: Bundle, _: Bundle) -> None:
    """In the middle, or one only; the report is as it was."""
    path = forged.chance.choice(forged.logs())
    log = forged.log(path)
    del log.steps[forged.chance.randrange(len(log.steps))]
    path.write_bytes(packed(log))


def swapped_cases(forged: Bundle, _: Bundle) -> None:
    path = forged.chance.choice([path for path in forged.logs() if _different(forged.log(path))])
    log = forged.log(path)
    one, other = forged.chance.choice(_different(log))
    log.steps[one], log.steps[other] = log.steps[other], log.steps[one]
    path.write_bytes(packed(log))


def _different(log: Log) -> list[tuple[int, int]]:
    numbers = range(len(log.steps))
    return [(i, j) for i in numbers for j in numbers if i < j and log.steps[i] != log.steps[j]]


def swapped_rules(forged: Bundle, _: Bundle) -> None:
    """The answers of one rule under the name of another."""
    one = forged.chance.choice(forged.logs())
    first = forged.log(one)
    other = forged.chance.choice([path for path in forged.logs() if forged.log(path).steps != first.steps])
    second = forged.log(other)
    first.steps, second.steps = second.steps, first.steps
    first.answers, second.answers = second.answers, first.answers
    one.write_bytes(packed(first))
    other.write_bytes(packed(second))


def of_another_library(forged: Bundle, other: Bundle) -> None:
    """The answers of a rule that fails here, from a library that keeps it; or what was learned of it."""
    failing = [rule["id"] for rule in forged.rules("fail", "crash")]
    name = forged.chance.choice([*failing, "memory"])
    if name == "memory":
        shutil.copy(other.folder / bundle.ANSWERS / "memory.xz", forged.folder / bundle.ANSWERS)
        return
    log = other.log(other.log_of(name))
    log.place = forged.log(forged.log_of(name)).place
    forged.log_of(name).write_bytes(packed(log))


def weakened_options(forged: Bundle, _: Bundle) -> None:
    """What was run is said to have been more: another profile, another seed, another precision."""
    kind = forged.chance.choice(("profile", "seed", "half", "options"))
    if kind == "profile":
        forged.report["profile"] = forged.chance.choice(("default", "thorough", "huge"))
    elif kind == "seed":
        forged.report["seed"] += forged.chance.randint(1, 1 << 20)
    elif kind == "half":
        gone = forged.report["targets"].pop(forged.chance.randrange(2))
        forged.report["halves"].remove(gone["subject"])
    else:
        target = forged.target()
        target["options"] = [f"{target['options'][0]}{forged.chance.randrange(9)}", *target["options"][1:]]


def truncated_file(forged: Bundle, _: Bundle) -> None:
    path = forged.chance.choice(sorted((forged.folder / bundle.ANSWERS).iterdir()))
    content = path.read_bytes()
    path.write_bytes(content[: forged.chance.randrange(len(content))])


def fewer_examples(forged: Bundle, _: Bundle) -> None:
    """The last cases are gone, and the report says that there were so many fewer."""
    passed = [rule for rule in forged.rules("pass") if rule["examples"] > 1]
    rule = forged.chance.choice(passed)
    path = forged.log_of(rule["id"])
    log = forged.log(path)
    gone = forged.chance.randint(1, min(rule["examples"], len(log.steps)) - 1)
    del log.steps[-gone:]
    rule["examples"] -= gone
    path.write_bytes(packed(log))


def edited_statement(forged: Bundle, _: Bundle) -> None:
    kind = forged.chance.choice(("failing", "answers", "verdicts", "provenance", "complete", "learned"))
    target = forged.target()
    if kind == "failing":
        forged.changes["failing"] = forged.chance.sample(["REG-01", "NUM-01", "EXE-01"], 2)
    elif kind == "answers":
        forged.changes["answers"] = forged.chance.randint(100_000, 1_000_000)
    elif kind == "verdicts":
        forged.changes["targets"] = [
            {"subject": each["subject"], "spec": each["spec"], "options": each["options"]}
            | {"provenance": each["provenance"], "verdicts": {"pass": forged.chance.randint(200, 400)}}
            for each in forged.report["targets"]
        ]
    elif kind == "provenance":
        known = [key for key in target["provenance"] if not key.startswith(("library", "delegate_"))]
        target["provenance"][forged.chance.choice(known)] += " (certified)"
    elif kind == "complete":
        forged.report["complete"] = not forged.report["complete"]
    else:
        learned = [key for key in ("claims", "capabilities", "choices", "partitioning") if target.get(key)]
        del target[forged.chance.choice(learned)]


def invented_rule(forged: Bundle, _: Bundle) -> None:
    """A rule that was not judged is said to pass."""
    target = forged.target()
    rule = forged.chance.choice([rule for rule in target["rules"] if rule["verdict"] is None])
    model = next(rule for rule in target["rules"] if rule["verdict"])
    rule |= {key: model[key] for key in model if key not in rule} | {"state": "judged", "verdict": "pass"}


def second_answers(forged: Bundle, other: Bundle) -> None:
    """Answers of a rule are there twice: once more the same, or those of another library."""
    name = forged.rule()["id"]
    source = forged.chance.choice([forged.log_of(name), other.log_of(name)])
    log = forged.log(source)
    log.place = forged.chance.randint(100, 9999)
    (forged.folder / bundle.ANSWERS / f"{log.place:04}-{name}.xz").write_bytes(packed(log))


def hidden_rule(forged: Bundle, _: Bundle) -> None:
    """A rule that was judged is said not to have been, with or without its answers; or only they are gone."""
    rule = forged.rule()
    kind = forged.chance.randrange(3)
    if kind > 0:
        forged.log_of(rule["id"]).unlink()
    if kind == 0:
        rule |= {"state": "not_selected", "verdict": None}
    elif kind == 1:
        rule |= {"examples": rule["examples"] + 1}


def resurrected(forged: Bundle, _: Bundle) -> None:
    """A process that died is said to have answered, as another one did, and its rule to have passed."""
    rule = forged.rule("crash")
    path = forged.log_of(rule["id"])
    log = forged.log(path)
    alive = [step.answer for step in log.steps if log.answers[step.answer].kind != "death"]
    dead = [number for number, step in enumerate(log.steps) if log.answers[step.answer].kind == "death"]
    count = forged.chance.randint(1, len(dead))
    for number in forged.chance.sample(dead, count):
        answer = forged.chance.choice(alive) if alive else 0
        log.steps[number] = msgspec.structs.replace(log.steps[number], answer=answer)
    path.write_bytes(packed(log))
    rule |= {"verdict": "pass", "violation": None, "case": None, "flaky": ""}


KINDS: dict[str, Forgery] = {
    made.__name__: made
    for made in (
        *(edited_verdict, edited_numbers, edited_finding, removed_cases, swapped_cases, swapped_rules),
        *(of_another_library, weakened_options, truncated_file, fewer_examples, edited_statement),
        *(invented_rule, second_answers, hidden_rule, resurrected),
    )
}

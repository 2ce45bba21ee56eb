"""How many findings on mutants are shown by the files that do without this suite.

    python -m benchmarks.reproducers --results FILE [--half memory|delegate] [--slice K/N] [--only WORD]

Each mutant's finding is made (first failure, a short reduction), its file written, a C file compiled with
``gcc -Wall -Wextra``, and the program run on the mutant served as a library, and on the conforming reference
served alike (and on the plain reference, which it must not accuse either). Prints what did not end with 1 and
0, with the reason, and the share.

Results are added to the file as they come, one JSON object a line: a run that was ended goes on where it was.
What is there is not measured again, but for what did not end with 1 and 0 where ``--again`` says so; the last
line of a mutant and a rule counts. ``--document`` writes a table of what the file holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks import served
from benchmarks.reproducers.document import GOOD, Shown, document, newest, summary
from benchmarks.timing import cpu_seconds
from pytest_qnn import effort
from pytest_qnn.case_file import SCHEMA, encode, with_case
from pytest_qnn.core import engine
from pytest_qnn.core.mutant import Mutant
from pytest_qnn.core.verdict import Verdict
from pytest_qnn.mutants import PLACES, chosen, opened
from pytest_qnn.native import NativeReference
from pytest_qnn.rules import catalogue
from pytest_qnn.session import reproducers
from pytest_qnn.session.models import models
from pytest_qnn.tflite.mutants import QNN, SCRIPT_TRACE, TRACE

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile

SEEDS: Final = (1, 2, 3)
_SHRINK_SECONDS: Final = 1.5
_NO_LIBRARY: Final = {
    TRACE: "no library has the fault: a runtime's is put into what was seen",
    SCRIPT_TRACE: "no library has the fault: a runtime's is put into what was seen",
    QNN: "no plugin has the fault: it is in a delegate in the suite's own process, with its backend",
}
"""By the part of the reference that has the fault."""
_PATIENCE: Final = 90
"""Seconds for one run of a program."""


def pairs(half: str, part: str, only: Sequence[str]) -> Iterator[tuple[Mutant, str]]:
    """Mutants with the rules that must find them: part K of N."""
    number, parts = map(int, part.split("/"))
    listed = [(mutant, rule) for mutant, rules in chosen([], half) for rule in rules]
    for place, (mutant, rule) in enumerate(listed):
        wanted = not only or any(word in f"{mutant.name}/{rule}" for word in only)
        if place % parts == number and wanted:
            yield mutant, rule


def files_of(mutant: Mutant, rule_id: str) -> dict[str, bytes]:
    """The files of the mutant's finding; none: it was not found."""
    rule = catalogue()[rule_id]
    profile = dataclasses.replace(effort.profile("default"), shrink_seconds=_SHRINK_SECONDS, repeats=1)
    for seed in SEEDS:
        with closing(opened(mutant, PLACES[mutant.subject][0])) as target:
            verdict = engine.judge(rule, target, profile, seed)
            if verdict.finding is not None and verdict.finding.case:
                content = _content(verdict)
                return reproducers.files(target, verdict, content) | _beside(content)
    return {}


def _beside(content: AnyCaseFile) -> dict[str, bytes]:
    """The models of a delegate's case, and what a steerable target claims in it."""
    if content.subject == "memory":
        return {}
    claims = [
        each["claim"]
        for each in _parts(json.loads(encode(content))["case"])
        if each.get("who", "target") == "target" and each.get("claim") is not None
    ]
    claim = {"claim.json": json.dumps(claims[0]).encode()} if claims else {}
    return models(content) | claim


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(each)


def _content(verdict: Verdict) -> AnyCaseFile:
    finding = verdict.finding
    assert finding is not None
    common = {
        "schema": SCHEMA,
        "rule": verdict.rule,
        "verdict": verdict.outcome.value,
        "target": verdict.target,
        "options": (),
        "seed": verdict.seed,
        "expected": finding.expected,
        "seen": finding.seen,
        "where": finding.where,
    }
    return with_case(verdict.subject, finding.case, common)


def shown(mutant: Mutant, rule: str, folder: Path, libraries: NativeReference) -> Shown:
    """Make the finding's files and try them."""
    started = cpu_seconds()
    result = _result(mutant, rule, folder, libraries)
    day = date.today().isoformat()
    return Shown(mutant.subject, mutant.name, rule, result, day, round(cpu_seconds() - started, 2))


def _result(mutant: Mutant, rule: str, folder: Path, libraries: NativeReference) -> str:
    if mutant.part in _NO_LIBRARY:
        return _NO_LIBRARY[mutant.part]
    files = files_of(mutant, rule)
    if reproducers.WHY_NOT in files:
        return files[reproducers.WHY_NOT].decode().partition(": ")[2].strip()
    if not files:
        return "it was not found"
    home = folder / f"{mutant.name}-{rule}"
    home.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (home / name).write_bytes(content)
    try:
        return _tried(home, mutant, libraries)
    except subprocess.TimeoutExpired:
        return f"no end within {_PATIENCE} s"


def _tried(home: Path, mutant: Mutant, libraries: NativeReference) -> str:
    if (home / reproducers.PROGRAM).exists():
        first = (home / reproducers.PROGRAM).read_text().partition("\n")[0]
        command = first.removeprefix("//").split()  # as its users build it
        built = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
        if built.returncode or built.stderr:
            return f"gcc: {built.stderr.splitlines()[0] if built.stderr else built.returncode}"
        run = [str(home / "reproduce"), str(libraries.backend), str(libraries.rpcmem)]
        variables: dict[str, str] = {}
    else:
        run = [sys.executable, str(home / reproducers.SCRIPT), str(libraries.backend.with_name(_PLUGIN))]
        variables = _claim(home)
    named = [mutant.name, f"{served.CONFORMING}{mutant.name}"]
    # The plain reference is that one once more, unless the mutant declares something of its own.
    named += [""] if served.declares(mutant) else []
    statuses = [_status(run, home, served.environment(libraries, name) | variables) for name in named]
    accused = ", accuses the plain reference" if statuses[2:] == [1] else ""
    return f"{statuses[0]}/{statuses[1]}{accused}"


def _status(run: Sequence[str], home: Path, variables: dict[str, str]) -> int:
    """The exit status of a program, which is run where a case would be.

    What a fault leaves in a file, as if in a driver, is beside that folder, and gone behind the program.
    """
    with tempfile.TemporaryDirectory(prefix="pytest-qnn-", dir=home) as machine:
        folder = Path(machine) / "case"
        folder.mkdir()
        done = subprocess.run(
            run, cwd=folder, env=variables, capture_output=True, timeout=_PATIENCE, check=False
        )
    return done.returncode


_PLUGIN: Final = "libdelegate.so"


def _claim(home: Path) -> dict[str, str]:
    """What the case lets a steerable target claim: a plugin decides that for itself."""
    path = home / "claim.json"
    return {served.CLAIM: path.read_text()} if path.exists() else {}


def read(path: Path | None) -> list[Shown]:
    """The results of a file; none, if it does not exist."""
    if path is None or not path.exists():
        return []
    return [msgspec.json.decode(line, type=Shown) for line in path.read_bytes().splitlines()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproducers", description=__doc__)
    parser.add_argument("--half", choices=["memory", "delegate"], default="memory")
    parser.add_argument("--slice", default="0/1", metavar="K/N", dest="part")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where programs stay")
    parser.add_argument("--results", type=Path, metavar="FILE", help="to which results are added")
    parser.add_argument("--again", action="store_true", help="measure again what was not right")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the results there, and end")
    options = parser.parse_args(arguments)
    if options.document:
        halves = {half: list(pairs(half, "0/1", ())) for half in ("memory", "delegate")}
        options.document.write_text(document(read(options.results), halves))
        return 0
    known = newest(read(options.results))
    done = {name for name, each in known.items() if not options.again or each.result == GOOD}
    listed = list(pairs(options.half, options.part, options.only))
    todo = [(mutant, rule) for mutant, rule in listed if (mutant.name, rule) not in done]
    for each in measured(todo, options.keep):
        known[each.mutant, each.rule] = each
        print(f"{each.result}: {each.mutant}/{each.rule} ({each.seconds} s)", file=sys.stderr, flush=True)
        if options.results:
            with options.results.open("ab") as file:
                file.write(msgspec.json.encode(each) + b"\n")
    print(summary([known[mutant.name, rule] for mutant, rule in listed]))
    return 0


def measured(todo: Sequence[tuple[Mutant, str]], keep: Path | None = None) -> Iterator[Shown]:
    """What becomes of each finding; ``keep``: the folder where programs stay."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)).resolve()  # programs run in folders of their own
        libraries = served.build(folder / "libraries")
        served.build_delegate(libraries.backend.with_name(_PLUGIN))
        for mutant, rule in todo:
            yield shown(mutant, rule, folder, libraries)

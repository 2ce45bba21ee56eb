"""Automatic mutants: what the operators change, names that stay, what is found and what is not."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # The benchmarks are not installed; the path is taken back below.

from benchmarks.automatic import results  # noqa: E402
from benchmarks.automatic.coverage import mark  # noqa: E402
from benchmarks.automatic.judging import CRASH, INCONCLUSIVE, SURVIVED, VIOLATION, Outcome  # noqa: E402
from benchmarks.automatic.listing import listed, of_function, sample  # noqa: E402
from benchmarks.automatic.operators import changes, functions  # noqa: E402

# pytest looks for the packages of plugins on this path, and warns of one that is loaded already: every pytest
# that a later test starts in this process would.
sys.path.remove(str(ROOT))

EXAMPLES = {
    "comparison": ("return a < b", "return a <= b"),
    "arithmetic": ("return a + b", "return a - b"),
    "and, or": ("return a and b", "return a or b"),
    "removed sign": ("return not a", "return a"),
    "swapped arguments": ("return min(a, b)", "return min(b, a)"),
    "constant": ("a = 4", "a = 5"),
    "returned value": ("return a", "return None"),
    "code": (
        "raise QnnError(Error.MEM_ERROR_INVALID_HANDLE)",
        "raise QnnError(Error.MEM_ERROR_INVALID_ARGUMENT)",
    ),
    "slice": ("return a[b:]", "return a[b + 1:]"),
    "removed statement": ("a.clear()", "pass"),
    "negated condition": ("if a:\n    b()", "if not a:\n    b()"),
    "break, continue": ("while a:\n    break", "while a:\n    continue"),
}


def function(body: str, arguments: str = "a, b") -> ast.FunctionDef:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (found,) = functions(ast.parse(f"def f({arguments}):\n{lines}\n"))
    return found[1]


def bodies(code: str) -> str:
    (found,) = functions(ast.parse(code))
    return "\n".join(map(ast.unparse, found[1].body))


@pytest.mark.parametrize("operator", EXAMPLES)
def test_each_operator_gives_valid_code_that_differs(operator: str) -> None:
    before, after = EXAMPLES[operator]
    tree = function(before)
    original = ast.unparse(tree)
    found = list(changes(tree))
    assert after in [bodies(code) for change, code in found if change.operator == operator]
    for _, code in found:
        compile(code, "changed", "exec")
        assert code != original
    assert len({code for _, code in found}) == len(found)
    assert ast.unparse(tree) == original


def test_a_default_is_changed_and_texts_and_annotations_are_not() -> None:
    tree = function('"""Text."""\nraise ValueError(f"{a} of {1}")', "a: int = 3, *, b: bool = True")
    found = Counter(change.operator for change, _ in changes(tree))
    assert found == {"default": 3, "removed statement": 1}


def test_ids_stay_when_the_function_moves_and_change_with_its_code() -> None:
    def ids(source: str) -> list[str]:
        (found,) = functions(ast.parse(source))
        return [mutant.id for mutant in of_function("memory", "file.py", *found)]

    source = "def f(a):\n    if a > 1:\n        return a + 1\n    return 1 > a > 1\n"
    assert ids(source) == ids(f"# moved\n\n{source}")
    assert len(set(ids(source))) == len(ids(source)) > 8
    assert ids(source)[0] != ids(source.replace("a > 1:", "a > 2:"))[0]


MARKED = """\
def f(a):
    'Text.'
    if a:
        return 1
    elif a is None:
        pass
    return 2
"""


def test_marks_tell_which_statements_were_executed() -> None:
    tree = ast.parse(MARKED)
    numbers: list[tuple[str, int]] = []
    mark(next(functions(tree))[1], "file.py", numbers)
    executed = bytearray(16)
    names: dict[str, Any] = {"__executed__": executed}
    exec(compile(tree, "marked", "exec"), names)
    assert names["f"](0) == 2
    assert {line for number, (_, line) in enumerate(numbers) if executed[number]} == {3, 5, 7}
    assert {line for _, line in numbers} == {3, 4, 5, 6, 7}


def test_a_beginning_of_the_sample_has_its_share_of_every_file() -> None:
    every = listed()
    assert len(every) > 3000
    assert len({mutant.id for mutant in every}) == len(every)
    drawn = sample(every, 400, 1)
    assert drawn == sample(every, 400, 1) != sample(every, 400, 2)
    whole, part = Counter(mutant.file for mutant in every), Counter(mutant.file for mutant in drawn)
    assert all(abs(part[file] - 400 * whole[file] / len(every)) <= 1 for file in whole)
    assert sample(every, 400, 1, "0/2") + sample(every, 400, 1, "1/2") == drawn[::2] + drawn[1::2]


def test_totals_count_what_default_missed(tmp_path: Path) -> None:
    mutants = listed("memory")[:4]
    file = tmp_path / "results.jsonl"
    ends = [VIOLATION, SURVIVED, SURVIVED, CRASH]
    for mutant, end in zip(mutants, ends, strict=True):
        results.append(file, Outcome(mutant.id, "default", end, "REG-01", 1, asked=3))
    file.write_bytes(file.read_bytes() + b'{"id": "cut')
    results.append(file, Outcome(mutants[1].id, "thorough", VIOLATION, "REG-02", 300))
    results.append(file, Outcome(mutants[2].id, "thorough", SURVIVED, asked=9))
    judged = {mutants[2].id: results.Judgement(results.HOLE, "no rule looks", (mutants[2].id,))}
    text = results.totals(mutants, results.read(file), judged)
    assert "Found by `default`: 2; of them 1 crashed, 0 hung" in text
    assert "judged in `thorough`: 2; found there: 1" in text
    assert "Share of `default` in what both found: 66.7 %" in text
    assert "Not found: 1: 1 hole." in text


def test_judgements_are_of_known_kinds() -> None:
    for judgement in results.judgements().values():
        assert judgement.kind in (results.EQUIVALENT, results.OUTSIDE, results.HOLE)
        assert judgement.reason
    groups = json.loads(results.JUDGEMENTS.read_text(encoding="utf-8"))
    assert sum(len(group["ids"]) for group in groups) == len(results.judgements()), "judged twice"


def judged_by(
    function: str, before: str, after: str, rules: tuple[str, ...], *, profile: str = "default"
) -> str:
    """The end of one mutant, from a process of its own: this one may have threads."""
    program = (
        "import contextlib\n"
        "from benchmarks.automatic import applying, coverage\n"
        "from benchmarks.automatic.judging import Task, judged\n"
        "from benchmarks.automatic.listing import listed\n"
        "applying.import_all()\n"
        f"wanted = ({function!r}, {before!r}, {after!r})\n"
        "(mutant,) = [m for m in listed() if (m.function, m.before, m.after) == wanted]\n"
        "with contextlib.closing(coverage.opened(mutant.subject, 'reference')) as target:\n"
        "    facts = coverage.facts_of(target)\n"
        f"task = Task(mutant, 'default', {rules!r}, (), 'reference', facts)\n"
        "((_, outcome),) = judged([lambda: task], 1, 1, 60.0)\n"
        "print(outcome.end, outcome.rule)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.full
def test_a_rule_that_has_nothing_to_judge_any_more_has_found_the_fault() -> None:
    """Every operator is refused, so that there is no graph: a run of it is red."""
    read = "inputs = [self.read(node.inputTensors[i].v1) for i in range(node.numOfInputs)]"
    refused = judged_by("Graphs.backend_validate_op_config", read, "pass", ("IF-01", "PRE-11"))
    assert refused == f"{INCONCLUSIVE} PRE-11"


def test_a_planted_fault_is_found_and_an_equivalent_change_is_not() -> None:
    planted = ("Memory.mem_register", "self.deliver_handles(handles, batch)", "pass")
    assert judged_by(*planted, ("IF-01", "REG-01")) == f"{VIOLATION} REG-01"
    sizes = "dimensions = tuple((shape.dimSize[i] for i in range(min({}, {}))))"
    before, after = sizes.format("shape.numDim", "MAX_RANK"), sizes.format("MAX_RANK", "shape.numDim")
    assert judged_by("Memory.needed_bytes", before, after, ("REG-01",)) == SURVIVED

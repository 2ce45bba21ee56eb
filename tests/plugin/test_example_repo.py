"""The example repository, as its author would work with it: built, judged, and broken on purpose."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conforming import DELEGATE_LACKS, DELEGATE_RULES
from fast_run import expression, later, some_of
from reports import judged_by_id

SOURCE = "src/arithmetic_delegate.c"


class Fault(NamedTuple):
    """One change to the source, and the verdict that it must get."""

    right: str
    wrong: str
    rule: str
    verdict: str = "fail"
    sandbox: str = "fork"
    """``off`` where a fault shows in few cases: children are given a fifth of the examples."""


FAULTS = {
    # Nodes that are another delegate's it claims too, without a look at them, and dies of some.
    "claims-by-position": Fault("= plan->data[i];", "= i;", "PART-01", verdict="crash"),
    "writes-last-output-only": Fault(
        "if (is_output(params, step->output)) return true;",
        "if (index == params->nodes_to_replace->data[params->nodes_to_replace->size - 1]) return true;",
        "PART-11",
    ),
    "modifies-its-input": Fault(
        "store(out, i, value, step->activation);",
        "store(out, i, value, step->activation), *(char*)in[0].data ^= 1;",
        "MEM-02",
    ),
    "subtracts-the-wrong-way": Fault("? a - b :", "? b - a :", "NUM-10"),
    "wraps-around": Fault("units = 127.0f;", "units -= 256.0f;", "NUM-04", sandbox="off"),
    "truncates": Fault("(int8_t)(units + (units < 0.0f ? -0.5f : 0.5f))", "(int8_t)units", "NUM-03"),
    "frees-twice": Fault(
        "  free(kernel->steps);", "  free(kernel->steps), free(kernel->steps);", "MEM-15", "crash"
    ),
}


@pytest.fixture
def repository(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """A copy of the example, not built."""
    example = pytestconfig.rootpath / "examples" / "delegate_repo"
    return Path(shutil.copytree(example, tmp_path / "repo", ignore=shutil.ignore_patterns("build", ".*")))


def build(repository: Path, *flags: str) -> None:
    command = ["sh", "build.sh", *(flags or ("-Wpedantic",))]
    subprocess.run(command, cwd=repository, check=True, capture_output=True, timeout=60)


def judged(repository: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the verdicts by rule of the delegate half of the suite and the example's tests."""
    command = [sys.executable, "-m", "pytest", "--pyargs", "pytest_qnn.conformance", "tests"]
    options = ("--qnn-seed=1", "--qnn-report=verdicts.json", *options)
    done = subprocess.run(
        [*command, *options], cwd=repository, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, judged_by_id(json.loads((repository / "verdicts.json").read_text()))


@pytest.mark.parametrize(
    ("runtime", "sandbox"),
    [
        ("tflite_runtime", "fork"),
        later("ai_edge_litert", "off"),
        later("ai_edge_litert", "fork"),
        later("tflite_runtime", "off"),
    ],
)
@pytest.mark.parametrize("which", ["some", later("all")])
def test_the_delegate_passes_every_rule_and_its_own_tests(
    repository: Path, runtime: str, sandbox: str, which: str
) -> None:
    build(repository)
    rules = set(some_of("delegate", "LIFE-14")) if which == "some" else DELEGATE_RULES
    only = ("-k", f"{expression(rules)} or properties") if which == "some" else ()
    options = ("--qnn-profile=quick", f"--tflite-runtime={runtime}", f"--qnn-sandbox={sandbox}")
    status, verdicts = judged(repository, *options, *only)
    # In this process none ends, nothing is refused, and no heap is checked.
    apart = {rule for rule in rules if rule in ("LIFE-14", "MEM-15") or rule.startswith("NOM-")}
    lacking = rules & (DELEGATE_LACKS | (apart if sandbox == "off" else set()))
    expected = dict.fromkeys(rules, "pass") | dict.fromkeys(lacking, "unsupported")
    assert {rule: verdict["verdict"] for rule, verdict in verdicts.items()} == expected
    assert min(verdict["examined"] for rule, verdict in verdicts.items() if rule not in lacking) > 0
    assert status == 0


DEAR = {"frees-twice", "claims-by-position", "writes-last-output-only"}
"""Take nine seconds and more: deaths, and faults in children, are met by others."""


def faults() -> Iterator[Any]:
    """In the fast run the first of each verdict and way of isolation: all rules find mutants elsewhere."""
    met = set()
    for name, fault in FAULTS.items():
        kind = (fault.verdict, fault.sandbox)
        yield pytest.param(fault, id=name, marks=[pytest.mark.full] * (kind in met or name in DEAR))
        met.add(kind)


@pytest.mark.parametrize("fault", list(faults()))
def test_a_fault_in_the_source_fails_its_rule(repository: Path, fault: Fault) -> None:
    source = repository / SOURCE
    text = source.read_text()
    assert text.count(fault.right) == 1
    source.write_text(text.replace(fault.right, fault.wrong))
    build(repository, "-O1", "-w")
    test = f"test_{fault.rule.lower().replace('-', '_')}"
    status, verdicts = judged(repository, "-k", test, "--qnn-strict", f"--qnn-sandbox={fault.sandbox}")
    assert {rule: verdict["verdict"] for rule, verdict in verdicts.items()} == {fault.rule: fault.verdict}
    assert status == 1


def test_an_option_that_the_delegate_lacks_is_told_in_its_own_words(repository: Path) -> None:
    build(repository)
    command = [sys.executable, "-m", "pytest", "--pyargs", "pytest_qnn.conformance", "-k", "part_01"]
    done = subprocess.run(
        [*command, "--tflite-delegate-option=threads=2"],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ArithmeticDelegate has no options" in done.stderr

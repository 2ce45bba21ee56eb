"""Runs that pytest-xdist spreads over two workers, against the same run in one process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from fast_pairs import DEAR
from fast_run import expression, later, some_of
from hostile import began_with
from reports import judged_rules

HELPERS = Path(fake_suite.__file__).parent
SUITE = ("--pyargs", "pytest_qnn.conformance", "--qnn-profile=quick", "--qnn-seed=1")
MUTANTS = (
    "--qnn-backend=mutant:reg-keeps-first",
    "--tflite-delegate=mutant:ignores-activation",
    "-k",
    expression(("REG-02", "REG-08", "NUM-06", "PART-10")),
)
"""Faults that show alike in every process: what a target leaves unwritten is never twice the same."""
SOME = (
    "-k",
    expression(rule for rule in some_of("memory") + some_of("delegate") if not rule.startswith(DEAR)),
)
"""Of each area a rule, but for those whose cases take seconds: they are reported as the others are."""
CLOCK = ("started", "finished")
"""Keys of the report that depend on when it was made; besides them only ``seconds`` of each rule does."""
INTERRUPTIBLE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""A shell's background job has SIGINT ignored and hands that on: tests may be such a job, their runs not."""
PAUSE = 60
"""Seconds that a test would take if nobody ended it."""


@contextlib.contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """pytest in a group of its own; of what it starts nothing is left in the end."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    mark = str(uuid.uuid4())
    paths = filter(None, (str(HELPERS), os.environ.get("PYTHONPATH", "")))
    own = {"PARALLEL": mark, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", INTERRUPTIBLE),
            *("-m", "pytest", "-p", "no:cacheprovider", "--qnn-report=out.json", *options),
        ],
        cwd=folder,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert began_with(f"PARALLEL={mark}") == []
    assert [path for path in temporary.iterdir() if path.name.startswith("pytest-qnn-")] == []


def judged(folder: Path, *options: str) -> dict[str, Any]:
    """The report of a run of the suite, without what depends on the clock."""
    folder.mkdir()
    with started(folder, "-q", *SUITE, *options) as process:
        output, _ = process.communicate(timeout=600)
        assert (folder / "out.json").exists(), output
    return timeless(folder)


def timeless(folder: Path) -> dict[str, Any]:
    text = (folder / "out.json").read_text().replace(str(folder), "FOLDER")  # replay commands name it
    document: dict[str, Any] = json.loads(text)
    for key in CLOCK:
        del document[key]
    for rule in judged_rules(document):
        del rule["seconds"]
        for row in rule.get("coverage", ()):
            if row["op"] == "BATCH_MATMUL":
                # At ranks 0 and 1 the runtime reads in front of its dimensions (docs/reference/runtimes.md).
                row["reasons"] = sum(row["reasons"].values())
    return document


@pytest.mark.parametrize(
    "targets",
    [
        later(MUTANTS, name="mutants"),
        later(SOME, name="some"),
        pytest.param((), id="reference", marks=pytest.mark.full),
    ],
)
def test_the_report_of_two_workers_is_that_of_one_process(tmp_path: Path, targets: tuple[str, ...]) -> None:
    one = judged(tmp_path / "one", *targets)
    two = judged(tmp_path / "two", "-n2", *targets)
    failed = {rule["id"] for rule in judged_rules(one) if rule["verdict"] == "fail"}
    assert (failed >= {"REG-08", "NUM-06"}) if targets is MUTANTS else (failed == set())
    # A whole report is not to be read where two rules of hundreds differ.
    both = zip(judged_rules(one), judged_rules(two), strict=True)
    assert [pair for pair in both if pair[0] != pair[1]] == []
    assert two == one


def test_a_worker_that_somebody_kills_costs_nothing(tmp_path: Path) -> None:
    options = ("-k", "reg_0", "--qnn-sandbox=fork")
    two = judged(tmp_path / "two", "-n2", "-p", "kill_worker", *options)
    assert two["not_judged"] == []
    assert {rule["verdict"] for rule in judged_rules(two)} == {"pass"}


@pytest.mark.full
@pytest.mark.parametrize("options", [("-n2",), later(("-n2", "--dist=loadscope"))])
def test_a_rule_whose_worker_is_always_killed_costs_itself(tmp_path: Path, options: tuple[str, ...]) -> None:
    options = ("-k", "reg_03 or reg_04 or reg_05", "--qnn-sandbox=fork", *options)
    one = judged(tmp_path / "one", *options)
    two = judged(tmp_path / "two", "-p", "kill_worker", "--kill-always=REG-04", *options)
    assert two["not_judged"] == []
    whole = {rule["id"]: rule for rule in judged_rules(one)}
    assert [rule["id"] for rule in judged_rules(two)] == list(whole)
    (lost,) = (rule for rule in judged_rules(two) if rule != whole[rule["id"]])
    assert (lost["id"], lost["verdict"], lost["examined"]) == ("REG-04", "crash", 0)
    assert "the worker process was killed while it judged the rule" in lost["reason"]


STUCK = f"""
import time
from pathlib import Path

def test_reg_06(judge):
    Path("begun-06").touch()
    time.sleep({PAUSE})
    judge("REG-06")

def test_reg_07(judge):
    Path("begun-07").touch()
    time.sleep({PAUSE})
    judge("REG-07")
"""


JUDGED = """
from pathlib import Path

def pytest_qnn_verdict(config, verdict):
    Path(f"judged-{verdict.rule}").touch()
"""


@pytest.fixture
def stuck(tmp_path: Path, fakes_outside: None) -> Iterator[subprocess.Popen[str]]:
    """A run in which one rule is judged, two are being judged, and one waits."""
    source = f"{fake_suite.suite('REG-01')}\n{STUCK}\n{fake_suite.suite('REG-08')}"
    (tmp_path / "test_rules.py").write_text(source)
    (tmp_path / "conftest.py").write_text(JUDGED)
    with started(tmp_path, "-n2", "-v", "-p", "fake_suite") as process:
        deadline = time.monotonic() + 60
        while not all((tmp_path / name).exists() for name in ("begun-06", "begun-07", "judged-REG-01")):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process


def interrupt(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGINT)


def interrupt_all(process: subprocess.Popen[str]) -> None:
    """As a terminal does at Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def terminate(process: subprocess.Popen[str]) -> None:
    process.terminate()


def interrupt_workers(process: subprocess.Popen[str]) -> None:
    """The main process learns of it from its workers only."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGINT)


@pytest.mark.full
@pytest.mark.parametrize("end", [later(interrupt), later(interrupt_all), later(terminate), interrupt_workers])
def test_a_run_that_is_ended_says_what_was_judged_and_what_was_not(
    tmp_path: Path, stuck: subprocess.Popen[str], end: Any
) -> None:
    end(stuck)
    output, _ = stuck.communicate(timeout=30)
    assert stuck.returncode == pytest.ExitCode.INTERRUPTED, output
    document = timeless(tmp_path)
    assert document["complete"] is False
    assert document["not_judged"] == ["REG-06", "REG-07", "REG-08"]
    assert [(rule["id"], rule["verdict"]) for rule in judged_rules(document)] == [("REG-01", "pass")]


def test_the_report_does_not_wait_for_workers_that_do_not_end(
    tmp_path: Path, stuck: subprocess.Popen[str]
) -> None:
    terminate(stuck)
    deadline = time.monotonic() + 3.0
    while not (tmp_path / "out.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert stuck.poll() is None

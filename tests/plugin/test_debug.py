"""--qnn-debug: the case of a finding under a debugger or a memory checker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from native import qnn_library
from native_plugins import plugin
from reports import refusal

FILE = {
    "subject": "memory",
    "schema": 2,
    "rule": "CTX-01",
    "target": "any",
    "options": [],
    "seed": 0,
    "expected": "",
    "seen": "",
    "case": {"steps": [{"do": "context-create", "context": "c0"}]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "case.json").write_text(json.dumps(FILE))
    return tmp_path


def debugged(pytester: pytest.Pytester, folder: Path, tool: str, behaviour: str) -> pytest.RunResult:
    backend = f"--qnn-backend={qnn_library(folder, behaviour)}"
    return pytester.runpytest_subprocess(f"--qnn-replay={folder}", f"--qnn-debug={tool}", backend)


def test_a_command_runs_the_case_in_one_process(pytester: pytest.Pytester, folder: Path) -> None:
    result = debugged(pytester, folder, "env MARK=7", 'puts(getenv("MARK"));fflush(stdout)')
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "env MARK=7 */python* -c *",
            "pytest-qnn: the target is loaded; the case of CTX-01 begins",
            "pytest-qnn: step 0",
            "7",
            "pytest-qnn: the case is over; the process ends",
        ]
    )
    assert "passed" not in result.stdout.str()


def test_the_command_that_is_printed_is_one_for_any_shell(
    pytester: pytest.Pytester, folder: Path, tmp_path: Path
) -> None:
    result = debugged(pytester, folder, "env MARK=7", 'puts(getenv("MARK"));fflush(stdout)')
    line = next(line for line in result.outlines if line.startswith("env MARK=7 "))
    assert "$'" not in line  # dash has no such word
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = subprocess.run(["sh", "-c", line], cwd=elsewhere, capture_output=True, text=True, check=True)
    assert "7" in again.stdout.splitlines()


def test_what_is_no_program_is_refused_in_one_sentence(
    pytester: pytest.Pytester, folder: Path, tmp_path: Path
) -> None:
    tool = tmp_path / "tool"
    tool.touch(mode=0o755)
    result = debugged(pytester, folder, str(tool), "")
    assert refusal(result) == f"--qnn-debug: {tool} cannot be started: Exec format error"


def test_a_signal_is_in_the_exit_status(pytester: pytest.Pytester, folder: Path) -> None:
    assert debugged(pytester, folder, "env", "abort()").ret == 128 + 6


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_shows_the_place(pytester: pytest.Pytester, folder: Path) -> None:
    result = debugged(pytester, folder, "gdb", "*(volatile int*)8=0")
    assert re.search(r"^#0 .* in context_create \(", result.stdout.str(), re.MULTILINE)


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_shows_where_a_hang_waits(pytester: pytest.Pytester, folder: Path) -> None:
    """Without a terminal nobody could interrupt it."""
    (folder / "case.json").write_text(json.dumps(FILE | {"verdict": "hang"}))
    backend = f"--qnn-backend={qnn_library(folder, 'for(;;)pause()')}"
    result = pytester.runpytest_subprocess(
        f"--qnn-replay={folder}", "--qnn-debug=gdb", "--qnn-timeout=2", backend, timeout=60
    )
    shown = result.stdout.str()
    assert "received signal SIGALRM" in shown
    assert re.search(r"^#\d+ .* in context_create \(", shown, re.MULTILINE)


def test_asan_shows_where_the_heap_is_damaged(pytester: pytest.Pytester, folder: Path) -> None:
    result = debugged(pytester, folder, "asan", "{char* volatile p = malloc(8); free(p); free(p);}")
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*ERROR: AddressSanitizer: attempting double-free*", "*context_create*"])


@pytest.mark.full
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_valgrind_says_nothing_of_a_sound_delegate(pytester: pytest.Pytester, tmp_path: Path) -> None:
    graph = {
        "tensors": [{"shape": [1]}, {"shape": [1]}],
        "nodes": [{"op": "ADD", "inputs": [0, 0], "outputs": [1]}],
        "inputs": [0],
        "outputs": [1],
    }
    file = FILE | {"subject": "delegate", "rule": "NUM-10", "case": {"graph": graph}}
    (tmp_path / "case.json").write_text(json.dumps(file))
    delegate = f"--tflite-delegate={plugin(tmp_path)}"
    result = pytester.runpytest_subprocess(f"--qnn-replay={tmp_path}", "--qnn-debug=valgrind", delegate)
    result.stderr.fnmatch_lines(["*ERROR SUMMARY: 0 errors from 0 contexts*"])
    assert result.ret == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--qnn-debug=gdb"], "*--qnn-debug: needs --qnn-replay=FOLDER*"),
        (["--qnn-debug=no-such-tool -x", "--qnn-replay={}"], "*--qnn-debug: no-such-tool is not installed*"),
        (["--qnn-debug='", "--qnn-replay={}"], '*--qnn-debug: "\'" is no command*'),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(
    pytester: pytest.Pytester, folder: Path, arguments: list[str], said: str
) -> None:
    result = pytester.runpytest_subprocess(*(text.format(folder) for text in arguments))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


@pytest.mark.full
def test_the_ini_file_chooses_the_tool_of_a_replay_and_of_nothing_else(
    pytester: pytest.Pytester, folder: Path
) -> None:
    backend = f"--qnn-backend={qnn_library(folder)}"
    pytester.makeini("[pytest]\nqnn_debug = env MARK=8\n")
    pytester.makepyfile("def test_one(): pass")
    assert "1 passed" in pytester.runpytest_subprocess().stdout.str()
    result = pytester.runpytest_subprocess(f"--qnn-replay={folder}", backend)
    result.stdout.fnmatch_lines(["env MARK=8 *", "pytest-qnn: the case is over; the process ends"])


def test_a_case_of_several_processes_is_refused(pytester: pytest.Pytester, folder: Path) -> None:
    steps = [*FILE["case"]["steps"], {"do": "new-process"}]  # type: ignore[index]
    (folder / "case.json").write_text(json.dumps(FILE | {"case": {"steps": steps}}))
    result = debugged(pytester, folder, "env", "")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--qnn-debug: the case has several processes*"])


def test_a_step_that_is_left_out_under_a_tool_is_named(pytester: pytest.Pytester, folder: Path) -> None:
    """IF-17 looks at a heap that nobody checks there: its case ends well, and this line says why."""
    steps = [{"do": "check-heap"}, *FILE["case"]["steps"]]  # type: ignore[index]
    (folder / "case.json").write_text(json.dumps(FILE | {"rule": "IF-17", "case": {"steps": steps}}))
    result = debugged(pytester, folder, "env", "")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["pytest-qnn: step 0 was left out: a heap is checked in a process *"])

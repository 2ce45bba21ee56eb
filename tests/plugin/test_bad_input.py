"""Each bad input gives one clear sentence and exit code 4, before any test runs."""

from __future__ import annotations

import json
from pathlib import Path

import fake_suite
import pytest
import real_suite
from fast_run import alternating, later
from native import build, qnn_library
from reports import refusal

LOADED = real_suite.RULES
"""What runs in this process need is loaded once."""

PLUGIN = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void on_load(void) { ON_LOAD; }
void* tflite_plugin_create_delegate(char** keys, char** values, size_t count, void (*report)(const char*)) {
  return 0;
}
void tflite_plugin_destroy_delegate(void* delegate) {}
"""
TOO_LONG = "a" * 256
"""Of a file's name the system takes 255 bytes."""
UNRELATED = "int answer(void) { return 42; }"
NO_RUNTIME = """
import sys

class WithoutRuntimes:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tflite_runtime", "ai_edge_litert"):
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [WithoutRuntimes(finder) for finder in sys.meta_path]
"""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--qnn-backend=gone.so"],
            "--qnn-backend: there is no file 'gone.so'; names that need none: reference",
        ),
        (
            ["--qnn-backend=proxy:gone.so"],
            "--qnn-backend: there is no file 'gone.so'; names that need none: reference",
        ),
        (["--qnn-backend="], "--qnn-backend: '' names no library"),
        (["--qnn-backend=."], "--qnn-backend: '.' is a folder, not a library"),
        (
            ["--qnn-rpcmem=./libgone.so"],
            "--qnn-rpcmem: there is no file './libgone.so'; names that need none: emulated",
        ),
        (
            ["--qnn-rpcmem=gone.so"],
            "--qnn-rpcmem: there is no file 'gone.so'; names that need none: emulated",
        ),
        (
            ["--tflite-delegate=gone.so"],
            (
                "--tflite-delegate: there is no file 'gone.so'; "
                "names that need none: reference, xnnpack, qnn-reference"
            ),
        ),
        (
            ["--tflite-delegate=xnnpack", "--tflite-delegate-option=threads"],
            "--tflite-delegate-option: 'threads' is not of the form key=value",
        ),
        (
            ["--tflite-delegate=xnnpack", "--tflite-delegate-option==4"],
            "--tflite-delegate-option: '=4' is not of the form key=value",
        ),
        (
            ["--tflite-delegate-option=a=1", "--tflite-delegate=xnnpack"],
            "--tflite-delegate-option: 'a=1' belongs to no delegate; it must follow one",
        ),
        (
            ["--tflite-runtime=tf"],
            "--tflite-runtime: 'tf' is not one of auto, tflite_runtime, ai_edge_litert",
        ),
        (
            ["--tflite-delegate-precision=half"],
            "--tflite-delegate-precision: 'half' is not one of float32, float16",
        ),
        (["--qnn-sandbox=yes"], "--qnn-sandbox: 'yes' is not one of auto, off, fork, spawn"),
        (["--qnn-timeout=soon"], "--qnn-timeout: 'soon' is not a positive number of seconds"),
        (["--qnn-timeout=0"], "--qnn-timeout: '0' is not a positive number of seconds"),
        (["--qnn-timeout=nan"], "--qnn-timeout: 'nan' is not a positive number of seconds"),
        (["--qnn-timeout=1e300"], "--qnn-timeout: '1e300' is more than a day (86400 seconds)"),
        (["--qnn-timeout=3000000"], "--qnn-timeout: '3000000' is more than a day (86400 seconds)"),
        (["-o", "qnn_timeout=3000000"], "--qnn-timeout: '3000000' is more than a day (86400 seconds)"),
        (["--qnn-timeout=inf"], "--qnn-timeout: 'inf' is not a positive number of seconds"),
        (["--qnn-env="], "--qnn-env: '' names no variable"),
        (["--qnn-env==x"], "--qnn-env: '' names no variable"),
        (
            ["--qnn-env=PATH=hunter2"],
            "--qnn-env: 'PATH' is named with a value; the one that is set in the environment travels",
        ),
        (["--qnn-env=PA\0TH"], "--qnn-env: 'PA\\x00TH' has a null byte in it, and no variable has"),
        (["--qnn-env=NO_SUCH_KEY"], "--qnn-env: 'NO_SUCH_KEY' is not set in the environment"),
        (["--qnn-profile=slow"], "--qnn-profile: 'slow' is not one of quick, default, thorough"),
        (["--qnn-seed=-1"], "--qnn-seed: '-1' is not a whole number of at most 15 digits"),
        (["--qnn-seed=0x10"], "--qnn-seed: '0x10' is not a whole number of at most 15 digits"),
        (["--qnn-report=out.xml"], "--qnn-report: 'out.xml' does not end in .json or .html"),
        (["--qnn-replay=gone.json"], "--qnn-replay: there is no file or folder 'gone.json'"),
        (["--qnn-replay=."], "--qnn-replay: the folder '.' holds no case.json"),
        (["--qnn-replay=a\0b"], "--qnn-replay: there is no file or folder 'a\\x00b'"),
        (
            [f"--qnn-backend={TOO_LONG}"],
            f"--qnn-backend: there is no file '{TOO_LONG}'; names that need none: reference",
        ),
        (
            ["-o", f"qnn_backend={TOO_LONG}"],
            f"--qnn-backend: there is no file '{TOO_LONG}'; names that need none: reference",
        ),
        ([f"--qnn-report={TOO_LONG}.json"], f"--qnn-report: '{TOO_LONG}.json' is too long for a file's name"),
        (
            ["--qnn-report=a\0.html"],
            "--qnn-report: 'a\\x00.html' has a null byte in it, and no file's name has",
        ),
        ([f"--qnn-corpus={TOO_LONG}"], f"--qnn-corpus: '{TOO_LONG}' is too long for a file's name"),
    ],
)
def test_an_option_of_the_wrong_form(pytester: pytest.Pytester, arguments: list[str], sentence: str) -> None:
    pytester.makepyfile("def test_other(): pass")
    assert refusal(pytester.runpytest_inprocess("-v", *arguments)) == sentence


def test_a_report_path_in_a_folder_that_does_not_exist(pytester: pytest.Pytester) -> None:
    folder = pytester.path / "gone"
    sentence = refusal(pytester.runpytest_inprocess("--qnn-report=gone/out.json"))
    assert sentence == f"--qnn-report: there is no folder {str(folder)!r} to write 'out.json' to"


def test_a_report_path_that_is_a_folder(pytester: pytest.Pytester) -> None:
    pytester.mkdir("out.html")
    assert (
        refusal(pytester.runpytest_inprocess("--qnn-report=out.html"))
        == "--qnn-report: 'out.html' is a folder"
    )


def test_a_report_path_in_a_folder_in_which_no_file_can_be_made(pytester: pytest.Pytester) -> None:
    sentence = refusal(pytester.runpytest_inprocess("--qnn-report=/proc/x.json"))
    assert sentence == (
        "--qnn-report: '/proc/x.json': no file can be made in '/proc': No such file or directory"
    )


GOOD_CASE = {
    "schema": 2,
    "rule": "REG-01",
    "subject": "memory",
    "target": "reference",
    "options": ["--qnn-backend=reference"],
    "seed": 1,
    "case": {"steps": [{"do": "context-create", "context": "c0"}]},
    "expected": "a",
    "seen": "b",
}


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in GOOD_CASE.items() if name != key}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a case file of pytest-qnn: Input data was truncated"),
        (json.dumps(GOOD_CASE).encode()[:-40], "is not a case file of pytest-qnn: Input data was truncated"),
        (b"\x7fELF\x00", "is not a case file of pytest-qnn: JSON is malformed"),
        (b'{"schema": 2, "rule": "\xff"}', "is not a case file of pytest-qnn: "),
        (b"[" * 100_000, "is not a case file of pytest-qnn: "),
        ([GOOD_CASE], "is not a case file of pytest-qnn: Expected `object`, got `array`"),
        (b" " * ((1 << 21) + 1), "has more than 2097152 bytes, and no case file of pytest-qnn has"),
        (
            GOOD_CASE | {"case": {"steps": [{"do": "context-create", "context": "../../x"}]}},
            "is not a case file of pytest-qnn: '../../x' is no name",
        ),
        (
            GOOD_CASE | {"case": {"steps": [{"do": "alloc", "buffer": "b0", "size": 1 << 70}]}},
            "is not a case file of pytest-qnn: step 0: size is a number of 71 bits, not within ",
        ),
        (GOOD_CASE | {"schema": 3}, "has schema 3, and this pytest-qnn reads schemas 1 to 2"),
        (GOOD_CASE | {"schema": "1"}, "is not a case file of pytest-qnn: Expected `int`, got `str`"),
        (
            GOOD_CASE | {"code": "import os"},
            "is not a case file of pytest-qnn: Object contains unknown field `code`",
        ),
        (without("case"), "is not a case file of pytest-qnn: Object missing required field `case`"),
        (GOOD_CASE | {"subject": "kernel"}, "is not a case file of pytest-qnn: Invalid value 'kernel'"),
        (
            GOOD_CASE | {"subject": "delegate"},
            "is not a case file of pytest-qnn: Object missing required field `graph`",
        ),
        (
            GOOD_CASE | {"case": {"steps": [{"do": "system", "command": "ls"}]}},
            "is not a case file of pytest-qnn: Invalid value 'system'",
        ),
        (
            GOOD_CASE | {"options": ["--qnn-timeout=3000000"]},
            "CANNOT RUN: --qnn-timeout: '3000000' is more than a day (86400 seconds)",
        ),
        (
            GOOD_CASE | {"options": ["--qnn-backend=/a\0b"]},
            "CANNOT RUN: the case file names the file '/a\\x00b', and has none loaded by itself",
        ),
        (
            GOOD_CASE | {"options": ["--tflite-delegate=/a\0b"]},
            "CANNOT RUN: the case file names the file '/a\\x00b', and has none loaded by itself",
        ),
        (
            GOOD_CASE | {"options": ["--qnn-report=x.json"]},
            "CANNOT RUN: '--qnn-report=x.json' does not select a target",
        ),
    ],
)
def test_a_malformed_case_file(pytester: pytest.Pytester, content: object, said: str) -> None:
    path = pytester.path / "case.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    sentence = refusal(pytester.runpytest_inprocess("--qnn-replay=case.json"))
    assert sentence.startswith("--qnn-replay")
    assert said in sentence


@pytest.mark.usefixtures("fakes")
def test_a_case_file_about_a_rule_that_there_is_not(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fake_suite.suite("REG-01"))
    (pytester.path / "case.json").write_text(json.dumps(GOOD_CASE | {"rule": "NONE-01"}))
    sentence = refusal(pytester.runpytest_inprocess("--qnn-replay=case.json"))
    assert sentence == "--qnn-replay: case.json: the catalogue has no rule NONE-01"


def judged(pytester: pytest.Pytester, *arguments: str) -> str:
    """The refusal of a run that would judge a rule of each kind for real."""
    pytester.makepyfile(fake_suite.suite("REG-01", "PART-01"))
    return refusal(pytester.runpytest_inprocess("-p", "no:cacheprovider", "-v", *arguments))


def assert_names_once(sentence: str, flag: str, path: Path) -> None:
    """The option comes first, and the path that was given to it comes once."""
    assert sentence.startswith(f"{flag}: ")
    assert sentence.count(str(path)) == 1


def text_file(folder: Path) -> Path:
    path = folder / "libtext.so"
    path.write_text("this is no library\n")
    return path


@pytest.mark.parametrize("flag", ["--qnn-backend", "--tflite-delegate"])
def test_a_file_that_is_not_a_library(pytester: pytest.Pytester, flag: str) -> None:
    path = text_file(pytester.path)
    sentence = judged(pytester, f"{flag}={path}")
    assert_names_once(sentence, flag, path)


def test_an_rpcmem_that_is_not_a_library(pytester: pytest.Pytester) -> None:
    path = text_file(pytester.path)
    assert_names_once(judged(pytester, f"--qnn-rpcmem={path}"), "--qnn-rpcmem", path)


@pytest.mark.parametrize(
    ("flag", "symbol"),
    [
        ("--qnn-backend", "QnnInterface_getProviders"),
        ("--tflite-delegate", "tflite_plugin_create_delegate"),
        ("--qnn-rpcmem", "rpcmem_alloc"),
    ],
)
def test_a_library_without_the_entry_point(pytester: pytest.Pytester, flag: str, symbol: str) -> None:
    path = build(pytester.path, UNRELATED)
    sentence = judged(pytester, f"{flag}={path}")
    assert_names_once(sentence, flag, path)
    assert symbol in sentence


LIBRARIES = ("--qnn-backend", "--tflite-delegate", "--qnn-rpcmem")


@pytest.mark.parametrize(("size", "flag"), alternating([10, 40, 3000], LIBRARIES))
def test_a_library_that_is_cut_off(pytester: pytest.Pytester, size: int, flag: str) -> None:
    path = build(pytester.path, PLUGIN, ON_LOAD="")
    path.write_bytes(path.read_bytes()[:size])
    sentence = judged(pytester, f"{flag}={path}")
    assert_names_once(sentence, flag, path)
    assert " is cut off: " in sentence
    assert f"it has {size}" in sentence


MACHINES = {
    "is for AArch64, and this machine is x86-64": (18, 183),
    "is for the machine 4000 of ELF, and this machine is x86-64": (18, 4000),
    "is for x86-64 (32-bit), and this machine is x86-64": (4, 1),
}
"""What is said, of which bytes of the file: where they are, and their value."""


@pytest.mark.parametrize(("said", "flag"), alternating(MACHINES, LIBRARIES))
def test_a_library_of_another_machine(pytester: pytest.Pytester, said: str, flag: str) -> None:
    at, value = MACHINES[said]
    path = build(pytester.path, PLUGIN, ON_LOAD="")
    content = bytearray(path.read_bytes())
    content[at : at + 2] = value.to_bytes(2, "little") if value > 1 else b"\1\1"
    path.write_bytes(content)
    sentence = judged(pytester, f"{flag}={path}")
    assert_names_once(sentence, flag, path)
    assert sentence.endswith(said)


def test_an_entry_point_that_returns_no_provider(pytester: pytest.Pytester) -> None:
    path = qnn_library(pytester.path, providers=0)
    sentence = judged(pytester, f"--qnn-backend={path}")
    assert_names_once(sentence, "--qnn-backend", path)
    assert "provider" in sentence


def test_a_delegate_plugin_whose_create_returns_null(pytester: pytest.Pytester) -> None:
    path = build(pytester.path, PLUGIN, ON_LOAD="")
    # Options that were given may be at fault; without any it is the plugin, which ABI-02 says.
    sentence = judged(pytester, f"--tflite-delegate={path}", "--tflite-delegate-option=threads=2")
    assert_names_once(sentence, "--tflite-delegate", path)
    assert "NULL" in sentence
    # That it is no delegate is ABI-02's, and not of what destroys nothing before.
    pytester.makepyfile(fake_suite.suite("ABI-02", "ABI-07", "PART-01"))
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--tflite-delegate={path}")
    assert result.ret is pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1, passed=1, skipped=1)


def test_a_delegate_plugin_that_needs_what_nobody_has(pytester: pytest.Pytester) -> None:
    path = build(pytester.path, f"void nosuch(void);{PLUGIN}", ON_LOAD="nosuch()")
    sentence = judged(pytester, f"--tflite-delegate={path}")
    assert_names_once(sentence, "--tflite-delegate", path)
    assert "undefined symbol: nosuch" in sentence
    # The rule about that is judged, and with it a run ends as one with a violation.
    pytester.makepyfile(fake_suite.suite("ABI-12", "PART-01"))
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--tflite-delegate={path}")
    assert result.ret is pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1, skipped=1)


@pytest.mark.parametrize(
    ("on_load", "said", "sandbox"),
    [
        ("_exit(3)", "exit status 3", "fork"),
        later("_exit(3)", "exit status 3", "spawn"),
        ("abort()", "SIGABRT", "fork"),
        ("abort()", "SIGABRT", "spawn"),
        later("for(;;)", "no answer: still computing after", "spawn"),
    ],
)
def test_a_backend_that_does_not_survive_its_load(
    pytester: pytest.Pytester, on_load: str, said: str, sandbox: str
) -> None:
    path = qnn_library(pytester.path, on_load=on_load)
    limit = 1 if "computing" in said else 20
    sentence = judged(pytester, f"--qnn-backend={path}", f"--qnn-timeout={limit}", f"--qnn-sandbox={sandbox}")
    assert_names_once(sentence, "--qnn-backend", path)
    assert said in sentence


def test_a_delegate_plugin_that_exits_during_its_load(pytester: pytest.Pytester) -> None:
    path = build(pytester.path, PLUGIN, ON_LOAD="_exit(3)")
    sentence = judged(pytester, f"--tflite-delegate={path}")
    assert_names_once(sentence, "--tflite-delegate", path)
    assert "exit status 3" in sentence


def test_both_runtimes_missing(pytester: pytest.Pytester) -> None:
    (pytester.path / "no_runtime.py").write_text(NO_RUNTIME)
    pytester.syspathinsert()
    pytester.makepyfile(fake_suite.suite("PART-01"))
    sentence = refusal(pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no_runtime", "-v"))
    assert "tflite-runtime" in sentence
    assert "ai-edge-litert" in sentence


@pytest.mark.parametrize(
    ("flag", "value"), [("--qnn-backend", "mutant:none"), ("--tflite-delegate", "mutant:none")]
)
def test_a_mutant_that_there_is_not(pytester: pytest.Pytester, flag: str, value: str) -> None:
    assert value in judged(pytester, f"{flag}={value}")


@pytest.mark.full
def test_the_longest_time_limit_overflows_nothing(pytester: pytest.Pytester) -> None:
    """Of the target that is learned, of a case in a child, and of one that dies: milliseconds are C's int."""
    path = qnn_library(pytester.path, "abort()")
    pytester.makepyfile(fake_suite.suite("CTX-09"))
    limits = ("--qnn-timeout=86400", "--qnn-sandbox=spawn", "--qnn-profile=quick", "--qnn-seed=1")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", f"--qnn-backend={path}", *limits)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["CTX-09 crash: *", "  seen      the process died of SIGABRT"])

"""Credentials of the environment do not travel into the processes that a target is loaded in."""

from __future__ import annotations

import json
import os
from contextlib import closing
from importlib import resources
from pathlib import Path

import fake_suite
import jsonschema
import pytest
from fast_run import later
from native import delegate_library, qnn_library
from sandboxed import CASE

from pytest_qnn.isolation.start import interpreter
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.tflite.target import open_delegate_target

NOTE = """
#include <stdio.h>
extern char** environ;
static void note(const char* path) {
  FILE* file = fopen(path, "ab");
  for (char** each = environ; *each; ++each) fwrite(*each, 1, strlen(*each) + 1, file);
  fputs("END=", file); fputc(0, file); fclose(file);
}
"""
"""Appends the environment of the process to a file, with END as the last entry."""
CREDENTIALS = (
    *(
        "GITHUB_TOKEN",
        "aws_secret_access_key",
        "SSH_AUTH_SOCK",
        "MY_APIKEY",
        "PGPASSWORD",
        "Vault_Credentials",
    ),
    *("MONKEY", "KEYBOARD", "GIT_AUTHOR_NAME", "XAUTHORITY"),
)
"""The last ones only have one of the words inside another; held back all the same."""
LOADERS = (
    *("QNN_SKEL_KEY_PATH", "LD_DEBUG_OUTPUT_TOKEN", "KEY_LIBRARY_PATH", "ADSP_AUTH", "VK_LAYER_KEY"),
    *("ASAN_SECRET", "GLIBC_TUNABLES"),
)
"""Of loaders and drivers, with one of the words or without."""
ORDINARY = ("PYTHONHASHSEED", "PATH", "HOME", "LANG", "TMPDIR", "CUDA_VISIBLE_DEVICES")
VALUE = "7"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in interpreter.held_back():
            monkeypatch.delenv(name)
    for name in (*CREDENTIALS, *LOADERS, "PYTHONHASHSEED", "LANG", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, VALUE)
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=4")


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "note"


def noted(note: Path) -> list[dict[str, str]]:
    """Every environment that a library has left in the file."""
    found: list[dict[str, str]] = [{}]
    for entry in note.read_bytes().decode().split("\0")[:-1]:
        name, _, value = entry.partition("=")
        if name == "END":
            found.append({})
        else:
            found[-1][name] = value
    assert found.pop() == {}
    assert found
    return found


def backend(folder: Path, note: Path) -> str:
    """A backend that notes its environment when it is loaded, and when a context is made."""
    library = qnn_library(
        folder, f'note("{note}")', on_load=f'note("{note}")', before=f"#include <string.h>\n{NOTE}"
    )
    return str(library)


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_credentials_do_not_travel_and_all_else_does(mode: str, tmp_path: Path, note: Path) -> None:
    with closing(open_memory_target(backend(tmp_path, note), "emulated", mode, 10.0)) as target:
        assert target.run(CASE).death is None
    for seen in noted(note):
        assert seen.keys() & set(CREDENTIALS) == set()
        assert seen.keys() >= {*LOADERS, *ORDINARY}
        assert (seen["QNN_SKEL_KEY_PATH"], seen["PYTHONHASHSEED"]) == (VALUE, VALUE)


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_what_is_named_travels_and_no_other(mode: str, tmp_path: Path, note: Path) -> None:
    passed = ("MY_APIKEY", "NOT_SET_TOKEN")
    opened = open_memory_target(backend(tmp_path, note), "emulated", mode, 10.0, passed)
    with closing(opened) as target:
        assert target.run(CASE).death is None
        target.run_fresh(CASE)
    for seen in noted(note):
        assert seen.keys() & {*CREDENTIALS, *passed} == {"MY_APIKEY"}
        assert seen["MY_APIKEY"] == VALUE


def test_a_delegate_gets_none_either(tmp_path: Path, note: Path) -> None:
    library = delegate_library(tmp_path, on_prepare=f'note("{note}")', before=f"#include <string.h>\n{NOTE}")
    chain = [(str(library), {})]
    with closing(open_delegate_target(chain, "auto", "fork", 10.0, passed=("MY_APIKEY",))):
        pass  # what it claims is learned by graphs of each operator
    for seen in noted(note):
        assert seen.keys() & set(CREDENTIALS) == {"MY_APIKEY"}


def test_names_are_shown_without_what_a_terminal_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_\x1b[2J", VALUE)
    monkeypatch.setenv(os.fsdecode(b"TOKEN_\xff"), VALUE)
    assert set(interpreter.held_back(CREDENTIALS)) == {r"TOKEN_\udcff", r"TOKEN_\x1b[2J"}
    assert not any(name.startswith("TOKEN") for name in interpreter.environment())


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A rule that makes contexts, judged in a run of its own."""
    pytester.makepyfile(test_rules=fake_suite.suite("CTX-01"))
    return pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--qnn-profile=quick", "--qnn-report=out.json", *arguments
    )


def document() -> dict[str, object]:
    content: dict[str, object] = json.loads(Path("out.json").read_text())
    schema = json.loads(resources.files("pytest_qnn.report").joinpath("schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(content)
    return content


@pytest.fixture
def library(tmp_path: Path, note: Path) -> str:
    return f"--qnn-backend={backend(tmp_path, note)}"


def held_back_line(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("held back")]


@pytest.mark.parametrize("spread", [(), later(("-n1",))])
def test_the_report_names_what_was_held_back_and_no_value(
    pytester: pytest.Pytester,
    library: str,
    note: Path,
    spread: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "of great value")
    result = run(
        pytester, library, "--qnn-report=out.html", "--qnn-env=MY_APIKEY", "--qnn-env=MONKEY", *spread
    )
    names = sorted({*CREDENTIALS} - {"MY_APIKEY", "MONKEY"})
    content = document()
    assert content["held_back"] == names
    assert content["options"]["qnn_env"] == ["MY_APIKEY", "MONKEY"]  # type: ignore[index]
    (line,) = held_back_line(result)
    assert f": {', '.join(names)} (" in line
    page = Path("out.html").read_text()
    assert f"<td>{', '.join(names)}</td>" in page
    assert "of great value" not in page + Path("out.json").read_text() + result.stdout.str()
    environments = noted(note)
    assert all(seen.keys() & set(CREDENTIALS) == {"MY_APIKEY", "MONKEY"} for seen in environments)
    if spread:  # else the tests themselves may be in such a worker
        assert any("PYTEST_XDIST_WORKER" in seen for seen in environments)


@pytest.mark.full
def test_nothing_is_said_where_nothing_was_held_back(
    pytester: pytest.Pytester, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    assert held_back_line(run(pytester, library)) == []
    assert document()["held_back"] == []


@pytest.mark.parametrize("sandbox", [later("off"), later("auto")])
def test_in_pytests_own_process_nothing_changes(
    pytester: pytest.Pytester, library: str, note: Path, sandbox: str
) -> None:
    target = library if sandbox == "off" else "--qnn-backend=reference"
    result = run(pytester, target, f"--qnn-sandbox={sandbox}")
    assert held_back_line(result) == []
    assert "held_back" not in document()
    if sandbox == "off":
        assert any(seen.keys() >= {*CREDENTIALS} for seen in noted(note))


@pytest.mark.parametrize("arguments", [later(()), later(("--qnn-env=MY_APIKEY",))])
def test_a_debugger_gets_what_a_child_gets(
    pytester: pytest.Pytester, library: str, note: Path, arguments: tuple[str, ...]
) -> None:
    case = {"steps": [{"do": "context-create", "context": "c0"}]}
    header = {"subject": "memory", "schema": 2, "rule": "CTX-01", "target": "any", "options": [], "seed": 0}
    (pytester.path / "case.json").write_text(json.dumps(header | {"expected": "", "seen": "", "case": case}))
    result = pytester.runpytest_subprocess("--qnn-replay=case.json", "--qnn-debug=env", library, *arguments)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["env */python* -c *", "held back: GITHUB_TOKEN, *"])
    named = {argument.partition("=")[2] for argument in arguments}
    assert all(seen.keys() & set(CREDENTIALS) == named for seen in noted(note))

"""Words of a target that would do something to a terminal, a page or a file are shown, and do nothing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import fake_suite
import msgspec
import pytest
from fake_suite import HOSTILE_TEXT as TEXT
from fast_run import later
from reports import judged_by_id

SHOWN = r"a\x1b[2J\x07\x9b31m\r\u202eb\u2066\udc80\ud800\x00<&>"
SPEC = "mutant:\x1b]0;owned\x07\u202e"
RULES = (*fake_suite.HOSTILE, "REG-03")
"""The last one's process dies, and leaves `HOSTILE_LEFT`."""
PLUGINS = ("-p", "fake_suite", "-p", "no:cacheprovider")
FILES = ("--qnn-report=out.json", "--qnn-report=out.html", "--junitxml=out.xml")


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and all output of a run in a process of its own, as bytes that have to be UTF-8."""
    environment = os.environ | {"PYTHONPATH": str(Path(fake_suite.__file__).parent)}
    environment |= {"FAKE_HOSTILE": "1", "FAKE_EVIDENCE": "1"}
    command = [sys.executable, "-m", "pytest", "-v", "-rA", *PLUGINS, *arguments]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, env=environment, timeout=100, check=False
    )
    return ended.returncode, (ended.stdout + ended.stderr).decode()


def assert_plain(text: str) -> None:
    """Nothing in it is obeyed."""
    obeyed = {sign for sign in text if not (sign.isprintable() or sign in "\n\t")}
    assert not obeyed, obeyed


@pytest.mark.parametrize("spread", [later((), name="one-process"), pytest.param(("-n1",), id="worker")])
def test_nothing_that_a_verdict_says_is_obeyed(tmp_path: Path, spread: tuple[str, ...]) -> None:
    (tmp_path / "test_rules.py").write_text(fake_suite.suite(*RULES))
    status, output = run(tmp_path, "test_rules.py", f"--qnn-backend={SPEC}", "--qnn-seed=1", *FILES, *spread)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in output
    page, junit = ((tmp_path / name).read_text(encoding="utf-8") for name in ("out.html", "out.xml"))
    for text in (output, page, junit):
        assert_plain(text)
    assert f"  seen      {SHOWN}" in output
    assert f"REG-14 unsupported: {SHOWN}" in output
    assert r"REG-15 SHOULD: a\x1b[2J\x07\x9b31m \u202eb" in output  # on one line
    assert f"RuntimeError: {SHOWN}" in output
    assert SHOWN.replace("<&>", "&lt;&amp;&gt;") in page
    properties = {(one.get("name"), one.get("value")) for one in ET.fromstring(junit).iter("property")}
    assert ("reason", SHOWN) in properties
    # Strict readers of JSON, as msgspec is one, refuse a file with half a surrogate pair in it.
    found = judged_by_id(msgspec.json.decode((tmp_path / "out.json").read_bytes()))
    half = TEXT.replace("\udc80", r"\udc80").replace("\ud800", r"\ud800")
    assert found["REG-13"]["violation"]["seen"] == half
    assert found["REG-03"]["violation"]["evidence"]["during"] == half
    for rule in ("REG-13", "REG-15", "REG-16", "REG-03"):
        assert found[rule]["replay"].isprintable()
        (folder,) = tmp_path.glob(f".pytest-qnn/*/{rule}")
        assert {path.name for path in folder.iterdir()} >= {"case.json", "command.txt", "README.txt"}
        for path in {*folder.iterdir()} - {folder / "case.json"}:  # which is data, as it was
            assert_plain(path.read_text(encoding="utf-8"))


@pytest.mark.full
def test_a_replay_says_nothing_that_is_obeyed(tmp_path: Path) -> None:
    (tmp_path / "test_rules.py").write_text(fake_suite.suite("REG-13"))
    run(tmp_path, "test_rules.py", f"--qnn-backend={SPEC}")
    (folder,) = tmp_path.glob(".pytest-qnn/*/REG-13")
    status, output = run(tmp_path, "test_rules.py", f"--qnn-replay={folder}")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert_plain(output)
    assert f"REG-13 on {SPEC!a}: STILL FAILS: ".replace("'", "") in output


@pytest.mark.full
def test_a_refusal_says_nothing_that_is_obeyed(tmp_path: Path) -> None:
    content = {"schema": 2, "rule": "REG-01", "subject": "memory", "target": TEXT[:8], "seed": 1}
    options = ["--qnn-backend=/nowhere/\x1b[2J.so"]
    content |= {"options": options, "case": {"steps": []}, "expected": "", "seen": ""}
    (tmp_path / "case.json").write_text(json.dumps(content))
    for arguments in (["--qnn-replay=case.json"], ["--qnn-replay=\x1b[2J"], [f"--qnn-backend={SPEC}"]):
        status, output = run(tmp_path, "--pyargs", "pytest_qnn.conformance", "-k", "test_reg_01", *arguments)
        assert_plain(output)
        assert status == pytest.ExitCode.USAGE_ERROR or arguments[0].endswith(SPEC)


@pytest.mark.usefixtures("fakes")
def test_a_command_with_a_control_character_in_its_path_works(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pytester.mkdir(os.fsdecode(b"p\xff\x1b 'q'"))
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_rules.py").write_text(fake_suite.suite("REG-02"))
    monkeypatch.chdir(folder)
    lines = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--qnn-report=out.html").outlines
    (command,) = {line.split(maxsplit=1)[1] for line in lines if line.startswith("  replay ")}
    assert command.isprintable()
    read = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True).stdout
    _, *arguments = [os.fsdecode(word) for word in read.split(b"\0")[:-1]]
    monkeypatch.chdir(pytester.path)
    again = pytester.runpytest_inprocess("-p", "no:cacheprovider", str(folder), *arguments)
    again.stdout.fnmatch_lines(["REG-02 on reference: STILL FAILS: *"])
    assert shlex.split(command)[0].endswith("pytest")

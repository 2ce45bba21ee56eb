"""Ctrl-C and the signals that end a run: they take no report from it, and none is lost in a callback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fake_suite
import pytest
from fast_run import later
from reports import judged_by_id

AS_FROM_A_TERMINAL = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""For a conftest.py: a shell's background job ignores Ctrl-C, and hands that on."""
OPTIONS = ("-p", "fake_suite", "--qnn-report=out.json")

pytestmark = pytest.mark.usefixtures("fakes_outside")


def report(name: str = "out.json") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(name).read_text())
    return content


def test_ctrl_c_that_a_c_callback_swallows_ends_the_run_after_all(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(AS_FROM_A_TERMINAL)
    stop = """
import ctypes, os, signal, time

@ctypes.CFUNCTYPE(None)
def callback():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)

def test_reg_02(judge):
    callback()
    judge("REG-02")

"""
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01") + stop + fake_suite.suite("REG-06"))
    result = pytester.runpytest_subprocess(*OPTIONS, timeout=60)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert report()["not_judged"] == ["REG-02", "REG-06"]
    assert judged_by_id(report())["REG-01"]["verdict"] == "pass"


def test_a_test_about_ctrl_c_ends_no_run(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(AS_FROM_A_TERMINAL)
    own = """
import os, pytest, signal, time

def test_own():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

"""
    pytester.makepyfile(test_rules=own + fake_suite.suite("REG-01"))
    result = pytester.runpytest_subprocess(*OPTIONS, timeout=60)
    assert result.ret == 0
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("spread", [(), later(("-n1",))])
@pytest.mark.parametrize("end", ["", "def test_stop(): raise KeyboardInterrupt\n"])
def test_what_comes_while_the_report_is_written_takes_it_from_nobody(
    pytester: pytest.Pytester, spread: tuple[str, ...], end: str
) -> None:
    """A second Ctrl-C, and what a service manager or a CI sends a moment after the first signal."""
    hooks = "def pytest_qnn_report(document):\n    import os\n"
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        hooks += f"    os.kill(os.getpid(), signal.{name})\n"
    # As from a terminal: whoever runs these tests may ignore the signals (nohup does).
    usual = "signal.signal(signal.SIGHUP, signal.SIG_DFL)\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
    pytester.makeconftest(AS_FROM_A_TERMINAL + usual + hooks)
    pytester.makepyfile(test_rules=f"{fake_suite.suite('REG-01')}\n{end}")
    result = pytester.runpytest_subprocess(*OPTIONS, *spread, timeout=60)
    assert result.ret == (pytest.ExitCode.INTERRUPTED if end else pytest.ExitCode.OK)
    assert judged_by_id(report())["REG-01"]["verdict"] == "pass"
    assert "Traceback" not in result.stderr.str()
    assert "memory target: reference" in result.stdout.str()


MATRIX = """\
[targets.old]
options = ["--qnn-backend=reference"]
[targets.new]
options = ["--qnn-backend=reference"]
"""


def test_ctrl_c_ends_a_matrix_with_what_its_target_has_found(pytester: pytest.Pytester) -> None:
    """A terminal interrupts both processes. The other one says what it has found, and this one in which."""
    head = "import pathlib, time"
    wait = "def test_stop():\n    pathlib.Path('begun').touch()\n    time.sleep(60)\n"
    pytester.makepyfile(test_rules="\n".join((head, fake_suite.suite("REG-02"), wait)))
    Path("m.toml").write_text(MATRIX)
    begin = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", begin, sys.executable, "-m", "pytest", *OPTIONS, "--qnn-matrix=m.toml"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until = time.monotonic() + 60
        while not Path("begun").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, errors
    assert "Traceback" not in output + errors
    assert judged_by_id(report("out-old.json"))["REG-02"]["verdict"] == "fail"
    assert "REG-02 MUST fail" in output
    assert output.splitlines()[-2:] == ["qnn matrix: m.toml", "  old: exit status 2"]
    assert not Path("out-new.json").exists()

"""The case of a finding under a debugger or a memory checker, or behind any other command."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import shell_line
from pytest_qnn.isolation.start import interpreter
from pytest_qnn.options import Options
from pytest_qnn.session.alone import ALARM
from pytest_qnn.targets import held_back, in_one_process, worker_spec

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile

_GDB = ("gdb", "-q", "-ex", "set breakpoint pending on", "-ex", "run")
_GDB_ALONE = ("-batch", "-ex", "backtrace 24")
"""Where nobody is there to type: what is most often asked for, and the end."""
_GDB_OF_A_HANG = ("-ex", "handle SIGALRM stop print nopass")
_GDB_OF_A_HANG_ALONE = ("-batch", "-ex", "thread apply all backtrace 24")
"""Who holds what the others wait for may be another thread."""
_VALGRIND = (
    *("valgrind", "--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"),
    *("--num-callers=12", "--error-exitcode=1"),
)
_SUPPRESSIONS = Path(__file__).with_name("interpreter.supp")
"""For valgrind: what is Python's own."""


_SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a command."""


class Command(NamedTuple):
    """What is run."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    """Beside this process' own."""

    def text(self) -> str:
        """For a shell."""
        given = [f"{name}={shell_line([value])}" for name, value in self.environment.items()]
        return " ".join([*given, shell_line(self.words)])


def run(config: pytest.Config, options: Options, content: AnyCaseFile) -> int:
    """Print the command, run it on this terminal, and return its exit status.

    Raises:
        BadOption: the tool is not there, or cannot be started.
    """
    command = made(options, content)
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend(in_=True)  # the tool is to have this terminal, its keyboard too
    sys.stdout.write(f"{command.text()}\n{_held_back(options)}\n")
    sys.stdout.flush()
    # Ctrl-C is the debugger's.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        environment = {**interpreter.environment(options.env), **command.environment}
        status = subprocess.run(command.words, env=environment, check=False).returncode
        return status if status >= 0 else _SIGNALLED - status
    except OSError as error:  # it is executable, and no program of this machine
        why = error.strerror or error
        raise BadOption(f"--qnn-debug: {command.words[0]} cannot be started: {why}") from None
    finally:
        signal.signal(signal.SIGINT, before)


def _held_back(options: Options) -> str:
    """A line that names the variables which the command runs without here, and has in a shell."""
    names = held_back(options)
    return f"held back: {', '.join(names)} (--qnn-env=NAME adds one)\n" if names else ""


def made(options: Options, content: AnyCaseFile) -> Command:
    """The command for the tool that the options name.

    Raises:
        BadOption: the tool is not there, or the case has several processes.
    """
    assert options.replay is not None
    if not in_one_process(content.subject, content.case):
        raise BadOption("--qnn-debug: the case has several processes, and is carried out in one")
    spec = worker_spec(content.subject, options).text()
    path = str(options.replay.resolve())
    python = interpreter.command("pytest_qnn.session.alone", spec, path)
    make = {"gdb": _gdb, "valgrind": _valgrind, "asan": _asan}.get(options.debug)
    if options.debug == "gdb" and content.verdict == "hang":
        command = _gdb_of_a_hang(python, options.timeout)
    else:
        command = make(python) if make else Command((*shlex.split(options.debug), *python), {})
    tool = command.words[0]
    if shutil.which(tool) is None:
        raise BadOption(f"--qnn-debug: {tool} is not installed, or not on PATH")
    return command


def _gdb(python: list[str]) -> Command:
    alone = () if sys.stdin.isatty() else _GDB_ALONE
    return Command((*_GDB, *alone, "--args", *python), {})


def _gdb_of_a_hang(python: list[str], seconds: float) -> Command:
    """A hang stops nothing by itself: gdb does, at the alarm that the case begins with."""
    alone = () if sys.stdin.isatty() else _GDB_OF_A_HANG_ALONE
    words = (*_GDB[:2], *_GDB_OF_A_HANG, *_GDB[2:], *alone, "--args", *python)
    return Command(words, {ALARM: f"{seconds:g}"})


def _valgrind(python: list[str]) -> Command:
    # Python's own allocator would hide its blocks, and the target's in them, from valgrind.
    return Command((*_VALGRIND, f"--suppressions={_SUPPRESSIONS}", *python), {"PYTHONMALLOC": "malloc"})


def _asan(python: list[str]) -> Command:
    """The sanitizer's library has to be loaded first, since the program itself is not built with it."""
    given = os.environ.get("LD_PRELOAD")
    preloaded = given or " ".join(filter(None, (_runtime("libasan.so"), _runtime("libstdc++.so"))))
    if not preloaded:
        raise BadOption(
            "--qnn-debug=asan: gcc does not say where its libasan.so is; name the library in LD_PRELOAD"
        )
    wanted = f"detect_leaks=1:{os.environ.get('ASAN_OPTIONS', '')}".rstrip(":")
    environment = {"LD_PRELOAD": preloaded, "ASAN_OPTIONS": wanted, "PYTHONMALLOC": "malloc"}
    return Command(tuple(python), environment)


def _runtime(name: str) -> str:
    """Where gcc has a library; empty: nowhere."""
    try:
        asked = ["gcc", f"-print-file-name={name}"]
        found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    return str(Path(found).resolve()) if os.sep in found else ""

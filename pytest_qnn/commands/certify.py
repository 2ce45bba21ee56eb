"""Judge a target by the rules of this release, and leave a folder that can be judged again without it.

The arguments of pytest are made here: nothing of the place where it runs has a say in them, no conftest.py,
no ini file, no other plugin, no variable of pytest's or Python's. `verify` judges the folder again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pytest_qnn import options
from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.core import forms, submission
from pytest_qnn.core.printable import one_line, printable, shell_line
from pytest_qnn.report import files
from pytest_qnn.session import pytest_process
from pytest_qnn.session.certification import bundle, release, statement, text

_STATUS = "Exit status: 0 certified, 1 rules are not kept, 2 wrong arguments or no whole run, 3 a trial."
_USAGE = "python -m pytest_qnn certify --to FOLDER [options of the target] [--qnn-vendor TEXT ...]"
_OWN = {
    "--qnn-profile": "for a trial: quick or default",
    "--qnn-rule": "for a trial: only these rules",
    "--qnn-timeout": "for a trial: another time limit than the release's",
}
"""Options of pytest that make a run a trial, which is no certification."""
_GIVEN = tuple(f"--qnn-{key}" for key in submission.KEYS)
_TARGET = (
    "--qnn-backend",
    "--qnn-rpcmem",
    "--tflite-delegate",
    "--tflite-delegate-option",
    "--tflite-runtime",
)
_TARGET_TOO = ("--tflite-delegate-precision", "--qnn-env", "--qnn-about")
_PASSED = (
    "Options of the target and of the submission are those of a run: "
    f"{', '.join((*_TARGET, *_TARGET_TOO, *_GIVEN))}. "
    f"Options that make it a trial: {', '.join(_OWN)}."
)
_INI = "pytest.ini"
_UNWRITTEN = re.compile("--qnn-(report|certify): .* could not be written: ")
"""Lines of pytest's that say why its exit status is none of `JUDGED` though all rules were judged."""


class _NotJudged(Exception):  # noqa: N818 - what is wrong is mostly what the user has named
    """The run did not come to its end; the text is one sentence."""


def main(arguments: Sequence[str]) -> int:
    """Run, write the folder, print what it states; returns the exit status."""
    folder, passed = parse(arguments)
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            return refuse("certify", f"--to: {folder} is not empty")
        with _as_it_was(folder, is_new=is_new):
            (folder / _INI).write_text("[pytest]\n", encoding="utf-8")
            status = _run(folder, _command(folder, passed))
            if status not in pytest_process.JUDGED:
                raise _NotJudged(f"the run ended with exit status {status}: {_last_line(folder)}")
    except _NotJudged as error:
        return refuse("certify", str(error))
    except OSError as error:
        return refuse("certify", f"--to: {folder}: {error.strerror or error}")
    try:
        stated = _stated(folder)
        files.replace(folder / bundle.STATEMENT, _json(stated))
        bundle.seal(folder)
    except bundle.BadBundle as error:
        return refuse("certify", str(error))
    except OSError as error:
        why = f"what is stated cannot be written: {error.strerror or error}"
        return refuse("certify", f"--to: {folder}: {why}")
    installed = release.frozen()
    missing = statement.shortcomings(stated, installed)
    violated = statement.violated(stated, release.errata(installed.release))
    show(text.stated(stated, missing, violated))
    return 1 if violated else 3 if missing else 0


@contextlib.contextmanager
def _as_it_was(folder: Path, *, is_new: bool) -> Iterator[None]:
    """Where what is done here ends early, and no rule was judged, the empty folder is left as it was.

    So the command can be given again, with what was wrong put right.

    Args:
        folder: in which nothing is but what is made here.
        is_new: it is removed, too.
    """
    try:
        yield
    except BaseException:
        if not bundle.has_rules(folder):
            with contextlib.suppress(OSError):
                for name in (_INI, bundle.RUN_LOG, bundle.REPORT):
                    (folder / name).unlink(missing_ok=True)
                shutil.rmtree(folder / bundle.ANSWERS, ignore_errors=True)
                if is_new:
                    folder.rmdir()
        raise


def parse(arguments: Sequence[str]) -> tuple[Path, list[str]]:
    """The folder, and the options that go on to pytest; a wrong command line ends the process."""
    parser = Parser(
        prog="python -m pytest_qnn certify",
        usage=_USAGE,
        description=__doc__,
        epilog=f"{_PASSED} {_STATUS}",
        allow_abbrev=False,
    )
    parser.add_argument("--to", required=True, metavar="FOLDER", help="what is written; new or empty")
    parser.add_argument("--isolation", choices=("fork", "spawn"), default="fork", help="as --qnn-sandbox")
    ours, rest = parser.parse_known_args(arguments)
    theirs = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.declare(theirs.add_argument)
    try:
        folder = forms.folder("--to", ours.to)
        given = _checked(rest)
    except forms.BadOption as error:
        parser.error(str(error))
    assert folder is not None
    return folder, [*given, f"--qnn-sandbox={ours.isolation}"]


def _checked(arguments: Sequence[str]) -> list[str]:
    """Options of pytest, each one with its value in one word, which is made absolute where it is a path.

    Raises:
        BadOption: it is none that a certification may have.
    """
    allowed = (*_TARGET, *_TARGET_TOO, *_GIVEN, *_OWN)
    found = []
    words = list(arguments)
    while words:
        flag, equals, value = words.pop(0).partition("=")
        if flag not in allowed:
            raise forms.BadOption(f"{flag} is no option of a certification")
        if not equals:
            if not words:
                raise forms.BadOption(f"{flag} needs a value")
            value = words.pop(0)
        found.append(f"{flag}={_absolute(flag, value)}")
    return found


def _absolute(flag: str, value: str) -> str:
    if flag == "--qnn-about":
        return os.path.abspath(value)
    split = forms.PATHS[flag](value) if flag in forms.PATHS else None
    if split is None:
        return value
    before, path = split
    return value if forms.is_soname(path) else f"{before}{os.path.abspath(path)}"


def _command(folder: Path, passed: Sequence[str]) -> list[str]:
    installed = release.frozen()
    given = {word.partition("=")[0] for word in passed}
    default = {"--qnn-profile": installed.profile, "--qnn-timeout": f"{installed.timeout:g}"}
    own = [f"{flag}={value}" for flag, value in default.items() if flag not in given]
    return [
        *(sys.executable, "-I", "-m", "pytest", "-p", "pytest_qnn.plugin", "-p", "no:cacheprovider"),
        # Not --rootdir, in which pytest replaces $VARIABLES: it is the folder of the ini file.
        *("-c", str(folder / _INI), "--noconftest", "-ra"),
        *(*pytest_process.SUITE, f"--qnn-seed={installed.seed}", *own, *passed),
        f"--qnn-certify={folder / bundle.ANSWERS}",
        f"--qnn-report={folder / bundle.REPORT}",
    ]


def _run(folder: Path, command: list[str]) -> int:
    """The exit status of pytest, whose output goes to a file. Raises OSError."""
    print(printable(shell_line(command)), file=sys.stderr, flush=True)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))
    }
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with (folder / bundle.RUN_LOG).open("xb") as log, pytest_process.exit_on_sigterm():
        return pytest_process.status(
            command, stdout=log.fileno(), stderr=log.fileno(), cwd=str(folder), env=environment
        )


def _last_line(folder: Path) -> str:
    """What pytest said last; what could not be written, where it said that."""
    lines = bundle.read(folder, bundle.RUN_LOG).decode(errors="replace").split("\n")
    unwritten = [line for line in lines if _UNWRITTEN.match(line)]
    said = unwritten or [line for line in reversed(lines) if line.strip()] or ["it said nothing"]
    return one_line(said[0], 400)


def _stated(folder: Path) -> statement.Statement:
    """Raises BadBundle."""
    report = bundle.typed(folder, bundle.REPORT, statement.ReportSaid)
    answers = sum(bundle.answers(bundle.log(folder, name)) for name in bundle.logs(folder))
    return statement.state(report, answers)


def _json(stated: statement.Statement) -> bytes:
    return msgspec.json.format(msgspec.json.encode(stated), indent=1) + b"\n"

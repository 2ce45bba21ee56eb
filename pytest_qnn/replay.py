"""Judging exactly one case again: that of a finding's folder, on its own target or on another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from pytest_qnn import engine
from pytest_qnn.casefile import AnyCaseFile, read
from pytest_qnn.forms import BadOption, unwrapped
from pytest_qnn.options import Options, with_target_of
from pytest_qnn.rules.rule import Rule
from pytest_qnn.session import REPLAYED, Session
from pytest_qnn.target import Target
from pytest_qnn.verdict import Outcome, Unsupported, Violation

Result = Literal["STILL FAILS", "FIXED", "CANNOT RUN"]

SUITE = "pytest_qnn.conformance"


class Replayed(msgspec.Struct, frozen=True):
    """What replaying a case gave."""

    rule: str
    target: str
    result: Result
    detail: str


def prepare(options: Options, path: Path) -> tuple[Options, AnyCaseFile]:
    """Read the file for ``--qnn-replay``; without target options on the command line, take the file's.

    Raises:
        BadOption: the file is not a case file, or its target's options are unusable here.
    """
    content = read(path)
    if options.target_given:
        return options, content
    try:
        chosen = with_target_of(options, content.options)
        for library in _libraries(chosen):
            _trusted(library, path)
    except BadOption as error:
        raise BadOption(f"--qnn-replay {path}: CANNOT RUN: {error}") from None
    return chosen, content


def _libraries(options: Options) -> list[Path]:
    """Files that opening the target would load."""
    specs = (unwrapped(options.backend)[1], options.rpcmem, *(spec for spec, _ in options.delegates))
    return [Path(spec) for spec in specs if os.path.isfile(spec)]


def _trusted(library: Path, path: Path) -> None:
    """A file that came with the case, or that lies wherever pytest is started, is not loaded unasked."""
    folder = (path if path.is_dir() else path.parent).resolve()
    if not library.is_absolute() or library.resolve().is_relative_to(folder):
        raise BadOption(f"the case file names the library {str(library)!r}; name it on the command line")


def collect_suite(config: pytest.Config) -> None:
    """Where the command line names no tests, collect the conformance suite: the case's rule is in there."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [SUITE]
        config.option.pyargs = True


def run(session: Session, item: pytest.Item, rule: Rule[Any, Any, Any]) -> None:
    """Judge the case of the session's case file, record what came of it, and pass or fail the test."""
    content = session.case_file
    if content is None:
        raise ValueError("the session has no case to replay")
    target = session.target(rule.subject)
    if content.subject == rule.subject:
        result, detail = _judge(rule, target, content)
        if result == "FIXED" and content.flaky:
            detail += f"; but when it was found it {content.flaky}, so that one run proves little"
    else:
        result, detail = (
            "CANNOT RUN",
            f"the file has a {content.subject} case, and {rule.id} needs a {rule.subject} case",
        )
    replayed = Replayed(rule.id, target.spec, result, detail)
    item.stash.setdefault(REPLAYED, []).append(msgspec.to_builtins(replayed))
    if result != "FIXED":
        pytest.fail(f"{rule.id} {result}: {detail}", pytrace=False)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _judge(rule: Rule[Any, Any, Any], target: Target[Any, Any], file: AnyCaseFile) -> tuple[Result, str]:
    try:
        found = engine.judge_case(rule, target, file.case)
    except Exception as error:
        # A case from a file may be one that no strategy makes, and the suite not up to it.
        known = file.verdict == Outcome.INCONCLUSIVE.value
        detail = f"the suite itself failed: {type(error).__name__}: {_first_line(error)}"
        return "STILL FAILS" if known else "CANNOT RUN", detail
    if isinstance(found, Violation):
        return "STILL FAILS", str(found)
    if isinstance(found, Unsupported):
        return "CANNOT RUN", found.reason
    if not found.count:
        idle = file.verdict == Outcome.INCONCLUSIVE.value
        return "STILL FAILS" if idle else "CANNOT RUN", "the case ran, and let the rule look at nothing"
    return "FIXED", f"the rule holds in this case ({found.count} {found.what} examined)"

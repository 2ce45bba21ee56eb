"""Judging exactly one case again: that of a finding's folder, on its own target or on another one."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_qnn.case_file import read
from pytest_qnn.core import engine
from pytest_qnn.core.forms import HERE, BadOption
from pytest_qnn.core.printable import encodable, printable
from pytest_qnn.core.rule import Rule
from pytest_qnn.core.target import Target
from pytest_qnn.core.verdict import Outcome, Replayed, Result, Unsupported, Violation
from pytest_qnn.options import Options, real_path
from pytest_qnn.report import crash, failure
from pytest_qnn.state import REPLAYED, Session

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile

_ELSEWHERE: dict[Result, Result] = {"FIXED": "PASSES HERE", "STILL FAILS": "FAILS HERE"}

_FLAKY = re.compile(r"failed (\d{1,4}) of (\d{1,4}) runs")
"""As `pytest_qnn.core.verdict.Verdict.flaky` has it."""
_BY_CHANCE, _MOST_RUNS = 0.05, 40

SUITE = "pytest_qnn.conformance"

_HOW = ("--qnn-sandbox=", "--qnn-timeout=", "--qnn-env=", "--tflite-runtime=")
"""Options that say how a target is run. The runtime itself is compared by its name, whatever chose it."""
_DEFAULTS = ("--qnn-backend=reference", "--qnn-rpcmem=emulated", "--tflite-delegate=reference")


def prepare(read_with: Callable[[Sequence[str]], Options], path: Path) -> tuple[Options, AnyCaseFile]:
    """Read the file for ``--qnn-replay``, and the run's options with those of the file's target among them.

    Args:
        read_with: reads the run's options, given those of the case file.
        path: what ``--qnn-replay`` names.

    Raises:
        BadOption: the file is not a case file, its target's options are unusable here, or something would
            be loaded that neither the command line nor the ini file names.
    """
    content = read(path)
    try:
        options = read_with(content.options)
        for key, value in _delegate_options(content.case):
            text = f"{_text(key)}={_text(value)}"
            real_path("--tflite-delegate-option", text, options.files, elsewhere=options.on != HERE)
    except BadOption as error:
        raise BadOption(f"--qnn-replay {path}: CANNOT RUN: {error}") from None
    return options, content


def _delegate_options(case: Any) -> Iterator[tuple[Any, Any]]:
    """Every option that a case gives to a delegate, however deep in it.

    These fields are called ``options`` and hold pairs of texts or bytes; no other field of a case holds text
    that is more than a name (`pytest_qnn.case_file`).
    """
    if isinstance(case, tuple):
        for part in case:
            yield from _delegate_options(part)
    elif isinstance(case, msgspec.Struct):
        for field in case.__struct_fields__:
            value = getattr(case, field)
            if field == "options":
                yield from (pair for pair in value if isinstance(pair, tuple))
            else:
                yield from _delegate_options(value)


def _text(part: str | bytes) -> str:
    return part if isinstance(part, str) else os.fsdecode(part)


def collect_suite(config: pytest.Config) -> None:
    """Where the command line names no tests, collect the conformance suite: the case's rule is in there.

    Tests that a project's addopts name for its own runs are not on the command line.
    """
    if not set(config.args).intersection(map(str, config.invocation_params.args)):
        config.args = [SUITE]
        config.option.pyargs = True


def run(session: Session, item: pytest.Item, rule: Rule[Any, Any, Any]) -> None:
    """Judge the case of the session's case file, record what came of it, and pass or fail the test."""
    content = session.case_file
    if content is None:
        raise ValueError("the session has no case to replay")
    replayed = _replayed(rule, session.target(rule.subject), content)
    item.stash.setdefault(REPLAYED, []).append(encodable(msgspec.to_builtins(replayed)))
    if not replayed.good:
        text = f"{rule.id} {replayed.result}: {replayed.detail}"
        pytest.fail(printable(f"{text}\n{replayed.other}".rstrip()), pytrace=False)


def _replayed(rule: Rule[Any, Any, Any], target: Target[Any, Any], content: AnyCaseFile) -> Replayed:
    if content.subject != rule.subject:
        detail = f"the file has a {content.subject} case, and {rule.id} needs a {rule.subject} case"
        return Replayed(rule.id, target.spec, "CANNOT RUN", detail)
    result, detail = _judged_often(rule, target, content)
    other = _other_target(content, target)
    if other and result in _ELSEWHERE:
        return Replayed(rule.id, target.spec, _ELSEWHERE[result], detail, other)
    return Replayed(rule.id, target.spec, result, detail)


def _judged_often(
    rule: Rule[Any, Any, Any], target: Target[Any, Any], file: AnyCaseFile
) -> tuple[Result, str]:
    """As `_judge`; a case that failed in some runs only is judged until it fails, or has held in `_runs`."""
    runs = _runs(file.flaky)
    for run in range(1, runs + 1):
        result, detail = _judge(rule, target, file)
        if result != "FIXED":
            told = f"in run {run}, where it {file.flaky} when it was found: " if run > 1 else ""
            return result, told + detail
    if runs > 1:
        detail += f", in each of {runs} runs; when it was found it {file.flaky}"
    return result, detail


def _runs(flaky: str) -> int:
    """In so many runs a case that fails as often as it did when it was found passes by chance in 1 of 20."""
    told = _FLAKY.fullmatch(flaky)
    failed, of = map(int, told.groups()) if told else (1, 1)
    if not 0 < failed < of:
        return 1
    return min(_MOST_RUNS, math.ceil(math.log(_BY_CHANCE) / math.log(1 - failed / of)))


def _other_target(file: AnyCaseFile, target: Target[Any, Any]) -> str:
    """Which other target than the one of the file was judged, as a sentence; empty: the same."""
    theirs = [option for option in file.options if not option.startswith(_HOW)]
    ours = [option for option in target.options if not option.startswith(_HOW)]
    runtimes = [found.get("runtime", "") for found in (file.provenance, target.provenance())]
    if all(runtimes):
        theirs.append(f"--tflite-runtime={runtimes[0]}")
        ours.append(f"--tflite-runtime={runtimes[1]}")
    if theirs == [option for option in ours if option in theirs or option not in _DEFAULTS]:
        return ""
    return f"Judged: {' '.join(ours)}. Not judged: {' '.join(theirs)}, on which the case was found."


def _judge(rule: Rule[Any, Any, Any], target: Target[Any, Any], file: AnyCaseFile) -> tuple[Result, str]:
    try:
        found = engine.judge_case(rule, target, file.case)
    except engine.UnfitAnswerError as error:
        known = file.verdict == Outcome.INCONCLUSIVE.value
        return "STILL FAILS" if known else "CANNOT RUN", failure.unfit_answer(error.__cause__ or error)
    except Exception as error:
        # A case from a file may be one that no strategy makes, and the suite not up to it.
        known = file.verdict == Outcome.INCONCLUSIVE.value
        return "STILL FAILS" if known else "CANNOT RUN", failure.internal_error(error)
    if isinstance(found, Violation):
        left = crash.lines(target.symbolised(found.evidence), all_of_it=True)
        return "STILL FAILS", "\n".join([str(found), *left])
    if isinstance(found, Unsupported):
        return "CANNOT RUN", found.reason
    if not found.count:
        idle = file.verdict == Outcome.INCONCLUSIVE.value
        return "STILL FAILS" if idle else "CANNOT RUN", "the case ran, and let the rule look at nothing"
    return "FIXED", f"the rule holds in this case ({found.count} {found.what} examined)"

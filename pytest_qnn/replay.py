"""Case files: a finding's minimal case on disk, and judging exactly that case again.

A case file is JSON, read by msgspec into typed, plain data. Nothing in it is ever executed, and its
options can select a target and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from pytest_qnn import engine
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.forms import BadOption
from pytest_qnn.options import Options, with_target_of
from pytest_qnn.report import files
from pytest_qnn.rules.rule import Rule, Subject
from pytest_qnn.session import REPLAYED, Session
from pytest_qnn.target import Target
from pytest_qnn.verdict import Unsupported, Verdict, Violation

SCHEMA = 1
FOLDER = ".pytest-qnn"

Result = Literal["STILL FAILS", "FIXED", "CANNOT RUN"]


class _Version(msgspec.Struct):
    schema: int


class CaseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case file, schema 1."""

    schema: Literal[1] = 1
    rule: str
    subject: Subject
    target: str
    """Specification string of the target that broke the rule."""
    options: tuple[str, ...]
    """Command-line options that select that target."""
    seed: int
    """Seed of the run that found the case."""
    case: msgspec.Raw
    """A `MemoryCase` or `DelegateCase`, by the subject."""
    expected: str
    seen: str

    def decoded(self) -> MemoryCase | DelegateCase:
        """The case. Raises msgspec.ValidationError when it is none."""
        if self.subject == "memory":
            return msgspec.json.decode(self.case, type=MemoryCase)
        return msgspec.json.decode(self.case, type=DelegateCase)


class Replayed(msgspec.Struct, frozen=True):
    """What replaying a case gave."""

    rule: str
    target: str
    result: Result
    detail: str


def keep(session: Session, target: Target[Any, Any], verdict: Verdict) -> Verdict:
    """Write the case file of a finding, if there is one, and enter its replay command."""
    if verdict.finding is None:
        return verdict
    options = target.options + _running(session.options)
    content = CaseFile(
        rule=verdict.rule,
        subject=target.subject,
        target=verdict.target,
        options=options,
        seed=session.seed,
        case=msgspec.Raw(verdict.finding.case.encode()),
        expected=verdict.finding.expected,
        seen=verdict.finding.seen,
    )
    folder = _home(session.config) / FOLDER
    path = folder / slug(target.subject, verdict.target, options) / f"{verdict.rule}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(folder / ".gitignore", b"*\n")
        files.replace(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    except OSError as error:
        return msgspec.structs.replace(verdict, replay=f"# the case file could not be written: {error}")
    shown = _relative(path, session.config.invocation_params.dir)
    words = ["pytest", "--pyargs", "pytest_qnn.conformance", "--qnn-replay", shown, *options]
    return msgspec.structs.replace(verdict, replay=shlex.join(words))


def _home(config: pytest.Config) -> Path:
    """The folder of the project's ini file, or else the one that pytest was started in.

    Without an ini file pytest's rootdir is no help: it is the folder of any existing path on the command
    line, and so that of the library in ``--qnn-backend PATH``.
    """
    return config.rootpath if config.inipath else config.invocation_params.dir


def _running(options: Options) -> tuple[str, ...]:
    """How cases were run, where that was asked for: a finding may depend on it."""
    words = []
    if "--qnn-sandbox" in options.given:
        words.append(f"--qnn-sandbox={options.sandbox}")
    if "--qnn-timeout" in options.given:
        words.append(f"--qnn-timeout={options.timeout:g}")
    return tuple(words)


def slug(subject: Subject, spec: str, options: tuple[str, ...]) -> str:
    """A folder name for a target: readable, and different for different options."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(spec).name).strip("-")[:40]
    return f"{subject}-{name}-{hashlib.sha256(repr(options).encode()).hexdigest()[:8]}"


def _relative(path: Path, folder: Path) -> str:
    shorter = os.path.relpath(path, folder)
    return str(path) if shorter.startswith("..") else shorter


def prepare(options: Options, path: Path) -> tuple[Options, CaseFile]:
    """Read the file for ``--qnn-replay``; without target options on the command line, take the file's.

    Raises:
        BadOption: the file is not a case file, or its target's options are unusable here.
    """
    content = read(path)
    if options.target_given:
        return options, content
    try:
        return with_target_of(options, content.options), content
    except BadOption as error:
        raise BadOption(f"--qnn-replay {path}: CANNOT RUN: {error}") from None


def read(path: Path) -> CaseFile:
    """Read and check a case file, its case included.

    Raises:
        BadOption: with one sentence that says what is wrong with it.
    """
    try:
        text = path.read_bytes()
        schema = msgspec.json.decode(text, type=_Version).schema
        if schema != SCHEMA:
            raise BadOption(
                f"--qnn-replay: {path} has schema {schema}, and this pytest-qnn reads schema {SCHEMA}"
            )
        content = msgspec.json.decode(text, type=CaseFile)
        content.decoded()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise BadOption(f"--qnn-replay: {path} is not a case file of pytest-qnn: {error}") from None
    return content


def run(session: Session, item: pytest.Item, rule: Rule[Any, Any, Any]) -> None:
    """Judge the case of the session's case file, record what came of it, and pass or fail the test."""
    content = session.case_file
    if content is None:
        raise ValueError("the session has no case to replay")
    target = session.target(rule.subject)
    if content.subject == rule.subject:
        result, detail = _judge(rule, target, content.decoded())
    else:
        result, detail = (
            "CANNOT RUN",
            f"the file has a {content.subject} case, and {rule.id} needs a {rule.subject} case",
        )
    replayed = Replayed(rule.id, target.spec, result, detail)
    item.stash.setdefault(REPLAYED, []).append(msgspec.to_builtins(replayed))
    if result != "FIXED":
        pytest.fail(f"{rule.id} {result}: {detail}", pytrace=False)


def _judge(rule: Rule[Any, Any, Any], target: Target[Any, Any], case: Any) -> tuple[Result, str]:
    found = engine.judge_case(rule, target, case)
    if isinstance(found, Violation):
        return "STILL FAILS", str(found)
    if isinstance(found, Unsupported):
        return "CANNOT RUN", found.reason
    if not found.count:
        return "CANNOT RUN", "the case ran, and let the rule look at nothing"
    return "FIXED", f"the rule holds in this case ({found.count} {found.what} examined)"

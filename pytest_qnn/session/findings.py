"""What a finding leaves on disk: a folder with everything that is needed to see it again elsewhere."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_qnn.case_file import NAME, SCHEMA, encode, with_case
from pytest_qnn.core.printable import encodable, printable, shell_line
from pytest_qnn.core.rule import Subject
from pytest_qnn.core.target import Target
from pytest_qnn.core.verdict import Finding, Further, Verdict, case_file
from pytest_qnn.options import Options
from pytest_qnn.report import crash, failure, files
from pytest_qnn.session import reproducers
from pytest_qnn.session.folders import Folders, choices
from pytest_qnn.session.shards import block_seed
from pytest_qnn.state import Session

if TYPE_CHECKING:
    from pytest_qnn.case_file import AnyCaseFile

HOME = ".pytest-qnn"
CONTENTS = {
    NAME: "the case and its target, as data",
    "model.tflite": "the graph of the case as a model",
    "inputs.npz": "the contents of its inputs, by tensor name",
    "crash.txt": "what the process left that died: stderr, a native backtrace, its calls",
    "command.txt": "the command that judges the case again, from any working directory",
    **reproducers.CONTENTS,
}
_TOOLS = ("pytest-qnn", "msgspec", "numpy")


def keep(session: Session, target: Target[Any, Any], verdict: Verdict) -> Verdict:
    """Write the folder of a finding, if there is one, and enter its replay command."""
    if verdict.finding is None:
        return verdict
    options = target.options + _running(session.options)
    home = _project(session.config) / HOME
    # What other rules found of this one has folders of its own: they may be written at the same time.
    name = f"{verdict.rule}-by-{verdict.found_by}" if verdict.found_by else verdict.rule
    name += f"-block-{verdict.block}" if verdict.block else ""
    folder = f"{slug(target.subject, verdict.target, options)}/{name}"
    try:
        content = content_of(session, target, verdict, options)
        more = further_contents_of(session, target, verdict, options)
        (home / folder).parent.mkdir(parents=True, exist_ok=True)
        files.replace(home / ".gitignore", b"*\n")
        beside = reproducers.files(target, verdict, content)
        beside |= {case_file(number): encode(each) for number, each in enumerate(more, 2)}
        case, earlier = encode(content), session.config.stash.setdefault(_CASES, {})
        for choice in choices(folder):
            # A rule may be judged twice, by a plugin that runs tests again: the verdict kept names the first.
            if earlier.get(choice, case) != case:
                continue
            command = _command(home / choice, options)
            kept = msgspec.structs.replace(verdict, replay=command, folder=choice)
            made = _files(content, kept, command, beside)
            if _folders(session).put(choice, made):
                earlier[choice] = case
                break
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        return msgspec.structs.replace(
            verdict, replay=f"# the case could not be written: {home / folder}: {why}"
        )
    return msgspec.structs.replace(kept, files=_described(made))


def hold(session: Session, verdict: Verdict) -> None:
    """Let no other run replace what a worker of this run has kept, also after that worker has ended."""
    if verdict.folder:
        _folders(session).hold(verdict.folder)


_FOLDERS: pytest.StashKey[Folders] = pytest.StashKey()
_CASES: pytest.StashKey[dict[str, bytes]] = pytest.StashKey()
"""By folder that this process has written in this run: its case file."""


def _folders(session: Session) -> Folders:
    """What this process keeps other runs from replacing, until its run ends."""
    config = session.config
    if _FOLDERS not in config.stash:
        config.stash[_FOLDERS] = folders = Folders(_project(config) / HOME)
        config.add_cleanup(folders.close)
    return config.stash[_FOLDERS]


def _command(folder: Path, options: tuple[str, ...]) -> str:
    """A command for a shell in any folder, whether or not this environment is activated there.

    With ``=``: behind a space pytest takes the folder for a place of tests too, and obeys an ini file in it.
    """
    return shell_line([_pytest(), f"--qnn-replay={folder}", *options])


def _pytest() -> str:
    """What starts this environment's pytest.

    Not ``python -m pytest``: that looks for modules in the working directory first.
    """
    script = Path(sys.executable).with_name("pytest")
    if shutil.which("pytest") == str(script) or not script.exists():
        return "pytest"
    return str(script)


def content_of(
    session: Session, target: Target[Any, Any], verdict: Verdict, options: tuple[str, ...] = ()
) -> AnyCaseFile:
    """The case file of a finding.

    Raises:
        ValueError: the verdict has none.
    """
    if verdict.finding is None:
        raise ValueError(f"there is no finding on {verdict.rule}")
    return _content(
        session, target, verdict, Further(verdict.outcome, verdict.finding, verdict.flaky), options
    )


def further_contents_of(
    session: Session, target: Target[Any, Any], verdict: Verdict, options: tuple[str, ...] = ()
) -> list[AnyCaseFile]:
    """The case files of what was found beside the finding."""
    return [_content(session, target, verdict, each, options) for each in verdict.further]


def _content(
    session: Session, target: Target[Any, Any], verdict: Verdict, one: Further, options: tuple[str, ...]
) -> AnyCaseFile:
    finding = one.finding
    common: dict[str, Any] = {
        "schema": SCHEMA,
        "rule": verdict.rule,
        "verdict": one.outcome.value,
        "flaky": one.flaky,
        "target": verdict.target,
        "options": options,
        "provenance": target.provenance(),
        "tool": {name: metadata.version(name) for name in _TOOLS},
        "seed": block_seed(session.seed, verdict.block),
        "expected": finding.expected,
        "seen": finding.seen,
        "where": finding.where,
        "picture": finding.picture,
    }
    return with_case(target.subject, finding.case, encodable(common))


def _files(
    content: AnyCaseFile, verdict: Verdict, command: str, beside: dict[str, bytes]
) -> dict[str, bytes]:
    """The folder's files by name; ``beside``: further findings, and what does without this suite."""
    made = {NAME: encode(content), "command.txt": f"{command}\n".encode(), **beside}
    if verdict.finding is not None and verdict.finding.evidence:
        made["crash.txt"] = _crash(verdict.finding).encode()
    if content.subject == "delegate":
        # A run about QNN memory loads nothing of TensorFlow Lite.
        from pytest_qnn.session.models import models

        made |= models(content)
    described = _described(made)
    made["README.txt"] = failure.readme(verdict, content.seed, content.provenance, described).encode()
    return made


def _described(names: Collection[str]) -> dict[str, str]:
    """What each file is, by its name, in the order of `CONTENTS`."""
    found = {name: text for name, text in CONTENTS.items() if name in names}
    graphs = [name for name in names if name[5:-7].isdecimal()]
    further = [name for name in names if name[5:-5].isdecimal()]
    return (
        found
        | {name: f"graph {name[5:-7]} of the case as a model" for name in graphs}
        | dict.fromkeys(further, "a further finding under the rule, as data: replay this file")
    )


def _crash(finding: Finding) -> str:
    lines = [finding.seen, finding.where, *crash.lines(finding.evidence, all_of_it=True), ""]
    return printable("\n".join(lines))


def _project(config: pytest.Config) -> Path:
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
    return (*words, *(f"--qnn-env={name}" for name in options.env))


def slug(subject: Subject, spec: str, options: tuple[str, ...]) -> str:
    """A folder name for a target: readable, and different for different options."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(spec).name).strip("-")[:40]
    return f"{subject}-{name}-{hashlib.sha256(repr(options).encode()).hexdigest()[:8]}"

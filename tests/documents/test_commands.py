"""Every command of the documents is run, here or by a test that is named, or has a reason not to be.

A page of `PAGES` is run command by command, in its order, in a folder that has what the page speaks of. Pages
of `ELSEWHERE` have a test of their own. A command of `NOT_RUN` cannot be run in a test. All commands, also
those of the documents for contributors, are read by the argument parser of their own program.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT, run

from pytest_qnn.commands import certify
from tools import check_docs

ON = "exec:python -m pytest_qnn.isolation.remote"
RULES = "--qnn-rule=REG-08,ABI-01"
"""Of each half one rule that takes a second."""
LIBRARIES = {
    "/opt/qairt/lib/.../libQnnHtp.so": "build/libexample.so",
    "/opt/qairt/lib/x86_64-linux-clang/libQnnHtp.so": "$PWD/build/libexample.so",
    "/opt/qnn/libQnnHtp.so": "build/libexample.so",
    ".../libQnnHtp.so": "build/libexample.so",
    "/usr/lib/libQnnHtp.so": "$PWD/build/libexample.so",
    "/vendor/lib64/libcdsprpc.so": "emulated",
    "--qnn-rpcmem=libcdsprpc.so": "--qnn-rpcmem=emulated",
    "build/libmine.so --tflite-delegate-option=threads=2": (
        "qnn-reference --tflite-delegate-option=backend=reference"
    ),
    "build/libmine.so": "build/libarithmetic.so",
    "build/libdelegate.so": "build/libarithmetic.so",
    "--tflite-delegate=a.so --tflite-delegate=b.so": "--tflite-delegate=reference --tflite-delegate=xnnpack",
    "ssh:board": f"'{ON}'",
    "exec:python3 ": "exec:python ",
    "=old.so": "=reference",
    "=new.so": "=reference",
}
"""What a page names, and what a test has in its place."""
PAGES: Mapping[str, Mapping[str, str]] = {
    "README.md": {"=FOLDER --tflite-delegate=...": "=finding --qnn-backend=mutant:reg-keeps-first"},
    "docs/index.md": {},
    "docs/findings.md": {"$LIB": "build/libexample.so"},
    "docs/how-to/certification.md": {"certify --to": f"certify {RULES} --qnn-profile=quick --to"},
    "docs/how-to/compare.md": {"OLD.json": "old.json", "NEW.json": "report.json"},
    "docs/how-to/corpus.md": {"corpus FOLDER": "corpus tests/cases"},
    "docs/how-to/hosts.md": {"board.json": "old.json"},
    "docs/how-to/known-failures.md": {},
    "docs/how-to/matrix.md": {},
    "docs/how-to/reference-library.md": {},
    "docs/how-to/remote.md": {},
    "docs/how-to/replay.md": {".pytest-qnn/memory-libexample-so-8783a9b7/REG-08": "finding"},
    "docs/how-to/reproduce.md": {"native FOLDER": "native emulated"},
    "docs/how-to/shards.md": {},
    "docs/rules/README.md": {},
    "examples/delegate_repo/README.md": {},
    "examples/qnn_backend/README.md": {},
}
"""Pages that are run here, with what else a test has in place of their words."""
FOLDERS = {
    "examples/delegate_repo/README.md": "delegate_repo",
    "examples/qnn_backend/README.md": "qnn_backend",
}
"""Where a page's commands are typed, below that folder."""
FAST = ("docs/index.md", "docs/rules/README.md")
"""Pages whose commands need nothing and take a second."""
ELSEWHERE = {
    "docs/how-to/ci.md": "tests/campaign/test_ci.py",
    "docs/how-to/debugging.md": "tests/documents/test_tutorials.py",
    "docs/how-to/fixtures.md": "tests/plugin/test_fixtures.py",
    "docs/tutorials/delegate.md": "tests/documents/test_tutorials.py",
    "docs/tutorials/qnn-backend.md": "tests/documents/test_tutorials.py",
}
"""Pages whose own test runs them."""
NOT_RUN = {
    "reproduce.py": "a finding's own program; python -m benchmarks.reproducers runs those of every mutant",
    "docs/findings/": "a program of the repository; tests/suite/test_findings.py runs them",
    "benchmarks.reproducers": "measures the programs of every mutant: an hour; its tests run some",
    "test_mine.py": "a test of the reader's own; tests/plugin/test_fixtures.py has some",
    "pip install": "installs; .ci/run installs the package and its extras",
    "pip check": "looks at what a reader has installed",
    "pip download": "needs two releases from a package index",
    "mkdocs serve": "serves until it is stopped; .ci/run builds the same site",
    "dask scheduler": "serves until it is stopped; tests/campaign/test_campaign.py starts one",
    "dask worker": "serves until it is stopped; tests/campaign/test_campaign.py starts some",
    "-m venv": ".ci/run carries out the README's two commands in clones",
    ".venv/bin/pytest": ".ci/run carries out the README's two commands in clones",
    "direct:/opt": "needs a vendor's delegate; tests/bridge/test_own_interface.py has one that is made there",
    "zipfile": "needs two releases from a package index",
    "onnxruntime_qnn/libQnnHtp.so": "needs two releases from a package index, and 20 minutes",
    "--tflite-runtime=tflite_runtime": "the whole suite twice; tests/plugin/test_compare.py has small ones",
    "libQnnTFLiteDelegate.so": "needs a vendor's delegate; tests/bridge/test_own_interface.py has one",
    "--qnn-debug=TOOL": "the form of a command; tests/plugin/test_debug.py has the tools",
    "qnn domain": "needs a report of DOM-01; tests/tflite/domain/test_rule.py has a small one",
    "qnn campaign": "starts Dask's workers; tests/campaign/test_campaign.py does so",
    "tools.remote": "contributors' comparison of two machines; tests/isolation/test_remote.py has small ones",
    "tools.aarch64": "makes an arm64 Debian with debootstrap, as root: an hour",
    "tools.sshd": "serves until it is stopped, as root; tests/isolation/test_remote.py starts one",
    "--fixtures": "tests/plugin/test_fixtures.py",
    "pytest_qnn.rules": "writes a page of the repository; tests/suite/test_catalogue.py holds it",
}
"""What a command of a user's page has in it, and why it is not run here."""
EXAMPLES = {"PART": "models", "N": "2"}
"""What the form of a command leaves open, and something that may be there."""
USERS = (
    "README.md",
    "docs/index.md",
    "docs/findings.md",
    "docs/known-bugs.md",
    "docs/how-to/",
    "docs/tutorials/",
    "docs/reference/",
    "docs/rules/README.md",
    "examples/",
)
CONTRIBUTORS = ("docs/how-to/testing.md", "docs/how-to/release.md")
"""Pages for who changes the project, among those for its users."""
FORMS = re.compile(
    r"python3?( -m)?( [\w.]+( (campaign|certify|compare|corpus|expect|merge|verify|COMMAND))?)?$"
)
"""Commands that are only named, without what they need."""
OTHERS = ("run", "sh", "pip", "mkdocs", "dask")
WITHOUT_PARSER = {
    ("-m", "venv"),
    ("-m", "zipfile"),
    ("-m", "pytest_qnn.rules"),
    ("-m", "pytest_qnn.case_file"),
    ("-m", "tools.check_docs"),
    ("-m", "tools.reference"),
    ("-m", "tools.explain.pages"),
    ("-m", "tools.explain.facts"),
    ("-m", "tools.explain.libraries"),
    ("-m", "tests.browser.make_reports"),
    ("-m", "pytest_qnn.isolation.remote"),
    ("-m", "pytest_qnn.session.certification.release"),
}
"""Programs that are not this project's, or take files or nothing."""


def commands(name: str) -> list[str]:
    """The commands of a document, each once; a row of the README's table with its first words."""
    text = (
        (ROOT / name)
        .read_text(encoding="utf-8")
        .replace("`... --", "`pytest --pyargs pytest_qnn.conformance --")
    )
    found = (" ".join(command.split()) for command in check_docs.commands(text))
    forms = (FORMS.fullmatch, OTHERS.__contains__)
    return [
        each
        for each in dict.fromkeys(found)
        if not any(is_form(each.partition(" >")[0].strip()) for is_form in forms)
    ]


def reason(command: str) -> str:
    """Why a command is not run here; empty: it is."""
    return next((why for words, why in NOT_RUN.items() if words in command), "")


def documents() -> Iterator[str]:
    """But the pages of rules, whose commands are those of findings (tests/suite/explain)."""
    for path in check_docs.documents():
        name = path.relative_to(ROOT).as_posix()
        if not re.match(r"docs/rules/\w+/", name):
            yield name


def test_each_command_is_run_or_has_a_reason() -> None:
    for name in documents():
        if name.startswith(USERS) and name not in {*PAGES, *ELSEWHERE, *CONTRIBUTORS}:
            assert [each for each in commands(name) if not reason(each)] == [], name


def test_each_reason_and_each_page_is_needed() -> None:
    every = [command for name in documents() for command in commands(name)]
    assert [words for words in NOT_RUN if not any(words in each for each in every)] == []
    assert [name for name in PAGES if not any(not reason(each) for each in commands(name))] == []
    for page, test in ELSEWHERE.items():
        text = (ROOT / test).read_text()
        assert Path(page).name in text or Path(page).parent.name in text, page


class _ParsedError(Exception):
    """The arguments were read; nothing else of the program is to run."""


def test_each_command_is_one_that_its_program_takes(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = argparse.ArgumentParser.parse_args

    def parse_args(parser: Any, *arguments: Any) -> Any:
        given = read(parser, *arguments)
        if parser.prog == "python -m pytest_qnn":
            return given
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.syspath_prepend(str(ROOT))
    named = [name for name in documents() if name != "CHANGELOG.md"]  # which says what once was
    every = dict.fromkeys(each for name in named for each in commands(name))
    assert [told for each in every if (told := _refusal(each, pytestconfig, monkeypatch))] == []


def _refusal(command: str, config: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the program says of the command; empty: it takes it."""
    try:
        _parse(command, config, monkeypatch)
    except (SystemExit, pytest.UsageError) as error:
        return f"{command}: {error}"
    return ""


def _file_of(module: str) -> str:
    """What ``python -m`` runs. Not runpy.run_module: pytest's loader, which rewrites, has no code to give."""
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{module}.__main__")
    assert spec is not None, module
    assert spec.origin is not None, module
    return spec.origin


def _parse(command: str, config: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = re.sub(r"\$\{\{.*?\}\}", "x", command)
    words = shlex.split(re.sub(r"(?<= )\[|\](?= |$)| >.*| \.\.\.$", " ", plain), comments=True)
    words = [EXAMPLES.get(word, word) for word in words]
    while re.match(r"\w+=", words[0]):
        words.pop(0)
    program, *arguments = words
    if program.endswith("pytest"):
        unknown = config._parser.parse_known_and_unknown_args(arguments, argparse.Namespace())[1]
        if unknown:
            raise pytest.UsageError(f"pytest has no {unknown}")
    elif Path(program).name in OTHERS or arguments[0] != "-m" or tuple(arguments[:2]) in WITHOUT_PARSER:
        pass
    elif arguments[1:3] == ["pytest_qnn", "certify"]:
        certify.parse(arguments[3:])
    else:
        monkeypatch.setattr(sys, "argv", arguments[1:])
        with warnings.catch_warnings(action="ignore"), pytest.raises(_ParsedError):  # it is imported already
            runpy.run_path(_file_of(arguments[1]), run_name="__main__")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both examples, built, and a finding, two reports and files that pages speak of."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "build").mkdir()
    for name, library in (("delegate_repo", "libarithmetic.so"), ("qnn_backend", "libexample.so")):
        example = folder / name
        shutil.copytree(ROOT / "examples" / name, example, ignore=shutil.ignore_patterns("build", ".*"))
        subprocess.run(["sh", "build.sh"], cwd=example, check=True, capture_output=True, timeout=120)
        shutil.copy(example / "build" / library, folder / "build")
    (folder / "tests").mkdir()
    (folder / "matrix.toml").write_text('[targets.a]\noptions = ["--qnn-backend=reference"]\n')
    (folder / "known.toml").write_text('[claims.memory]\nareas = ["REG"]\n')
    (folder / "pytest.ini").write_text("[pytest]\n")
    options = "--qnn-backend=mutant:reg-keeps-first --qnn-rule=REG-08 --qnn-report=report.json"
    options += " --qnn-corpus=tests/cases"
    done = run(f"pytest --pyargs pytest_qnn.conformance {options}", folder)
    assert done.status == 1, done.output
    shutil.copy(folder / "report.json", folder / "old.json")
    (finding,) = (folder / ".pytest-qnn").glob("*/REG-08")
    finding.rename(folder / "finding")
    return folder


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.full) for name in PAGES]
)
def test_the_commands_of_a_page_run(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = tmp_path if name in FAST else request.getfixturevalue("prepared")
    folder /= FOLDERS.get(name, "")
    for command in commands(name):
        if reason(command):
            continue
        given = command.removesuffix(" ...")
        for words, instead in {**PAGES[name], **LIBRARIES}.items():
            given = given.replace(words, instead)
        done = run(given, folder, PYTEST_ADDOPTS=RULES)
        assert done.status in (0, 1, 3), f"{given}\n{done.output}"

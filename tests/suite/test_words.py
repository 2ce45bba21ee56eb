"""Names and documents use the standard terms: the words that they replaced do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "pytest_qnn/**/*.py",
    "benchmarks/**/*.py",
    "conformance/**/*.py",
    "fixtures/**/*.py",
    "tools/**/*.py",
)
"""Where names are checked."""
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")

WORDS = {
    "alien": "fds_to_close",
    "aliens": "fds_to_close",
    "bell": "start_fd",
    "dear": "expensive",
    "deed": "call",
    "deeds": "calls",
    "ear": "read_fd",
    "farewell": "deregister event",
    "gauge": "profiler",
    "hasty": "without shrinking of hangs",
    "hearing": "stderr capture",
    "hollow": "unallocated",
    "kin": "processes",
    "lender": "lifetime copies",
    "lending": "lifetime copies",
    "looking": "context hooks",
    "mouth": "write_fd",
    "nought": "zero",
    "offspring": "child process",
    "prefault": "warm start",
    "room": "package, working directory or space",
    "rooms": "packages",
    "settle": "warm start, or wait for",
    "settled": "specified",
    "spell": "repetition",
    "spells": "repetitions",
    "starving": "fault injection",
    "stumble": "internal error",
    "stumbled": "internal error",
    "trap": "SIGSEGV recorder",
    "twin": "baseline run",
    "twins": "baseline runs",
    "vague": "unspecified",
    "warming": "warm start",
    "witnessed": "survived",
}
"""Old word -> standard term, in names and documents.

Not here, because they have a plain meaning as well: ``usual`` (default values), ``unchanged``, ``watch`` and
``look`` (fields of cases, in files that are there already).
"""
PHRASES = {
    "gets on with": "works with",
    "hangs on": "depends on",
    "is told": "is reported",
    "are told": "are reported",
    "not told": "not reported",
    "lets it be": "does not access it",
    "stands for nothing": "invalid handle",
    "stands for": "is",
}
"""The same in documents, where a word alone is harmless."""
QUOTING = ROOT / "docs" / "rules"
"""Pages that quote verdicts, whose words are the rules' own."""
QUOTED = re.compile(r"^(?:    (?:expected|seen) |\* (?:lib|XNNPACK)).*", re.MULTILINE)
"""Lines that do."""
ALLOWED = ("nought-partitions",)
"""Ids of mutants, which are stable."""


def parts(name: str) -> list[str]:
    """The words of a name in snake_case or CamelCase, in lower case."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def files(patterns: tuple[str, ...]) -> list[Path]:
    """The files that match; every pattern must match one."""
    found = [sorted(ROOT.glob(pattern)) for pattern in patterns]
    assert all(found), patterns
    return [path for group in found for path in group]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and names of functions, classes, parameters, and fields of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        if isinstance(node, ast.ClassDef):
            fields = (line for line in node.body if isinstance(line, ast.AnnAssign))
            yield from ((line.lineno, line.target.id) for line in fields if isinstance(line.target, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def wrong_names(path: Path) -> list[str]:
    """A line for each name in a file, its own included, that has an old word in it."""
    here = path.relative_to(ROOT)
    found = [(1, path.stem), *names(ast.parse(path.read_text(encoding="utf-8")))]
    return [
        f"{here}:{line}: `{name}`: write `{WORDS[part]}`"
        for line, name in sorted(found)
        for part in parts(name)
        if part in WORDS
    ]


def wrong_words(text: str, where: str) -> list[str]:
    """A line for each old word or phrase in a document."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for allowed in ALLOWED:
            line = line.replace(allowed, "")  # noqa: PLW2901 - what is left of it
        for word, term in (WORDS | PHRASES).items():
            if re.search(rf"\b{word}\b", line, re.IGNORECASE):
                found.append(f"{where}:{number}: `{word}`: write `{term}`")
    return found


def test_names_are_standard_terms() -> None:
    found = [line for path in files(FOLDERS) for line in wrong_names(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", files(DOCUMENTS), ids=lambda path: path.name)
def test_documents_are_in_standard_terms(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if QUOTING in path.parents:
        text = QUOTED.sub("", text)
    found = wrong_words(text, str(path.relative_to(ROOT)))
    assert not found, "\n".join(found)


def test_words_are_whole_parts_of_names() -> None:
    assert parts("_BadRoom2Ear") == ["bad", "room", "ear"]
    assert (
        not {part for name in ("fear", "bedroom", "spelling", "HTTPServer") for part in parts(name)}
        & WORDS.keys()
    )
    assert wrong_words("A bedroom for the spelling of fear", "x") == []
    assert wrong_words("a\nHangs on a Twin", "x") == [
        "x:2: `twin`: write `baseline run`",
        "x:2: `hangs on`: write `depends on`",
    ]

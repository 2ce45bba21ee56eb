"""Check what documents lead to: ``python -m tools.check_docs``.

Every relative link leads to a file, and to a heading where it names one; every command names modules, options
and paths that exist; docs/reference/options.md has the plugin's options. What is wrong is printed, and the
exit status is 1. That generated documents are what their commands print is tested
(``tests/suite/test_catalogue.py``, ``tests/suite/test_kills.py``, ``tests/plugin/replay/test_replay.py``).
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_qnn.options import DECLARED

ROOT = Path(__file__).parents[1]
WRITTEN = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
DOCUMENTS = (*WRITTEN, "docs/**/*.md", "examples/**/*.md")
OPTIONS = ROOT / "docs" / "reference" / "options.md"
OUR_PACKAGES = ("pytest_qnn", "benchmarks", "tools")
FOLDERS = (*OUR_PACKAGES, "conformance", "docs", "examples", "fixtures", "tests")
"""A word of a command that begins with one of these names a file of this repository."""
_IN_FOLDERS = tuple(f"{folder}/" for folder in FOLDERS)

_FENCE = re.compile(r"^ *```.*?^ *```\s*$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"\[[^\]\[]*\]\(([^()]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
_PROGRAM = re.compile(r"(?:\w+=\S+ +)*(?:\S*/)?(python3?|pytest|\.ci/run|sh|pip|mkdocs|dask)(?= |$)")
_OPTION = re.compile(r"^--[a-z][\w-]*")


def documents() -> list[Path]:
    """The documents that are written by hand or printed by a command."""
    return sorted({path for pattern in DOCUMENTS for path in ROOT.glob(pattern)})


def broken_links(path: Path) -> Iterator[str]:
    """Relative links that lead nowhere."""
    prose = _INLINE.sub("", _FENCE.sub("", path.read_text()))
    for target in _LINK.findall(prose):
        if re.match(r"\w+:", target):
            continue
        if re.search(r"\s", target):
            yield f"{' '.join(target.split())}: the address of a link is one word"
            continue
        name, _, anchor = target.partition("#")
        to = path.parent / name if name else path
        if not to.exists():
            yield f"{target}: there is no such file"
        elif anchor and (to.suffix != ".md" or anchor not in anchors(to)):
            yield f"{target}: there is no such heading"


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors that GitHub gives the headings of a document, and those that it names itself."""
    text = _FENCE.sub("", path.read_text())
    found: list[str] = []
    for heading in _HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        times = found.count(slug)
        found.append(f"{slug}-{times}" if times else slug)
    return frozenset([*found, *_ANCHOR.findall(text)])


def commands(text: str) -> Iterator[str]:
    """The shell commands of a document: in blocks, and in running text between backquotes."""
    blocks = [fence.partition("\n")[2].rpartition("\n")[0] for fence in _FENCE.findall(text)]
    rest = _FENCE.sub("", text)
    indented = re.findall(r"^ {4,}\S.*$", rest, re.MULTILINE)
    inline = [" ".join(code.split()) for _, code in _INLINE.findall(rest)]
    lines = "\n".join([*blocks, *indented]).replace("\\\n", " ").splitlines()
    for line in (*lines, *inline):
        for part in re.split(r"&&|;|\|", line):
            command = part.strip().removeprefix("$ ")
            if _PROGRAM.match(command):
                yield command


def faults(command: str) -> Iterator[str]:
    """What the command names and what does not exist: modules, options, and paths of this repository."""
    try:
        words = shlex.split(re.sub(r"[\[\]]", " ", command), comments=True)
    except ValueError:  # a quotation mark of the text around it
        return
    words = list(itertools.dropwhile(lambda word: re.match(r"\w+=", word), words))
    for module in _modules(words):
        if not _is_there(module):
            yield f"{command}: there is no module {module}"
            return
    known = _options(words)
    for word in words:
        option = _OPTION.match(word)
        if option and known and option[0] not in known:
            yield f"{command}: there is no option {option[0]}"
        if word.startswith(_IN_FOLDERS) and not (ROOT / word.partition("::")[0]).exists():
            yield f"{command}: there is no {word}"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package
        return False


def _modules(words: list[str]) -> list[str]:
    """The modules that a command runs, or has pytest collect."""
    after = ["--pyargs", *(["-m"] if "python" in words[0] else [])]
    return [module for option, module in itertools.pairwise(words) if option in after]


def _options(words: list[str]) -> frozenset[str]:
    """The options that the program of a command takes; empty where it is none of this project."""
    if words[0].endswith("pytest"):
        return pytest_options()
    (module, *_) = [*_modules(words), ""]
    if module == "pytest_qnn":  # whose commands may hand options to pytest
        return options_of("pytest_qnn.commands") | pytest_options()
    return pytest_options() if module == "pytest" else options_of(module)


@functools.cache
def pytest_options() -> frozenset[str]:
    """The options of pytest with this plugin, pytest-xdist and the tests' own ``--slice``."""
    command = [sys.executable, "-m", "pytest", "--help"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(re.findall(r"(?<![\w-])--[a-z][\w-]*", printed))


@functools.cache
def options_of(module: str) -> frozenset[str]:
    """The options that the sources of one of this project's modules name; empty for other modules."""
    if module.partition(".")[0] not in OUR_PACKAGES:
        return frozenset()
    path = ROOT.joinpath(*module.split("."))
    sources = path.glob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    texts = [source.read_text() for source in sources]
    return frozenset(option for text in texts for option in re.findall(r"\"(--[a-z][\w-]*)\"", text))


def wrong_options(text: str) -> Iterator[str]:
    """Options that the page of options lacks, or has though the plugin has them not."""
    page = set(re.findall(r"^## (--[\w-]+)$", text, re.MULTILINE))
    for flag in sorted(page ^ {declared.flag for declared in DECLARED}):
        yield f"{flag}: on the page of options, or of the plugin, and not both"


def found() -> Iterator[str]:
    """Everything that is wrong, each with its document."""
    for path in documents():
        text = path.read_text()
        wrong = list(broken_links(path))
        for command in commands(text):
            wrong += faults(command)
        if path == OPTIONS:
            wrong += wrong_options(text)
        yield from (f"{path.relative_to(ROOT)}: {one}" for one in dict.fromkeys(wrong))


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    wrong = list(found())
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(documents())} documents, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

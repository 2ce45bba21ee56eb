"""What a page of the documents has the reader type, and what it says comes of it."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INSTALLS = re.compile(r"^(?:python3? -m venv|\S*pip install|export PATH=).*$", re.MULTILINE)
"""What a reader installs with, and has installed where a test runs."""
_ROW = re.compile(r"(?:[A-Z]+|total)(?: (?:\d+|\.)){7,8}")
"""An area in the table of verdicts."""
_COUNTED = "passed|skipped|deselected|xfailed|failed|pass|not judged|other rule|cause|findings|rules"
_LOST = r"bytes in|blocks|byte\(s\)|object\(s\)"
_FIGURE = re.compile(rf"(\b[A-Z]{{2,}}-\d+\b|\.c:\d+|\b[\d,]+(?= (?:{_COUNTED}|{_LOST})))|\d+")
"""A number; as they are stand those of rules, lines of a source, counted verdicts, and lost memory."""


class Typed(NamedTuple):
    """A block of commands."""

    commands: str
    shown: tuple[str, ...]
    """The blocks up to the next commands: what the page shows of the output, each shortened."""


class Done(NamedTuple):
    """What a block came to."""

    status: int
    output: str
    folder: Path
    """The working directory after it."""


def typed(page: Path) -> Iterator[Typed]:
    """The shell blocks of a page, in order, each with what the page shows of its output."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    for place, (language, text) in enumerate(blocks):
        if language == "sh":
            after = itertools.takewhile(lambda block: not block[0], blocks[place + 1 :])
            yield Typed(_INSTALLS.sub("", text), tuple(shown for _, shown in after))


def before_all(page: Path) -> list[str]:
    """The blocks of output that stand before the first commands of a page, of what these come to."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [shown for _, shown in itertools.takewhile(lambda block: block[0] != "sh", blocks)]


def run(commands: str, folder: Path, timeout: float = 600, **environment: str) -> Done:
    """Carry out a block with bash, as a reader who has installed the package.

    The status is that of its last command.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = folder / ".folder"
    done = subprocess.run(
        ["bash", "-c", f"{commands}\nstatus=$?; pwd > '{kept}'; exit $status"],
        cwd=folder,
        env=variables | {"PATH": path} | environment,
        stdin=subprocess.DEVNULL,  # a debugger would wait for what is typed
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    after = Path(kept.read_text().strip())
    kept.unlink()
    return Done(done.returncode, done.stdout, after)


def missing(shown: str, output: str) -> str | None:
    """The first line of a page that does not come in the output, in the page's order; None: there is none.

    ``...`` in a line is any text, and a line of it alone any lines. Spaces are any spaces, and numbers any
    numbers, since they are those of one machine; but the table of verdicts, other counts of them, ids of
    rules, lines of a source and what a tool says of lost memory are the same on each.
    """
    seen = iter([_plain(line) for line in output.splitlines()])
    for line in shown.splitlines():
        pattern = ".*".join(re.escape(part) for part in _plain(line).split("..."))
        if line.strip(" .") and not any(re.fullmatch(pattern, each) for each in seen):
            return line
    return None


def _plain(line: str) -> str:
    words = " ".join(line.split())
    return words if _ROW.fullmatch(words) else _FIGURE.sub(lambda found: found[1] or "#", words)

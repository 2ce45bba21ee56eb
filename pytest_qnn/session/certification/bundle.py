"""The folder of a certification: its files, and their sums.

=================  ============================================================
``statement.json``  what is stated
``report.json``     the report of the run
``answers/*.xz``    of each rule what was asked and answered, and of each half
                    its target's opening
``run.log``         what pytest printed
``.pytest-qnn/``    the findings, each in a folder
``SHA256SUMS``      the sums of all others, as sha256sum writes them
=================  ============================================================
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pytest_qnn.core import regular_file
from pytest_qnn.core.printable import one_line
from pytest_qnn.isolation.stored.log import CASES, BadLog, Log, unpacked
from pytest_qnn.isolation.stored.record import file_name

T = TypeVar("T", bound=msgspec.Struct)
STATEMENT, REPORT, RUN_LOG, SUMS = "statement.json", "report.json", "run.log", "SHA256SUMS"
ANSWERS = "answers"
LARGEST = 1 << 28
"""Bytes of one file."""
_MOST = 100_000
"""Files."""
_LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\\]+)")


class BadBundle(ValueError):  # noqa: N818 - it is the user's folder that is bad
    """A folder is no whole bundle; the text is one sentence."""


def seal(folder: Path) -> None:
    """Write the sums of all files that are there. Raises OSError and BadBundle."""
    lines = [f"{_sum(folder / name)}  {name}\n" for name in sorted(_names(folder)) if name != SUMS]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path) -> None:
    """Check that the files are those of `seal`, no more and no fewer.

    Raises:
        BadBundle: they are not, or one of them cannot be read.
    """
    listed = {}
    for line in _text(folder, SUMS).splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise BadBundle(f"{SUMS}: {one_line(line, 120)!r} is no line of it")
        listed[match[2]] = match[1]
    there = _names(folder) - {SUMS}
    for name in sorted(there ^ set(listed)):
        said = "is not there" if name in listed else f"is not in {SUMS}"
        raise BadBundle(f"{one_line(name, 200)} {said}")
    for name, wanted in sorted(listed.items()):
        if _sum(folder / name) != wanted:
            raise BadBundle(f"{one_line(name, 200)} has another sum than {SUMS} says")


def read(folder: Path, name: str) -> bytes:
    """The content of a file. Raises BadBundle."""
    try:
        content = regular_file.read(folder / name, LARGEST)
    except (OSError, ValueError) as error:
        raise BadBundle(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > LARGEST:
        raise BadBundle(f"{name} has more than {LARGEST} bytes")
    return content


def typed(folder: Path, name: str, kind: type[T]) -> T:
    """The content of a JSON file as ``kind``. Raises BadBundle."""
    try:
        return msgspec.json.decode(read(folder, name), type=kind)
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
        raise BadBundle(one_line(f"{name} is not what it should be: {error}", 300)) from None


def plain(folder: Path, name: str) -> Any:
    """All of a JSON file, as the standard library reads it. Raises BadBundle."""
    try:
        return json.loads(read(folder, name))
    except (ValueError, RecursionError) as error:  # a ValueError is a number of 5,000 digits, too
        raise BadBundle(one_line(f"{name} is not what it should be: {error}", 300)) from None


def log(folder: Path, name: str) -> Log:
    """The answers of a rule, or of a target's opening. Raises BadBundle."""
    path = f"{ANSWERS}/{name}"
    try:
        found = unpacked(read(folder, path))
    except BadLog as error:
        raise BadBundle(one_line(f"{path} {error}", 300)) from None
    if file_name(found) != name:
        raise BadBundle(f"{path} is the log of {one_line(file_name(found), 40)}")
    return found


def logs(folder: Path) -> list[str]:
    """Names of the files of all logs, in the order of the run; those of openings behind the others."""
    return sorted(path.name for path in (folder / ANSWERS).glob("*"))


def has_rules(folder: Path) -> bool:
    """There is the log of a rule, which was judged; those of openings have no number."""
    return any(name[:1].isdigit() for name in logs(folder))


def answers(one: Log) -> int:
    """Cases that a log has the answers of."""
    return sum(step.way in CASES for step in one.steps)


def _names(folder: Path) -> set[str]:
    """Of all files, links among them, relative to the folder."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            found.add(path.relative_to(folder).as_posix())
        if len(found) > _MOST:
            raise BadBundle(f"there are more than {_MOST} files")
    return found


def _sum(path: Path) -> str:
    return hashlib.sha256(read(path.parent, path.name)).hexdigest()


def _text(folder: Path, name: str) -> str:
    try:
        return read(folder, name).decode()
    except UnicodeDecodeError:
        raise BadBundle(f"{name} is not UTF-8") from None

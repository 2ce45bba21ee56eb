"""Write files and folders so that a reader never sees half of one.

What is new is written beside its place, under a name that nobody can foresee, and made there in a way that
fails where something has that name: no link is followed (mode "x" is O_EXCL; mkdir does the same). The
permissions are those of any new file, which the functions of tempfile do not give.
"""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_qnn.core.printable import encodable


def replace(path: Path, content: bytes) -> None:
    """Put ``content`` in place of whatever ``path`` holds, at once. Raises OSError."""
    temporary = _unused(path)
    file = temporary.open("xb")
    try:
        with file:
            file.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_folder(path: Path, contents: Mapping[str, bytes]) -> None:
    """Put a folder in place of whatever ``path`` is, so that files of the two never mix.

    There is none for a moment, between the old and the new. Of several processes that do this, the last one's
    stays.

    Args:
        path: in a folder that is there.
        contents: bytes of each file by its name.

    Raises:
        OSError: it cannot be written; mostly what was there stays.
    """
    fresh = _unused(path)
    fresh.mkdir()
    try:
        for name, content in contents.items():
            with (fresh / name).open("xb") as file:
                file.write(content)
        _move(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


_MOVES = 1000
"""Times that other processes may each be the faster one; they are done after one success each."""
_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def _move(fresh: Path, path: Path) -> None:
    """Rename a folder, with whatever is in the way renamed first: a folder that has files is not replaced."""
    for moves_left in reversed(range(_MOVES)):
        old = _unused(path)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.rename(old)
            fresh.rename(path)
        except OSError as error:
            if error.errno not in _IN_THE_WAY or not moves_left:
                raise
        else:
            return
        finally:
            _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _unused(path: Path) -> Path:
    """A name beside ``path`` that nothing has, and that nobody can foresee."""
    return path.with_name(f".pytest-qnn.{secrets.token_hex(8)}")


def write_all(
    paths: Sequence[Path], document: dict[str, Any], comparison: Mapping[str, Any] | None = None
) -> list[str]:
    """Write the report to each path, and return a sentence for each that could not be written.

    Args:
        paths: of files whose endings name the formats.
        document: the report.
        comparison: what differs from an earlier one, for pages, as JSON data.
    """
    return [problem for path in paths if (problem := _write(path, document, comparison))]


def _write(path: Path, document: dict[str, Any], comparison: Mapping[str, Any] | None) -> str:
    try:
        replace(path, _content(path, document, comparison))
    except OSError as error:
        return f"--qnn-report: {path} could not be written: {error}"
    return ""


def _content(path: Path, document: dict[str, Any], comparison: Mapping[str, Any] | None) -> bytes:
    """The report in the format that the path's ending names, in UTF-8."""
    if path.suffix == ".html":
        # Templates are loaded where a page is written, and nowhere else.
        from pytest_qnn.report.html import render

        return render.page(document, comparison).encode()
    return (json.dumps(encodable(document), indent=1) + "\n").encode()

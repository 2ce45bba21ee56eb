"""Write files so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_qnn.report import html


def replace(path: Path, content: bytes) -> None:
    """Put ``content`` in place of whatever ``path`` holds, at once. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_all(paths: Sequence[Path], document: dict[str, Any]) -> list[str]:
    """Write the report to each path, and return a sentence for each that could not be written."""
    return [problem for path in paths if (problem := _write(path, document))]


def _write(path: Path, document: dict[str, Any]) -> str:
    try:
        replace(path, _content(path, document))
    except OSError as error:
        return f"--qnn-report: {path} could not be written: {error}"
    return ""


def _content(path: Path, document: dict[str, Any]) -> bytes:
    """The report in the format that the path's ending names."""
    if path.suffix == ".html":
        return html.page(document).encode()
    return (json.dumps(document, indent=1) + "\n").encode()

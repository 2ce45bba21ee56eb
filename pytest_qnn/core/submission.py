"""What names a submission in reports: vendor, product, SDK and board, as free text or in a TOML file.

Importing this module loads nothing but the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pytest_qnn.core.forms import BadOption, utf8

KEYS = ("vendor", "product", "sdk", "board")
LONGEST = 200
"""Characters of one text."""
LARGEST = 1 << 16
"""Bytes of a file, which is read at once."""


def text(where: str, value: str) -> str:
    """A text that is one line of at most `LONGEST` characters.

    Args:
        where: what the sentence begins with: the option, or the file and its key.
        value: the text.

    Raises:
        BadOption: it is empty, too long, of several lines or not UTF-8.
    """
    utf8(where, value, "what names a submission")
    if not value.strip():
        raise BadOption(f"{where}: the text is empty")
    if len(value) > LONGEST:
        raise BadOption(f"{where}: the text has {len(value)} characters, and at most {LONGEST} are shown")
    if value.splitlines() != [value]:
        raise BadOption(f"{where}: {value!r} is not one line")
    return value


def read(flag: str, path: str) -> dict[str, str]:
    """The texts of a TOML file, by key.

    Raises:
        BadOption: it cannot be read, is no TOML, or has something in it that is not one of `KEYS` and a text.
    """
    found = _parsed(flag, path)
    for key, value in found.items():
        if key not in KEYS:
            raise BadOption(f"{flag}: {path!r}: {key!r} is not one of {', '.join(KEYS)}")
        if not isinstance(value, str):
            raise BadOption(f"{flag}: {path!r}: {key} is not a text")
    return {key: text(f"{flag}: {path!r}: {key}", value) for key, value in found.items()}


def _parsed(flag: str, path: str) -> dict[str, Any]:
    import tomlkit  # noqa: PLC0415 - most runs read no file

    content = _content(flag, path)
    try:
        return tomlkit.parse(content.decode()).unwrap()
    except UnicodeDecodeError:
        raise BadOption(f"{flag}: {path!r} is not UTF-8, as TOML must be") from None
    except (ValueError, RecursionError) as error:
        raise BadOption(f"{flag}: {path!r} is not TOML: {error}") from None


def _content(flag: str, path: str) -> bytes:
    utf8(flag, path, "the path of this file")
    if not os.path.isfile(path):  # a pipe would be waited for
        raise BadOption(f"{flag}: there is no file {path!r}")
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise BadOption(f"{flag}: {path!r} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise BadOption(f"{flag}: {path!r} has more than {LARGEST} bytes")
    return content

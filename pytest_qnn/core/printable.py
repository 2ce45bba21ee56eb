"""Text from elsewhere (a target's, a file's, a path) where it leaves: on a terminal, in a page, in JSON.

What others wrote is kept as it is and escaped where it leaves, since the same text goes to readers that
need different things of it.
"""

from __future__ import annotations

import os
import shlex
import string
import sys
from collections.abc import Iterable
from typing import Any


def printable(text: str) -> str:
    r"""The text with all that is not shown but obeyed, or is nothing at all, in the form of ``\x1b``.

    That is: control characters (a terminal obeys ESC and, of the others, those from U+0080 on), marks that
    change the order of characters (U+202A to U+202E, U+2066 to U+2069), further invisible ones, and
    halves of surrogate pairs, which no file in UTF-8 can hold. Ends of lines (``\n``) and tabs stay. A
    backslash stays as well: what was escaped once is not escaped again.
    """
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n"))


LONGEST_HEARD = 1 << 16
"""Bytes, or characters, that are kept of one text of a target's: nobody reads more."""


def heard(text: bytes | BaseException) -> str:
    """What a target said, or what was raised for it, as far as it is kept."""
    if isinstance(text, bytes):
        return cut(text, LONGEST_HEARD).decode(errors="replace")
    return str(text)[:LONGEST_HEARD]


def cut(text: bytes, most: int) -> bytes:
    """At most so many bytes of a text; of one in UTF-8 whole characters."""
    end = min(most, len(text))
    # A character has up to three bytes behind its first one.
    while most < len(text) and end > most - 3 and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]


_NO_TEXT = frozenset("\ufffd\x7f").union(map(chr, range(0x20))).difference("\t\n\v\f\r\x1b")


def is_text(said: str) -> bool:
    """Whether what was `heard` is a text: UTF-8, with no control characters but white space and ESC.

    What was freed before it was read mostly is none.
    """
    return _NO_TEXT.isdisjoint(said)


LONGEST_LINE = 200
"""Characters."""
FLOOD = 4000
"""Characters after which also that is cut which nobody can ask for elsewhere."""


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """White space collapsed, printable, and cut where its place is no place for more.

    Args:
        text: any.
        longest: characters that are left, the mark of the cut among them.
    """
    text = printable(" ".join(text.split()))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _escaped(line: str) -> str:
    return "".join(
        sign if sign.isprintable() or sign == "\t" else sign.encode("unicode_escape").decode()
        for sign in line
    )


def counted(number: int, one: str, many: str = "") -> str:
    """``1 rule``, ``2 rules``; ``many``: the plural, where it is not ``one`` with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def encodable(value: Any) -> Any:
    r"""JSON data with halves of surrogate pairs as ``\udc80``, and all else as it is.

    Neither UTF-8 nor another process' reader has a place for them; Python makes them of bytes that are not
    UTF-8, and a rule may put such a text into its verdict.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = (encodable(part) for part in value)
        return tuple(parts) if isinstance(value, tuple) else list(parts)
    return value


def shell_line(words: Iterable[str]) -> str:
    r"""A printable line that a shell reads as these words. ``$'\377'`` is of bash, zsh and POSIX 2024."""
    return " ".join(shlex.quote(word) if word.isprintable() else _in_octal(word) for word in words)


def _in_octal(word: str) -> str:
    plain = string.ascii_letters + string.digits + "/._-=:,+ "
    signs = (chr(byte) if chr(byte) in plain else f"\\{byte:03o}" for byte in os.fsencode(word))
    return f"$'{''.join(signs)}'"


def said(error: BaseException) -> str:
    """What an error says, on one line; what is behind the first line of its message is in its traceback."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def write_out(text: str) -> str:
    """Write to standard output; why that is not possible, and empty where it is done.

    A reader who has gone away (``| head``) or was never there (``>&-``) is no error.

    Args:
        text: printable.
    """
    if sys.stdout is None:
        return ""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
    return ""

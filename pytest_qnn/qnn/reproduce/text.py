"""C text: literals and comments that whatever a target said cannot leave, and names that are free."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final


class NotWritten(Exception):  # noqa: N818 - a property of the case, not an error of ours
    """No program can be written that shows the finding; the text says why, as half a sentence."""


class NothingSeen(NotWritten):
    """The finding's run is as one of a conforming library; another run may be otherwise."""


def literal(data: bytes) -> str:
    """A C string literal of any bytes but NUL; question marks too are escaped (trigraphs)."""
    return '"' + "".join(_escaped(byte) for byte in data) + '"'


def _escaped(byte: int) -> str:
    sign = chr(byte)
    return sign if sign.isascii() and sign.isprintable() and sign not in '"\\?' else f"\\{byte:03o}"


def comment(text: str) -> str:
    """Text for a comment of either kind: one line, that neither ends it nor goes on in the next line."""
    plain = "".join(sign if sign.isascii() and sign.isprintable() else " " for sign in text)
    plain = plain.replace("\\", "/").replace("*/", "* /").replace("/*", "/ *")
    return plain.replace("??", "? ?").replace("??", "? ?").strip()  # of three there are two once more


def bytes_of(data: bytes) -> str:
    """The elements of an array of bytes."""
    return ", ".join(map(str, data))


_RESERVED = frozenset(
    {
        *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum"),
        *("extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return"),
        *("short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void"),
        *("volatile", "while", "abort", "accept", "access", "bind", "calloc", "clock", "close", "connect"),
        *("creat", "dup", "exit", "fork", "free", "gets", "index", "kill", "link", "listen", "log", "main"),
        *("malloc", "mmap", "munmap", "open", "pause", "pipe", "printf", "puts", "raise", "read", "realloc"),
        *("rename", "rindex", "send", "signal", "sleep", "socket", "stat", "time", "unlink", "wait", "write"),
    }
)
"""Keywords, and functions of the headers that a program includes."""


_GENERATED = re.compile("[a-ik-xz][0-9]{1,2}|late")
"""Names in generated cases, which no header has; ``j0``, ``y1`` and their like are functions."""


def of_case(name: str) -> str:
    """A case's name for something, as a beginning of a C identifier that no header has for something else.

    An author's case may have any: ``linux`` and ``unix`` are macros of compilers, ``div`` is a function.
    """
    return name if _GENERATED.fullmatch(name) else f"{name[:_LONGEST]}_"


_LONGEST: Final = 30
"""Characters: of a longer identifier the end, which tells it from others, would be cut."""


class Names:
    """C identifiers: each is given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def free(self, wanted: str) -> str:
        """A name that begins as wanted; signs that no identifier has become ``_``."""
        plain = re.sub(r"[^A-Za-z0-9_]", "_", wanted)[:40]
        plain = plain if plain[:1].isalpha() else f"n_{plain}"
        if plain in _RESERVED:
            plain += "_"
        name, number = plain, 2
        while name in self._taken:
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name)
        return name

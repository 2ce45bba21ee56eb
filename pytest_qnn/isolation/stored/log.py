"""The requests of one judgement and their answers, in order, as data and as a compressed file."""

from __future__ import annotations

import hashlib
import lzma
from typing import Literal

import msgspec

_SCHEMA = 1
LARGEST = 1 << 28
"""Bytes of a log when it is not compressed: a file from elsewhere may be made to fill the memory."""
_DIGEST = 8
"""Bytes of a request's digest. Who writes a log can compute any digest that is wanted: it shows that a case
is another one, and not who wrote it."""

Way = Literal["run", "guarded", "company", "apart", "fresh", "learn", "ask", "now"]
"""How something was asked: a method of `Executing`; ``guarded``: `run` with it, ``company``: `run_all`."""
CASES: frozenset[Way] = frozenset({"run", "guarded", "company", "apart", "fresh"})
"""Ways in which a case is carried out."""
Kind = Literal["value", "short", "death", "lost", "failure", "unusable"]
"""What an answer is: a trace or what else was asked for, a trace in short (`foretold`), a `Death`, or the
exception that was raised."""


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One answer."""

    kind: Kind
    body: bytes
    """MessagePack of the value or the death; the text of an exception."""


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request, and which answer it had."""

    way: Way
    request: bytes
    """The digest of the request."""
    answer: int
    """Place in `Log.answers`: equal answers are there once."""
    first: bool = False
    """Of ``company``: nothing was carried out in its process before."""


class Log(msgspec.Struct):
    """What was asked in one judgement, or when a target was opened.

    Attributes:
        name: the id of the rule; of an opening the half.
        place: the number of the judgement in its run, from 1; of an opening 0.
        mode: of an opening: where cases run.
        namespaces: of an opening: whether they are processes' own.

    """

    name: str
    place: int = 0
    mode: str = ""
    namespaces: str = ""
    schema: int = _SCHEMA
    steps: list[Step] = []
    answers: list[Answer] = []


class BadLog(ValueError):  # noqa: N818 - it is the file that is bad
    """A file is no log; the text is the end of a sentence that begins with its name."""


def digest(way: Way, request: bytes) -> bytes:
    """Of a request."""
    return hashlib.sha256(way.encode() + b" " + request).digest()[:_DIGEST]


def packed(log: Log) -> bytes:
    """The content of the file."""
    return lzma.compress(msgspec.msgpack.encode(log), preset=_PRESET)


_PRESET = 6
"""Of xz: 0 to 9 (docs/how-to/certification.md has the measurements)."""


def unpacked(content: bytes) -> Log:
    """The log in a file.

    Raises:
        BadLog: there is none in it, or it is larger than `LARGEST`.
    """
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST)
    try:
        data = unpacker.decompress(content, LARGEST)
        if not unpacker.eof or unpacker.unused_data:
            raise BadLog("is cut off, is too large, or has something behind its end")
        log = msgspec.msgpack.decode(data, type=Log)
    except (lzma.LZMAError, EOFError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadLog(f"is no log of pytest-qnn: {error}") from None
    if log.schema != _SCHEMA:
        raise BadLog(f"is a log of schema {log.schema}, and this pytest-qnn reads schema {_SCHEMA}")
    if any(not 0 <= step.answer < len(log.answers) for step in log.steps):
        raise BadLog("has a step whose answer it does not have")
    return log

"""What travels between pytest and the program on the other machine: MessagePack behind its length.

The other machine speaks first: `MARK`, then a `Hello`. After that each request has a number, and is answered
in the order of requests, so that several can be on their way. An empty message says that the other end is
there.
"""

from __future__ import annotations

import hashlib
import struct
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from pytest_qnn.core.evidence import Frame
from pytest_qnn.core.target import Death

MARK = b"pytest-qnn remote\x00\xff\r\n\n"
"""Before the first message. What a login shell prints before it is passed over. It has a byte in it for each
thing that a terminal or a shell on the way changes."""
MARK_AS_TEXT = MARK[: MARK.index(b"\0")]
"""As much of it as passes a way that changes bytes."""
LENGTH = struct.Struct("<Q")
HEARTBEAT_SECONDS = 2.0
"""Between the empty messages of the other machine."""

Failure = Literal["", "unusable", "no process", "slow", "runner"]
"""Why there is no answer: `Unusable`, `NoProcess`, `LoadingTakesTooLong` or `RunnerFailure` was raised."""


class Hello(msgspec.Struct, frozen=True):
    """The first message of the other machine."""

    version: str
    """Of the suite."""
    digest: str
    """Of the suite's code that carries cases out: see `suite_digest`."""
    machine: str
    """``aarch64 Linux 6.1.0, Python 3.11.2``."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Have a sandbox ready under a number. It is not answered; nothing is started yet."""

    sandbox: int
    spec: str
    """`WorkerSpec.text`."""
    mode: str
    timeout: float
    exact: bool
    plain: bytes
    passed: list[str]
    apart: bool


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Load the target."""

    number: int
    sandbox: int


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Carry out requests, each of which is answered."""

    number: int
    sandbox: int
    requests: list[bytes]
    cycles: list[int]


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Nobody waits for this request any more. It is not answered."""

    number: int


class Close(msgspec.Struct, frozen=True, tag="close"):
    """End a sandbox. It is not answered."""

    sandbox: int


class Digest(msgspec.Struct, frozen=True, tag="digest"):
    """Give the SHA-256 of a file."""

    number: int
    path: str


class Names(msgspec.Struct, frozen=True, tag="names"):
    """Name native frames by the symbols of the files there."""

    number: int
    frames: tuple[Frame, ...]


class Surroundings(msgspec.Struct, frozen=True, tag="surroundings"):
    """Say what the machine does not offer, and which variables children do not get."""

    number: int
    passed: list[str]


Request = Open | Start | Call | Cancel | Close | Digest | Names | Surroundings
Numbered = Start | Call | Digest | Names | Surroundings
"""Requests that are answered."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """To a numbered request; to a `Call` one for each of its requests, in order."""

    number: int
    payload: bytes = b""
    """The child's answer; to a `Digest` the digest in hexadecimal digits."""
    death: Death | None = None
    first: bool = False
    """The request was the first that its child had."""
    last_call: str = ""
    mode: str = ""
    apart: bool = False
    leaves: bool = False
    """Of the sandbox, as it is by now."""
    failure: Failure = ""
    """Then there is no further answer to the request."""
    text: str = ""
    """Why."""
    held_back: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    """To `Surroundings`."""
    frames: tuple[Frame, ...] = ()
    """To `Names`."""


def suite_digest() -> str:
    """SHA-256 of the code that makes, carries out and encodes cases: two machines must have the same.

    A version alone would not do: a repository has one version for many states.
    """
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for folder in ("core", "isolation", "native", "qnn", "tflite"):
        for path in sorted((root / folder).rglob("*.[pc]*")):
            if path.suffix in (".py", ".c"):
                content = path.read_bytes()
                name = path.relative_to(root).as_posix()
                digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def version() -> str:
    """Of the installed suite."""
    return metadata.version("pytest-qnn")

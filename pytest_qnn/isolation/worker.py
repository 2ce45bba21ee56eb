"""What a process does that holds a target: load it once, then carry out cases.

The same worker serves a case in the pytest process (``--qnn-sandbox off``) and in a child, so that the
result is the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol

import msgspec

OnStep = Callable[[int], None]


Depth = Literal["all", "validated", "identity", "nothing"]
"""How much is learned of a target: one that does not survive a depth is queried at the next."""
DEPTHS: dict[Depth, bytes] = {
    "all": b"learn all",
    "validated": b"learn validated",
    "identity": b"learn identity",
    "nothing": b"learn nothing",
}
"""The requests for the target's facts, most first; any other request is a case as MessagePack."""
ENDS = b"ends "
"""Before a case's request: when it has been answered, the process ends by exit(3) and not by _exit(2)."""
ASKED = {request: depth for depth, request in DEPTHS.items()}


class MayEndError(Exception):
    """What a case comes to may end this process, and is for one of its own."""


class Worker(Protocol):
    """A loaded target.

    Attributes:
        careful: `run` raises `MayEndError` rather than do what has ended processes, of whomever: there is
            another process for it.

    """

    careful: bool

    def facts(self, depth: Depth = "all") -> Any:
        """Learn what the target is; with ``nothing`` without calling it at all."""

    def warm(self) -> None:
        """Run the runner's own code once, for every kind of case, without touching what is judged."""

    def rehearse(self) -> None:
        """Carry out a case of the most frequent kind, without touching what is judged."""

    def run(self, case: Any, on_step: OnStep | None = None) -> Any:
        """Carry out one case."""

    def accompany(self, request: bytes) -> None:
        """Before a case that is not the first of its process: make it as cheap as it may be."""

    def handle(self, request: bytes, on_step: OnStep) -> bytes:
        """Answer one request in the children's format."""


class Spec(Protocol):
    """What a process needs to make a worker, on a command line."""

    @property
    def ahead(self) -> str | None:
        """See `WorkerSpec.ahead`; None: it is not known."""

    def text(self) -> str:
        """See `WorkerSpec.text`."""


class WorkerSpec(msgspec.Struct, frozen=True):
    """What a process needs to make the worker again: what is judged, and which module knows how."""

    maker: ClassVar[str]
    """A module with ``make(content) -> Worker``, imported by whoever makes the worker: so a process loads the
    half that it serves, and no other. ``content``: JSON of this structure, as bytes. And with
    ``make_ready(ahead)``: loads and runs once what workers of this ``ahead`` need besides their targets."""

    @property
    def ahead(self) -> str:
        """What of this may be loaded before a target is, in a process that many are forked from."""
        return ""

    def text(self) -> str:
        """For a command line."""
        return f"{self.maker} {msgspec.json.encode(self).decode()}"


def make_worker(text: str) -> Worker:
    """Load the target that `WorkerSpec.text` is about.

    Raises:
        Unusable: it cannot be used.
    """
    maker, _, content = text.partition(" ")
    worker: Worker = importlib.import_module(maker).make(content.encode())
    return worker


class Unusable(Exception):  # noqa: N818 - a finding about what was named, not an error of ours
    """The target cannot be used; the text is one sentence."""

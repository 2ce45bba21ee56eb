"""Steps on contexts whose binary comes piece by piece: a client provides each, and is told when it may go.

The client's two functions give each piece memory of its own, as large as whole pages, with the piece in it
and 0xA5 behind it. They refuse (5000) a request of no byte or of bytes that the binary does not have, and
keep account of what is asked for and what is given back. What was given back cannot be touched any more.
"""

from __future__ import annotations

from typing import Literal

from pytest_qnn.cases.memory_step import Step


class ContextWithCallback(Step, tag="context-with-callback", frozen=True, gc=False, omit_defaults=True):
    """QnnContext_createFromBinaryWithCallback, of a copy of the binary that lives as long as the case."""

    context: str
    binary: str
    memory: Literal["dma", "raw"] = "dma"
    """Qnn_ContextBinaryCallbackType_t: pieces in rpcmem buffers, with their fds, or in memory without one."""
    fails: int = 0
    """The request, counted from 1, that is answered with 1002 and no memory; 0: none is."""
    start: int = 0
    """dataStartOffset: bytes before each piece in its memory, 0xA5 as well."""


class Pieces(Step, tag="pieces", frozen=True, gc=False, omit_defaults=True):
    """The client's account for ``context``, as it stands now. Nothing is called."""

    context: str


PieceStep = ContextWithCallback | Pieces

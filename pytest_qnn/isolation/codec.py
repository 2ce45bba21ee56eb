"""How a case becomes a request to a child, and a child's answer a trace.

A request is the case as MessagePack, behind a word for every kind but the most frequent: MessagePack of a
case never begins with a letter. Before that, `ENDS` asks for an end in good order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from pytest_qnn.isolation.worker import ENDS

_LENGTH: Final = 7
"""Bytes of a word."""


class Kind(NamedTuple):
    """One kind of case."""

    case: type[Any]
    trace: type[Any]
    word: bytes = b""
    """`_LENGTH` bytes; empty: the most frequent kind of a half."""


class Codec:
    """The kinds of case of one half, the most frequent first.

    Attributes:
        measures: whether a step of the case asks malloc what is in use.
        cycles: how often, at least once, a case does what the plain case does once.
        plain: a case of the most frequent kind that uses the target once, in every way that most cases do.
    """

    def __init__(
        self,
        kinds: tuple[Kind, ...],
        measures: Callable[[Any], bool],
        cycles: Callable[[Any], int],
        plain: Any,
    ) -> None:
        self.measures = measures
        self.cycles = cycles
        self.plain = plain
        self._kinds = {kind.case: kind for kind in kinds}
        self._cases = {kind.word: msgspec.msgpack.Decoder(kind.case) for kind in kinds}
        self._traces = {kind.case: msgspec.msgpack.Decoder(kind.trace) for kind in kinds}

    def request_of(self, case: Any) -> bytes:
        """The request that asks a child to carry out the case."""
        ends = ENDS if getattr(case, "ends", False) else b""
        return ends + self._kinds[type(case)].word + msgspec.msgpack.encode(case)

    def case_of(self, request: bytes) -> Any:
        """The case that a request asks for."""
        decoder = self._cases.get(request[:_LENGTH])
        if decoder is None:
            return self._cases[b""].decode(request)
        return decoder.decode(memoryview(request)[_LENGTH:])

    def trace_of(self, case: Any, answer: bytes) -> Any:
        """The trace in a child's answer.

        Raises:
            msgspec.DecodeError: it is none.
        """
        return self._traces[type(case)].decode(answer)

    def empty_trace(self, case: Any) -> type[Any]:
        """The type of trace that the case gives."""
        return self._kinds[type(case)].trace

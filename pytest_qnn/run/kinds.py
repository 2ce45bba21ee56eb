"""The kinds of case that targets carry out, and how a request and its answer are told apart.

A request is the case as MessagePack, behind a word for every kind but the most frequent: MessagePack of a
case never begins with a letter. Before that, `pytest_qnn.isolation.worker.ENDS` asks for an end in good
order.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.plugin import PluginCase
from pytest_qnn.cases.script import ScriptCase
from pytest_qnn.isolation.worker import ENDS
from pytest_qnn.trace import DelegateTrace, MemoryTrace, PluginTrace, ScriptTrace


class Kind(NamedTuple):
    """One kind of case."""

    word: bytes
    trace: type[Any]
    case_decoder: msgspec.msgpack.Decoder[Any]
    trace_decoder: msgspec.msgpack.Decoder[Any]


def _kind(case: type[Any], trace: type[Any], word: bytes) -> Kind:
    return Kind(word, trace, msgspec.msgpack.Decoder(case), msgspec.msgpack.Decoder(trace))


KINDS: Final[dict[type[Any], Kind]] = {
    MemoryCase: _kind(MemoryCase, MemoryTrace, b""),
    DelegateCase: _kind(DelegateCase, DelegateTrace, b""),
    ScriptCase: _kind(ScriptCase, ScriptTrace, b"script "),
    PluginCase: _kind(PluginCase, PluginTrace, b"plugin "),
}
_WORDS: Final = {kind.word: kind for kind in KINDS.values() if kind.word}
_LENGTH: Final = 7


def request_of(case: Any) -> bytes:
    """The request that asks a child to carry out the case."""
    ends = ENDS if getattr(case, "ends", False) else b""
    return ends + KINDS[type(case)].word + msgspec.msgpack.encode(case)


def case_of(request: bytes, usual: type[Any]) -> Any:
    """The case that a request asks for; one without a word is of the ``usual`` type."""
    kind = _WORDS.get(request[:_LENGTH])
    if kind is None:
        return KINDS[usual].case_decoder.decode(request)
    return kind.case_decoder.decode(memoryview(request)[_LENGTH:])


def trace_of(case: Any, answer: bytes) -> Any:
    """The trace in a child's answer.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return KINDS[type(case)].trace_decoder.decode(answer)

"""How a case becomes a request to a child, and a child's answer a trace.

A request is the case as MessagePack, behind a word for every kind but the most frequent: MessagePack of a
case never begins with a letter. Before that, `ENDS` asks for an end in good order.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from pytest_qnn.isolation.worker import ENDS

_LENGTH: Final = 7
"""Bytes of a word."""


T = TypeVar("T")
MOST_ITEMS = 100_000
"""Values, names and collections in a trace. The largest of the default profile has 14,265."""
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""By first byte of bytes, text or an extension: bytes of its length."""
_BYTES = (0xC4, 0xC5, 0xC6)
_EXTENSIONS = (0xC7, 0xC8, 0xC9)
"""Of these the type is a byte more."""
_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""By first byte of an array or a map: bytes of the number of its entries, and items of each."""
_FIXED = dict(
    zip((*range(0xCA, 0xD4), *range(0xD4, 0xD9)), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17), strict=True)
)
"""By first byte of anything else: bytes behind it."""


def _most_steps(part: Any) -> int:
    """As many steps as a case, or a part of it, can have: steps within steps may be repeated."""
    if isinstance(part, tuple):
        return sum(map(_most_steps, part))
    if not isinstance(part, msgspec.Struct):
        return 0
    inner = sum(_most_steps(getattr(part, field)) for field in part.__struct_fields__)
    return 1 + int(getattr(part, "times", 1)) * inner


class TooManyItemsError(msgspec.DecodeError):
    """An answer has more items than can be judged; it may be right otherwise."""


def decoded(decoder: msgspec.msgpack.Decoder[T], answer: bytes | bytearray) -> T:
    """What a child has written, which may be anything.

    Raises:
        msgspec.DecodeError: it is not what was asked for.
    """
    # Each item is a byte at least, and a structure of some hundred bytes here at most.
    if len(answer) > MOST_ITEMS and not has_at_most(MOST_ITEMS, answer):
        raise TooManyItemsError(f"it has more than {MOST_ITEMS} items")
    try:
        return decoder.decode(answer)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def has_at_most(most: int, message: bytes | bytearray) -> bool:
    """Whether MessagePack holds so many items or fewer, found out without any of them taking memory.

    A message of 4 MB can hold as many empty structures. One that ends too soon is for the decoder to refuse.
    """
    left, seen, at = 1, 0, 0
    while left and at < len(message):
        first = message[at]
        left -= 1
        seen += 1
        items, size = _extent(message, at, first)
        left += items
        at += 1 + size
        if seen + left > most:
            return False
    return True


def beside_contents(message: bytes | bytearray) -> int:
    """Bytes of MessagePack that are not contents: all but what is within its byte strings.

    One that is cut short, or holds more items than a trace can, has no contents.
    """
    left, seen, at, contents = 1, 0, 0, 0
    while left:
        if at >= len(message) or seen > MOST_ITEMS:
            return len(message)
        first = message[at]
        left -= 1
        seen += 1
        items, size = _extent(message, at, first)
        if first in _BYTES:
            contents += size - _LENGTHS[first]
        left += items
        at += 1 + size
    return len(message) - contents if at <= len(message) else len(message)


def _extent(message: bytes | bytearray, at: int, first: int) -> tuple[int, int]:
    """Items within the one at ``at``, and bytes behind its first that are no item's."""
    if first < 0x80 or first >= 0xE0:
        return 0, 0
    if first < 0xA0:
        return (first & 0x0F) * (1 if first >= 0x90 else 2), 0
    if first < 0xC0:
        return 0, first & 0x1F
    if first in _COUNTS:
        width, each = _COUNTS[first]
        return int.from_bytes(message[at + 1 : at + 1 + width], "big") * each, width
    if width := _LENGTHS.get(first, 0):
        length = int.from_bytes(message[at + 1 : at + 1 + width], "big")
        return 0, width + length + (first in _EXTENSIONS)
    return 0, _FIXED.get(first, 0)


class Kind(NamedTuple):
    """One kind of case."""

    case: type[Any]
    trace: type[Any]
    word: bytes = b""
    """`_LENGTH` bytes; empty: the most frequent kind of a half."""
    counted: str = ""
    """The field of both that has as many entries in a trace as in its case; empty: there is none."""


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
        foreteller: str = "",
    ) -> None:
        """``foreteller``: see `foretold`."""
        self.measures = measures
        self.cycles = cycles
        self.plain = plain
        self._foreteller = foreteller
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
            msgspec.DecodeError: it is none, or none of this case.
        """
        trace = decoded(self._traces[type(case)], answer)
        steps = len(getattr(trace, "steps", ()))
        if steps > len(getattr(case, "steps", ())) and steps > (asked := _most_steps(case)):
            raise msgspec.DecodeError(f"it has {steps} steps, of {asked} that were asked for")
        if counted := self._kinds[type(case)].counted:
            found, wanted = len(getattr(trace, counted)), len(getattr(case, counted))
            if found != wanted:
                raise msgspec.DecodeError(f"it has {found} {counted}, of {wanted} that were asked for")
        return trace

    def foretold(self, case: Any, answer: bytes) -> list[bytes]:
        """Contents that follow from a case, whose answer has zeros in their places.

        By the function ``foretold`` of the module that the codec names, imported only by who keeps answers.
        """
        if not self._foreteller:
            return []
        trace = decoded(self._traces[type(case)], answer)
        found: list[bytes] = importlib.import_module(self._foreteller).foretold(case, trace)
        return found

    def empty_trace(self, case: Any) -> type[Any]:
        """The type of trace that the case gives."""
        return self._kinds[type(case)].trace

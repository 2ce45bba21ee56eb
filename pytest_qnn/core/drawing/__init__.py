"""How every case is drawn: one string of bytes, of fixed length."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

_LEAST = 51
"""Bytes of the shortest string.

In one draw of twenty Hypothesis takes a constant of a module that is loaded, where one fits; so the cases of
a seed would depend on what else a run has imported. It knows byte strings of up to 50 bytes.
"""

LEADING = 16
"""Bytes at the beginning of a string of which `strings` spreads each evenly."""
_STRATA = 16
"""Equal parts of the values of a leading byte."""


class Decoder(NamedTuple):
    """What a strategy of `decoded` does."""

    size: int
    """Bytes of each string."""
    decode: Callable[[bytes], Any]


_DECODERS: weakref.WeakKeyDictionary[st.SearchStrategy[Any], Decoder] = weakref.WeakKeyDictionary()


def decoded(size: int, decode: Callable[[bytes], T]) -> st.SearchStrategy[T]:
    """What ``decode`` makes of ``size`` drawn bytes. Zero bytes should mean the simplest of all."""
    drawn = max(size, _LEAST)
    made = Decoder(drawn, lambda data: decode(data[:size]))
    strategy = st.binary(min_size=drawn, max_size=drawn).map(made.decode)
    _DECODERS[strategy] = made
    return strategy


_LISTED: weakref.WeakKeyDictionary[st.SearchStrategy[Any], tuple[Any, ...]] = weakref.WeakKeyDictionary()


def listed(cases: Sequence[T]) -> st.SearchStrategy[T]:
    """These cases, of which a search runs each once, in their order: nothing is drawn."""
    strategy = st.sampled_from(cases)
    _LISTED[strategy] = tuple(cases)
    return strategy


def cases_of(strategy: st.SearchStrategy[Any]) -> tuple[Any, ...] | None:
    """The cases of a strategy of `listed`; None for one that is drawn."""
    return _LISTED.get(strategy)


def changed(strategy: st.SearchStrategy[Any], change: Callable[[Any], T]) -> st.SearchStrategy[T]:
    """``strategy.map(change)``, of which `decoder_of` still knows how it is drawn."""
    known = _DECODERS.get(strategy)
    mapped = strategy.map(change)
    if known is not None:
        decode = known.decode
        _DECODERS[mapped] = Decoder(known.size, lambda data: change(decode(data)))
    return mapped


def prefixed(
    size: int, strategy: st.SearchStrategy[Any], change: Callable[[Any, bytes], T]
) -> st.SearchStrategy[T]:
    """What ``change`` makes of a case of ``strategy`` and of ``size`` more bytes, in front of the case's own.

    Raises:
        TypeError: the strategy is none of `decoded`.
    """
    known = decoder_of(strategy)
    if known is None:
        raise TypeError("a strategy that is not decoded from bytes")
    decode = known.decode
    return decoded(size + known.size, lambda data: change(decode(data[size:]), data[:size]))


def pairs(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, T]]:
    """Two cases of one strategy. Raises TypeError as `prefixed`."""
    known = decoder_of(strategy)
    if known is None:
        raise TypeError("a strategy that is not decoded from bytes")
    size, decode = known
    return decoded(2 * size, lambda data: (decode(data[:size]), decode(data[size:])))


def decoder_of(strategy: st.SearchStrategy[Any]) -> Decoder | None:
    """How a strategy of `decoded` makes its cases; None for one that is drawn otherwise."""
    return _DECODERS.get(strategy)


def strings(size: int, seed: int) -> Iterator[bytes]:
    """Strings of ``size`` bytes without end, the same for a seed on every machine.

    The first is all zeros, the simplest case. Of the next sixteen, and of each sixteen after them, every
    leading byte (the first `LEADING`) has each sixteenth of its 256 values exactly once, in an order of its
    own: a Latin hypercube sample (McKay, Beckman, Conover 1979, Technometrics 21). So a class of cases that
    a strategy chooses by such a byte, with a sixteenth of its values or more, is met in every search of 17
    examples, and not only in most of them. The other bytes are independent and uniform.
    """
    random_bytes = random.Random(seed)
    yield bytes(size)
    while True:
        orders = [random_bytes.sample(range(_STRATA), _STRATA) for _ in range(min(LEADING, size))]
        for strata in zip(*orders, strict=True):
            drawn = bytearray(random_bytes.randbytes(size))
            for at, stratum in enumerate(strata):
                drawn[at] = stratum * (256 // _STRATA) + drawn[at] % (256 // _STRATA)
            yield bytes(drawn)


def shrunk(string: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """A string that still fails and of which no byte can be 0, halved or lowered by one.

    First whole blocks become zeros, the largest first: a block is a step, or a node, or several. Then the
    bytes that are left become as small as they can.

    Args:
        string: one that fails.
        fails: tells of another, which is smaller; false where it is not known.
    """
    while True:
        before = string
        size = len(string)
        while size:
            for start in range(0, len(string), size):
                block = string[start : start + size]
                without = string[:start] + bytes(len(block)) + string[start + size :]
                if any(block) and fails(without):
                    string = without
            size //= 2
        for at, value in enumerate(string):
            string = _lowered(string, at, value, fails)
        if string == before:
            return string


def _lowered(string: bytes, at: int, value: int, fails: Callable[[bytes], bool]) -> bytes:
    """The string with a smaller value in one place, as small as halving and counting down find."""
    while value:
        for smaller in (value // 2, value - 1):
            lower = string[:at] + bytes([smaller]) + string[at + 1 :]
            if smaller and fails(lower):
                string, value = lower, smaller
                break
        else:
            break
    return string

"""Answers without the contents that follow from their cases: what was to be expected, and how far it was not.

Most bytes of a trace are contents of tensors and buffers: inputs made of a seed, and results of exact
operators on them. Each half foretells those (`Codec.foretold`). A content then is kept as the number of a
foretold one, or of an earlier one in the same answer, and the bytes in which it differs, with a checksum:
what is foretold must be the same where the answer is read, which only arithmetic that is exact everywhere is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

SHORTEST = 64
"""Bytes of a content that is worth it."""
LARGEST = 1 << 28
"""Bytes of all contents of one answer."""
_CODE = 1
"""Of MessagePack's extension."""
_MOST_COMPARED = 16
"""Contents of one length that another one is compared with."""
_MOST_SEARCHED = 64
"""Contents that are looked for in another one."""
_UNLIKE = 0.75
"""Share of bytes that differ, from which on a content is kept whole."""

Foretell = Callable[[bytes], Sequence[bytes]]
"""From an answer whose contents are zeros to contents that it may have."""


_Laid = tuple[tuple[int, int], ...]


class NotForetold(ValueError):  # noqa: N818 - it is the answer that is not as it should be
    """What is foretold here is not what was foretold when the answer was kept, or the answer is none."""


class _Kept(NamedTuple):
    """What stands for a content."""

    laid: tuple[tuple[int, int], ...]
    """What lies over zeros, in order: which other content (foretold ones come first, then those before this
    one in the answer), and from which byte on."""
    size: int
    check: int
    """CRC-32 of the content."""
    difference: bytes
    """The exclusive or with that, compressed; empty: none."""


def shortened(answer: bytes, foretell: Foretell) -> bytes | None:
    """The answer (MessagePack) with such contents in short; None: it has none."""
    content = msgspec.msgpack.decode(answer)
    if not any(True for _ in _long(content)):
        return None
    known = list(foretell(msgspec.msgpack.encode(_with(content, lambda each: bytes(len(each))))))
    return msgspec.msgpack.encode(_with(content, lambda each: _short(each, known)))


def restored(answer: bytes, foretell: Foretell) -> bytes:
    """The answer that `shortened` was given.

    Raises:
        NotForetold: it cannot be restored.
    """
    try:
        content = msgspec.msgpack.decode(answer)
        _check_size(content)
        known = list(foretell(msgspec.msgpack.encode(_with(content, lambda each: bytes(_size(each))))))
        return msgspec.msgpack.encode(_with(content, lambda each: _whole(each, known)))
    except (msgspec.MsgspecError, zlib.error, RecursionError, UnicodeError) as error:
        raise NotForetold(f"it cannot be read: {error}") from None


def _with(content: Any, change: Callable[[Any], Any]) -> Any:
    """The same content with every long part of it changed, in their order."""
    if isinstance(content, dict):
        return {key: _with(value, change) for key, value in content.items()}
    if isinstance(content, list):
        return [_with(value, change) for value in content]
    return change(content) if _is_long(content) else content


def _long(content: Any) -> Iterator[Any]:
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for value in content:
            yield from _long(value)
    elif _is_long(content):
        yield content


def _is_long(value: Any) -> bool:
    return isinstance(value, msgspec.msgpack.Ext) or (isinstance(value, bytes) and len(value) >= SHORTEST)


def _short(content: bytes, known: list[bytes]) -> bytes | msgspec.msgpack.Ext:
    """What stands for a content, which is known from now on."""
    found = _nearest(content, known)
    known.append(content)
    if found is None:
        return content
    laid, like = found
    difference = b"" if like == content else zlib.compress(_xor(like, content), 6)
    kept = _Kept(laid, len(content), zlib.crc32(content), difference)
    return msgspec.msgpack.Ext(_CODE, msgspec.msgpack.encode(kept))


def _nearest(content: bytes, known: Sequence[bytes]) -> tuple[_Laid, bytes] | None:
    """What is laid over zeros to be most like the content, and what that gives; None: nothing is like it."""
    best, least = None, int(len(content) * _UNLIKE)
    for laid in _layouts(content, known):
        like = _built(laid, len(content), known)
        if like == content:
            return laid, like
        differing = int(np.count_nonzero(_bytes(like) != _bytes(content)))
        if differing < least:
            best, least = (laid, like), differing
    return best


def _layouts(content: bytes, known: Sequence[bytes]) -> Iterator[_Laid]:
    """Contents of the same length, each by itself; then all of which the beginning is found in it."""
    alike = [place for place, each in enumerate(known) if len(each) == len(content)]
    yield from (((place, 0),) for place in alike[-_MOST_COMPARED:])
    found = []
    for place, each in list(enumerate(known))[-_MOST_SEARCHED:]:
        at = content.find(each[:SHORTEST]) if len(each) >= SHORTEST else -1
        if at >= 0:
            found.append((place, at))
    yield tuple(found)


def _built(laid: _Laid, size: int, known: Sequence[bytes]) -> bytes:
    """Raises NotForetold where something is laid that there is not."""
    if len(laid) == 1 and laid[0][1] == 0 and 0 <= laid[0][0] < len(known) and len(known[laid[0][0]]) == size:
        return known[laid[0][0]]
    built = bytearray(size)
    for place, at in laid:
        if not (0 <= place < len(known) and 0 <= at < size):
            raise NotForetold("a content is like one that is not foretold")
        piece = known[place][: size - at]
        built[at : at + len(piece)] = piece
    return bytes(built)


def _whole(kept: Any, known: list[bytes]) -> bytes:
    """The content that is kept. Raises NotForetold and what decoding raises."""
    if isinstance(kept, bytes):
        content = kept
    else:
        entry = _decoded(kept)
        content = _built(entry.laid, entry.size, known)
        if entry.difference:
            content = _xor(content, _inflated(entry))
        if zlib.crc32(content) != entry.check:
            raise NotForetold("what is foretold here is another content")
    known.append(content)
    return content


def _decoded(kept: msgspec.msgpack.Ext) -> _Kept:
    entry = msgspec.msgpack.decode(kept.data, type=_Kept)
    if kept.code != _CODE or not 0 <= entry.size <= LARGEST:
        raise NotForetold("it has something in it that stands for no content")
    return entry


def _inflated(entry: _Kept) -> bytes:
    found = zlib.decompressobj().decompress(entry.difference, entry.size + 1)
    if len(found) != entry.size:
        raise NotForetold("a difference is not as long as its content")
    return found


def _size(kept: Any) -> int:
    return len(kept) if isinstance(kept, bytes) else _decoded(kept).size


def _check_size(content: Any) -> None:
    """Raise NotForetold where the contents would take too much memory."""
    if sum(map(_size, _long(content))) > LARGEST:
        raise NotForetold(f"its contents have more than {LARGEST} bytes")


def _xor(one: bytes, other: bytes) -> bytes:
    return (_bytes(one) ^ _bytes(other)).tobytes()


def _bytes(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)

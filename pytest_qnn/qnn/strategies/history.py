"""What came before a case, and how large things are in it: the head of the bytes that a case is drawn from.

Faults that start late (from the n-th object, beyond a mebibyte, at rank 5, after a failed call) are what few
examples miss. So each of the first bytes chooses one thing, alone: those of the examples of one search are
spread evenly over 0..255, so every sixteenth of a byte's values is met by every rule within 17 examples.
Zero bytes mean no history and the smallest of everything; about a third of the cases have neither.

The bytes, and what the sixteenths of their values mean:

0. The history. 0 to 9: none. 10: refused calls. 11: hundreds of registrations. 12: dozens to hundreds of
   contexts. 13: two contexts take turns. 14: some of everything, in steps that rules judge. 15: a log with a
   callback is attached.
1. The batch. 0 to 13: as drawn. 14: the first has 2 to 8 descriptors, the first memDeRegister as many
   handles, and each context other graphs before the rule's own. 15: it has 9 to 64, and others between the
   rule's own.
2. The size. 0 to 12: as drawn. 13: tensors beyond 4 KiB. 14: beyond 1 MiB. 15: beyond 16 MiB (of graphs: 1).
3. The rank. 0 to 13: as drawn. 14: 1. 15: 5 to 8; the dimensions that are added come first, in one of four
   of these last.
4. The position of the rule's own descriptors in the batch.
5. The offset. 0 to 13: as drawn. 14: beyond 1 MiB. 15: below 2 GiB, from 3 GiB, across 4 GiB or beyond.
6. The version. 0 to 14: as drawn. 15: graphs have version 2 of Qnn_Tensor_t, or both.
7. Details of the history.
8. The repetition: what of the rule's own steps is done three times before (`Again`). 0 to 7: nothing. 8: all,
   in other objects. 9: with the same buffers and binaries, in other contexts, and nothing ends. 10: each step
   in its place, and what it makes ends at once. 11: with other graphs, and else the same. 12: with other
   handles, and else the same. 13: with everything the same. 14: with other choices. 15: as one of these, but
   dozens of times.
9. Details of the repetition.
"""

from __future__ import annotations

from math import prod
from typing import Final, Literal, NamedTuple

from pytest_qnn.qnn.cases.case import MOST_PARTS, QnnDType
from pytest_qnn.qnn.cases.repeat import EVERYTHING, Sort
from pytest_qnn.qnn.cases.sizes import ELEMENT_BYTES

HEAD_BYTES: Final = 10
Past = Literal["", "refused", "registrations", "contexts", "turns", "steps", "log"]
Kind = Literal["history", "batch", "size", "rank", "offset", "version", "again"]

_PASTS: Final[tuple[Past, ...]] = ("refused", "registrations", "contexts", "turns", "steps", "log")
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_LARGE_BATCHES = (64, 9, 16, 17, 24, 32, 33, 48)
_MOST_OF_GRAPHS = _MIB + 64
MOST_SAVED: Final = 64 * _KIB + 64
"""Bytes of a tensor of graphs that are made for context binaries: each is executed several times over."""
FAR: Final = 32 * _MIB
"""A buffer of more bytes than this is never filled, read or written: its memory is sparse."""


class Scale(NamedTuple):
    """How large things are; all of it 0 where they are as the rule draws them."""

    batch: int = 0
    """Descriptors of the first batch, at least."""
    position: int = 0
    """That of the rule's own descriptors in it, modulo what there is."""
    size: int = 0
    """Bytes of a tensor, at least."""
    rank: int = 0
    """Dimensions of a tensor; 1: flat."""
    ones_last: bool = False
    """The dimensions that are added come last."""
    offset: int = 0
    """Bytes before a tensor in its shared buffer."""
    version: Literal[0, 1, 2, 3] = 0
    """Of Qnn_Tensor_t (`Prepare.version`)."""

    def shaped(self, shape: tuple[int, ...], dtype: QnnDType, most: int = 0) -> tuple[int, ...]:
        """The shape as it is on this scale, with up to ``most`` bytes (0: any number)."""
        size = min(self.size, most) if most else self.size
        now = prod(shape) * ELEMENT_BYTES[dtype]
        if size > now and shape:
            shape = (*shape[:-1], shape[-1] * -(-size // now))
        if self.rank == 1:
            return (prod(shape),)
        ones = (1,) * (self.rank - len(shape))
        return (*shape, *ones) if self.ones_last else (*ones, *shape)

    def of_graph(
        self, shape: tuple[int, ...], dtype: QnnDType, most: int = _MOST_OF_GRAPHS
    ) -> tuple[int, ...]:
        """The same for a graph's tensors, whose bytes are all touched."""
        return self.shaped(shape, dtype, most)


PLAIN: Final = Scale()


class Again(NamedTuple):
    """What of a rule's own steps is done before they are done (`pytest_qnn.qnn.cases.repeat`)."""

    times: int = 0
    kept: frozenset[Sort] = frozenset()
    gathering: bool = False
    """Nothing ends before."""
    in_place: bool = False
    """Each step for itself."""
    otherwise: bool = False
    """The steps are those that other bytes give."""


ONCE: Final = Again()
FEW: Final = 3
_AGAIN: Final = (
    Again(FEW),
    Again(FEW, frozenset({"buffer", "binary"}), gathering=True),
    Again(FEW, in_place=True),
    Again(FEW, EVERYTHING - {"graph"}),
    Again(FEW, EVERYTHING - {"handles"}),
    Again(FEW, EVERYTHING),
    Again(2, otherwise=True),
)
_OFTEN: Final = (_AGAIN[2], _AGAIN[0], _AGAIN[2], _AGAIN[4], _AGAIN[2], _AGAIN[1], _AGAIN[2], _AGAIN[5])
_DOZENS = (40, 16, 33, 24, 130, 40, 17, 64)


class Head(NamedTuple):
    """The history, the scale and the repetition of a case."""

    past: Past = ""
    detail: int = 0
    scale: Scale = PLAIN
    again: Again = ONCE


def head_of(data: bytes, without: frozenset[Kind] = frozenset()) -> Head:
    """What the first `HEAD_BYTES` bytes say, but for the kinds that a rule does without."""
    past, batch, size, rank, position, offset, version, detail, again, often = data[:HEAD_BYTES]
    scale = Scale(
        batch=0 if "batch" in without else _batch(batch),
        position=position,
        size=0 if "size" in without else _size(size),
        rank=0 if "rank" in without else _rank(rank),
        ones_last=rank >> 2 & 3 == 3,
        offset=0 if "offset" in without else _offset(offset),
        version=(3 if version & 1 else 2) if "version" not in without and version >> 4 == 15 else 0,
    )
    return Head(
        past="" if "history" in without else _past(past),
        detail=detail,
        scale=scale,
        again=ONCE if "again" in without else _again(again, often),
    )


def _past(byte: int) -> Past:
    first = 16 - len(_PASTS)
    return _PASTS[(byte >> 4) - first] if byte >> 4 >= first else ""


def _batch(byte: int) -> int:
    if byte >> 4 == 15:
        return min(_LARGE_BATCHES[byte % len(_LARGE_BATCHES)], MOST_PARTS)
    return 2 + byte % 7 if byte >> 4 == 14 else 0


def _size(byte: int) -> int:
    bits = byte & 15
    if byte >> 4 == 13:
        return (4 * _KIB + 1, 8 * _KIB, 64 * _KIB + 1, 256 * _KIB)[bits % 4] + bits
    if byte >> 4 == 14:
        return _MIB + 1 + bits
    return 16 * _MIB + 1 + bits if byte >> 4 == 15 else 0


def _rank(byte: int) -> int:
    if byte >> 4 == 15:
        return 5 + byte % 4
    return 1 if byte >> 4 == 14 else 0


def _offset(byte: int) -> int:
    bits = byte & 15
    if byte >> 4 == 14:
        return _MIB + 64 * bits
    if byte >> 4 != 15:
        return 0
    return (2 * _GIB - 16 * _MIB, 4 * _GIB + 4096 + 64 * bits, 3 * _GIB, 4 * _GIB - 8)[bits % 4]


def _again(byte: int, often: int) -> Again:
    first = 15 - len(_AGAIN)
    if byte >> 4 == 15:
        return _OFTEN[often % len(_OFTEN)]._replace(times=_DOZENS[often // 16 % len(_DOZENS)])
    return _AGAIN[(byte >> 4) - first] if byte >> 4 >= first else ONCE


ALL: Final[frozenset[Kind]] = frozenset({"history", "batch", "size", "rank", "offset", "version", "again"})
WITHOUT: Final[dict[str, tuple[frozenset[Kind], str]]] = {
    "CAP-01": (ALL, "it asks for property keys, some before there is a session"),
    "DRG-14": (ALL, "its one step makes everything of its own, in threads"),
    "EXT-33": (frozenset({"batch"}), "one registration has the memory whose pages are looked at"),
    "IF-01": (ALL, "it looks at the first call of all"),
    "IF-02": (ALL, "it looks at the first call of all"),
    "IF-04": (ALL, "it looks at the first call of all"),
    "IF-05": (ALL, "it looks at the table, before any call"),
    "IF-07": (ALL, "it is about what is answered before there is a backend"),
    "IF-08": (ALL, "it asks for texts of codes"),
    "IF-11": (ALL, "the first step opens the session, in a way of its own"),
    "IF-12": (ALL, "the first step opens the session, in a way of its own"),
    "IF-13": (ALL, "the first step opens the session, in a way of its own"),
    "PRE-10": (frozenset({"size", "rank"}), "it is about names, not about tensors"),
    "PRE-11": (frozenset({"size", "rank"}), "QnnBackend_validateOpConfig was asked of one shape"),
    "QLEAK-01": (ALL, "it measures the growth of a process over rounds of its own"),
    "QLEAK-02": (ALL, "it measures the growth of a process over rounds of its own"),
    "QLEAK-03": (ALL, "it measures the growth of a process over rounds of its own"),
    "QLEAK-05": (ALL, "it measures what a process keeps of a session that is its only one"),
    "QLEAK-06": (ALL, "it measures what a process keeps of its first session"),
    "QLEAK-07": (ALL, "it measures the growth of a process over rounds of its own"),
    "QLEAK-08": (ALL, "it measures the growth of a process over rounds of its own"),
    "QTHR-04": (ALL, "its one step makes a log and all else of its own, in threads"),
    "QTHR-06": (ALL, "its one step makes everything of its own, in threads"),
    "RPC-13": (ALL, "its one step makes everything of its own, in threads"),
    "SHB-13": (frozenset({"batch"}), "it counts the mappings of one buffer, and others would be among them"),
}
"""By rule: the kinds that its cases are made without, and why."""


def without(rule_id: str) -> frozenset[Kind]:
    """The kinds that a rule does without."""
    return WITHOUT[rule_id][0]

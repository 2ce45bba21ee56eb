"""Forms of context binaries."""

from __future__ import annotations

import dataclasses
import itertools
import struct
import zlib
from typing import Any

import msgspec

from pytest_qnn.qnn.abi.codes import TensorType
from pytest_qnn.qnn.reference.binaries import Binary, decode, encode
from pytest_qnn.qnn.reference.objects import Context
from tests.gallery.qnn.oddity import Odd, odd

_BLOCK = 4096
_SIZED = struct.Struct("<4sI")
_PARTS = struct.Struct("<4sIII")
"""Magic, bytes of the description and its CRC-32, bytes of the weights."""
_MORE = 10_000


@odd(
    "compressed-binaries",
    "a binary is compressed, and padded to whole blocks of 4 KiB",
    source="facts 4.2: the container is the backend's own; OFF-08 asks for refusals only",
    seen="sizes are multiples of 4096; no System library reads it",
    tried_by="OFF-03 OFF-07 OFF-08",
)
class Compressed(Odd):
    system = ""

    def serialise(self, context: Context) -> bytes:
        self.meet()
        packed = zlib.compress(super().serialise(context))
        whole = _SIZED.pack(b"ODDZ", len(packed)) + packed
        return whole + b"\xee" * (-len(whole) % _BLOCK)

    def read_binary(self, data: bytes) -> Binary:
        if len(data) < _SIZED.size or len(data) % _BLOCK:
            raise ValueError("not in whole blocks")
        magic, length = _SIZED.unpack_from(data)
        body = data[_SIZED.size : _SIZED.size + length]
        padding = data[_SIZED.size + length :]
        if magic != b"ODDZ" or len(body) != length or padding.strip(b"\xee") or len(padding) >= _BLOCK:
            raise ValueError("none of ours")
        try:
            return super().read_binary(zlib.decompress(body))
        except zlib.error as error:
            raise ValueError(str(error)) from None


@odd(
    "size-is-a-bound",
    "contextGetBinarySize gives a bound: the binary is 10,000 bytes shorter, as writtenBufferSize then says",
    source="facts OFF-07, 2.1: contextGetBinary writes how much it wrote",
    seen="written is less than the size that was asked for; what fits the binary is large enough",
    tried_by="OFF-03 OFF-07",
)
class SizeIsABound(Odd):
    def context_get_binary_size(self, context: int | None, out: Any) -> None:
        super().context_get_binary_size(context, out)
        self.meet()
        out[0] += _MORE


@odd(
    "binaries-differ",
    "every binary has a number of its own: two of one context are not equal",
    source="facts 2.1 reports equal ones of libQnnHtp; no document asks for them",
    seen="two contextGetBinary of one context give other bytes of one size",
    tried_by="OFF-03 OFF-01",
)
class Differ(Odd):
    system = ""
    _numbers = itertools.count(1)

    def serialise(self, context: Context) -> bytes:
        self.meet()
        return super().serialise(context) + next(self._numbers).to_bytes(8, "little")

    def read_binary(self, data: bytes) -> Binary:
        return super().read_binary(data[:-8])


@odd(
    "binaries-end-where-they-say",
    "a binary says how long it is, whatever lies behind it, and its weights have no checksum",
    source="facts OFF-08: truncated, garbage or foreign binaries are refused; this is none of them",
    seen="a binary with bytes behind its end is taken; one with another weight computes with that weight",
    tried_by="OFF-08 OFF-03 EXT-17",
)
class EndWhereTheySay(Odd):
    system = ""

    def serialise(self, context: Context) -> bytes:
        whole = decode(super().serialise(context))
        weights = bytearray()
        graphs = []
        for graph in whole.graphs:
            tensors = []
            for tensor in graph.tensors:
                weights += tensor.data or b""
                tensors.append(dataclasses.replace(tensor, data=None))
            graphs.append(msgspec.structs.replace(graph, tensors=tuple(tensors)))
        body = encode(msgspec.structs.replace(whole, graphs=tuple(graphs)))
        return _PARTS.pack(b"ODDW", len(body), zlib.crc32(body), len(weights)) + body + bytes(weights)

    def read_binary(self, data: bytes) -> Binary:
        if len(data) < _PARTS.size:
            raise ValueError("too short")
        magic, length, checksum, weights = _PARTS.unpack_from(data)
        body = data[_PARTS.size : _PARTS.size + length]
        if magic != b"ODDW" or len(data) < _PARTS.size + length + weights or zlib.crc32(body) != checksum:
            raise ValueError("none of ours, or not all of it")
        whole = decode(body)
        at = _PARTS.size + length
        graphs = []
        for graph in whole.graphs:
            tensors = []
            for tensor in graph.tensors:
                filled = tensor
                if tensor.type in (TensorType.STATIC, TensorType.UPDATEABLE_STATIC):
                    filled = dataclasses.replace(tensor, data=data[at : at + tensor.size])
                    at += tensor.size
                tensors.append(filled)
            graphs.append(msgspec.structs.replace(graph, tensors=tuple(tensors)))
        if at - _PARTS.size - length != weights:
            raise ValueError("other weights than were said")
        self.meet()
        return msgspec.structs.replace(whole, graphs=tuple(graphs))

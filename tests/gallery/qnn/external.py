"""Weights and spill-fill memory of clients."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from pytest_qnn.qnn.abi.codes import Error, HtpContextOption
from pytest_qnn.qnn.reference.binaries import Binary
from pytest_qnn.qnn.reference.execute import Stored
from pytest_qnn.qnn.reference.objects import Binding, Context, Graph, QnnError, Request, Tensor
from pytest_qnn.qnn.reference.personalities import DEFAULT
from pytest_qnn.qnn.reference.registrations import SPILL, WEIGHTS
from tests.gallery.qnn.oddity import Odd, odd

_INVALID = Error.MEM_ERROR_INVALID_ARGUMENT
_KEY = 0xA5


class _Aligned(Odd):
    alignment: ClassVar[int]

    def context_property(self, context: Context, option: int) -> int:
        found = super().context_property(context, option)
        if option == HtpContextOption.BUFFER_START_ALIGNMENT:
            self.meet()
            return self.alignment
        return found

    def check_alignment(self, request: Request) -> None:
        if request.offset % self.alignment:
            raise QnnError(_INVALID)


@odd(
    "alignment-of-one-byte",
    "external memory may begin anywhere: the alignment is 1",
    source="seed 002, step 2: the property says it (e.g. 4 KB); facts EXT-03: a power of two",
    seen="BUFFER_START_ALIGNMENT is 1, an offset of 1 is taken",
    tried_by="EXT-03 EXT-08 EXT-12",
)
class OneByte(_Aligned):
    alignment = 1


@odd(
    "alignment-of-2-mib",
    "external memory begins at a multiple of 2 MiB",
    source="seed 002, step 2: the property says it; facts EXT-03: a power of two",
    seen="BUFFER_START_ALIGNMENT is 0x200000, an offset of a page is refused",
    tried_by="EXT-03 EXT-08 EXT-12",
)
class TwoMiB(_Aligned):
    alignment = 2 << 20


@odd(
    "needs-that-are-no-pages",
    "the sizes that are asked for are odd numbers of bytes, larger than what is stored",
    source="seed 002, step 3: at least the size of the property, which is a multiple of nothing",
    seen="WEIGHTS_BUFFER_SIZE is 3 MiB and 7 bytes",
    tried_by="EXT-03 EXT-06 EXT-07 EXT-17",
)
class NoPages(Odd):
    def needed_weights(self, binary: Binary) -> int:
        self.meet()
        return super().needed_weights(binary) + (3 << 20) + 7

    def needed_spill(self, binary: Binary) -> int:
        return super().needed_spill(binary) + 100_001


@odd(
    "weights-are-encoded",
    "weights are stored from the end of their memory to its beginning, each byte changed",
    source="seed 002, step 5: the weights are copied to the memory by QNN; how they are laid out is not said",
    seen="other bytes than those of the tensors, at the end of the memory",
    tried_by="EXT-17 EXT-20",
)
class Encoded(Odd):
    def place(self, context: Context) -> None:
        super().place(context)
        assert context.external is not None
        if WEIGHTS not in context.external.memory:
            return
        self.meet()
        memory, offset = context.external.memory[WEIGHTS]
        whole = memory.view(offset, context.external.needed[WEIGHTS])
        whole[:] = whole[::-1].copy() ^ np.uint8(_KEY)

    def constant(self, graph: Graph, tensor: Tensor, data: bytes) -> Stored:
        external = graph.context.external
        if tensor.placed < 0 or external is None:
            return super().constant(graph, tensor, data)
        memory, offset = external.memory[WEIGHTS]
        end = external.needed[WEIGHTS] - tensor.placed
        kept = memory.view(offset + end - tensor.size, tensor.size)
        found: Stored = kept[::-1] ^ np.uint8(_KEY)
        return found


@odd(
    "spill-fill-is-scratch",
    "all of the spill-fill memory is overwritten before and after each execute",
    source="seed 002, steps 3 and 4: QNN alone changes its contents, its size is the largest need",
    seen="other bytes in all of it after each execute",
    tried_by="EXT-12 EXT-26 EXT-20",
)
class Scratch(Odd):
    def needed_spill(self, binary: Binary) -> int:
        return super().needed_spill(binary) + 4096

    def carry_out(self, graph: Graph, sources: list[Binding], sinks: list[Binding]) -> None:
        self._scribble(graph, 0x3C)
        super().carry_out(graph, sources, sinks)
        self._scribble(graph, 0xC3)

    def _scribble(self, graph: Graph, pattern: int) -> None:
        external = graph.context.external
        if external is not None and SPILL in external.memory:
            self.meet()
            memory, offset = external.memory[SPILL]
            memory.view(offset, external.needed[SPILL])[:] = pattern


@odd(
    "fixed-is-not-permitted",
    "external memory that a context uses cannot be deregistered: that is not permitted (1005)",
    source="seed 002, step 5; facts 7.12: the code is not specified",
    seen="1005 instead of 8001",
    tried_by="EXT-21 EXT-22",
)
class FixedIsNotPermitted(Odd):
    def mem_deregister(self, handles: Any, count: int) -> None:
        fixed = bool(handles) and any(
            (found := self.registrations.get(handles[i] or 0)) is not None and self.is_fixed(found)
            for i in range(count)
        )
        try:
            super().mem_deregister(handles, count)
        except QnnError as error:
            if fixed and error.code == Error.MEM_ERROR_INVALID_HANDLE:
                self.meet()
                raise QnnError(Error.COMMON_ERROR_OPERATION_NOT_PERMITTED) from None
            raise


@odd(
    "no-spill-fill-but-weights",
    "only weights are asked for, in steps of 2 MiB; spill-fill memory is taken though none is needed",
    source="facts 2.1: libQnnHtp asks for 0 bytes of spill-fill, and for multiples of 0x200000 of weights",
    seen="property 2 is 0, property 3 a multiple of 2 MiB",
    tried_by="EXT-03 EXT-06 EXT-11",
)
class WeightsOnly(Odd):
    chosen = dataclasses.replace(DEFAULT, spill_fill=False)

    def needed_weights(self, binary: Binary) -> int:
        self.meet()
        return -(-max(1, super().needed_weights(binary)) // (2 << 20)) * (2 << 20)

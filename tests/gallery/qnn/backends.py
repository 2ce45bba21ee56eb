"""Backends that are not the HTP, and backends without memory handles."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import Error, TensorMemType, TensorType
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT
from tests.gallery.qnn.oddity import Odd, odd

_IO = (TensorType.APP_WRITE, TensorType.APP_READ)


class _WithoutHandles(Odd):
    chosen = dataclasses.replace(DEFAULT, memory=False, ion=False, custom=False, deferred=False)


@odd(
    "executes-no-handles",
    "keys 502 and 1101 deny memory handles, and an execute with one answers 1000",
    source="facts EXE-03 and EXE-05: of a backend with key 502; QnnGraph.h lists UNSUPPORTED_FEATURE",
    seen="1000 and not 6004",
    tried_by="EXE-03 EXE-05",
)
class ExecutesNoHandles(_WithoutHandles):
    def bind(self, graph: Any, tensor: Any, given: Any) -> Any:
        if given.memType == TensorMemType.MEMHANDLE:
            self.meet()
            raise QnnError(Error.COMMON_ERROR_NOT_SUPPORTED)
        return super().bind(graph, tensor, given)


@odd(
    "creates-no-handles",
    "keys 502 and 1101 deny memory handles, and a tensor that is created with one answers 1000",
    source="QnnTensor.h, QnnTensor_createGraphTensor: UNSUPPORTED_FEATURE",
    seen="1000 and not 7004",
    tried_by="PRE-01",
)
class CreatesNoHandles(_WithoutHandles):
    def check_preset(self, given: Any) -> None:
        if given.type in _IO and given.memType == TensorMemType.MEMHANDLE and given.memHandle:
            self.meet()
            raise QnnError(Error.COMMON_ERROR_NOT_SUPPORTED)
        super().check_preset(given)


@odd(
    "hint-without-effect",
    "it is no HTP (id 3): memory type MEMHANDLE is taken at creation and changes nothing",
    source="seed 001: a hint that informs the HTP backend",
    seen="IO buffers that every tensor's hint denies",
    tried_by="PRE-04 OFF-02 QMG-01",
)
class HintWithoutEffect(Odd):
    backend_id = 3
    chosen = dataclasses.replace(DEFAULT, custom=False, deferred=False)

    def wants_buffer(self, graph: Any, tensor: Any) -> bool:
        self.meet()
        return True


@odd(
    "properties-of-its-own",
    "it is no HTP (id 3), and defers initialisation: the HTP's properties of contexts are none of its",
    source="QnnHtpContext.h: QnnHtpContext_GetPropertyOption_t is the HTP's",
    seen="1000 for the alignment and the sizes",
    tried_by="CAP-06 EXT-03 EXT-04 EXT-05 EXT-06",
)
class PropertiesOfItsOwn(Odd):
    backend_id = 3

    def context_property(self, context: Any, option: int) -> int:
        self.meet()
        raise QnnError(Error.COMMON_ERROR_NOT_SUPPORTED)


@odd(
    "sizes-vary-below-a-bound",
    "the size of a binary is a bound, and each binary has 1 to 8 bytes that it does not need, by turns",
    source="QnnContext.h, QnnContext_getBinary: writtenBufferSize is what was written",
    seen="a binary fits into a smaller buffer than the one before it",
    tried_by="OFF-07 OFF-11 OFF-03",
)
class SizesVary(Odd):
    system: ClassVar[str] = ""
    _padding: ClassVar[Iterator[int]] = itertools.cycle(range(1, 9))

    def serialise(self, context: Any) -> bytes:
        self.meet()
        number = next(self._padding)
        return super().serialise(context) + bytes([number]) * number

    def read_binary(self, data: bytes) -> Any:
        if not data or not 1 <= data[-1] <= 8:
            raise ValueError("the binary has no end")
        return super().read_binary(data[: -data[-1]])

    def context_get_binary_size(self, context: int, out: Any) -> None:
        super().context_get_binary_size(context, out)
        out[0] += 1024 - (out[0] % 16)

"""Backends that are not the HTP or have no memory handles, and what a header's list of codes leaves open."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, ClassVar

from pytest_qnn.qnn.abi.codes import ContextOption, Error, TensorMemType, TensorType
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.mapping import at
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT
from pytest_qnn.qnn.reference.registrations import WEIGHTS
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


@odd(
    "keeps-eight",
    "what the last eight registrations mapped that went with their context stays mapped",
    source="issue 12, legal choices: a bounded pool that is kept is no leak",
    seen="mappings of the client's memory behind contextFree, eight at most",
    meant="EXT-30",
    tried_by="CTX-01 CTX-10 DRG-10 QLEAK-01 QLEAK-02",
)
class KeepsEight(Odd):
    def __init__(self) -> None:
        self._kept: deque[Any] = deque()
        self._is_ending = False
        super().__init__()

    def free_context(self, context: Any) -> None:
        self._is_ending = True
        try:
            super().free_context(context)
        finally:
            self._is_ending = False

    def give_back(self, memory: Any) -> None:
        if not self._is_ending:
            super().give_back(memory)
            return
        self.meet()
        self._kept.append(memory)
        while len(self._kept) > 8:
            super().give_back(self._kept.popleft())


@odd(
    "clears-before-it-looks",
    "an execute clears its raw outputs, and looks at the handles of the others then",
    source="QnnGraph.h says nothing of the outputs of an execute that is refused",
    seen="zeros in the outputs of an execute that was refused",
    meant="EXE-12",
    tried_by="EXE-03 EXE-04 EXE-05 CTX-05",
)
class ClearsBeforeItLooks(Odd):
    def admit(self, graph: Any, inputs: Any, num_inputs: int, outputs: Any, *others: Any) -> Any:
        found = self.graphs.get(graph or 0)
        for i in range(others[0] if found is not None and found.finalised and outputs else 0):
            given = outputs[i].v1
            tensor = found.outputs.get(given.id)
            if tensor is None or given.memType != TensorMemType.RAW or not given.clientBuf.data:
                continue
            if given.clientBuf.dataSize >= tensor.size:
                self.meet()
                at(given.clientBuf.data, tensor.size)[:] = 0
        return super().admit(graph, inputs, num_inputs, outputs, *others)


@odd(
    "null-is-ill-formed",
    "memory type MEMHANDLE with a NULL handle is an ill-formed tensor (6000)",
    source="QnnGraph.h, QnnGraph_execute: INVALID_ARGUMENT where the tensors are ill-formed",
    seen="6000 and not 6004",
    tried_by="EXE-03 EXE-12",
)
class NullIsIllFormed(Odd):
    def bind(self, graph: Any, tensor: Any, given: Any) -> Any:
        if given.memType == TensorMemType.MEMHANDLE and not given.memHandle:
            self.meet()
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        return super().bind(graph, tensor, given)


@odd(
    "unknown-type-is-ill-formed",
    "a memory type that there is not makes a tensor of an execute an ill-formed one (6000)",
    source="QnnGraph.h, QnnGraph_execute: INVALID_ARGUMENT where the tensors are ill-formed",
    seen="6000 and not 6004",
    tried_by="EXE-13 EXE-12",
)
class UnknownTypeIsIllFormed(Odd):
    def bind(self, graph: Any, tensor: Any, given: Any) -> Any:
        if given.memType not in (TensorMemType.RAW, TensorMemType.MEMHANDLE):
            self.meet()
            raise QnnError(Error.GRAPH_ERROR_INVALID_ARGUMENT)
        return super().bind(graph, tensor, given)


@odd(
    "counts-in-the-weights",
    "behind the weights in their memory, of which it asks for a page more, it counts executes",
    source="seed 002, step 3: modifications are QNN's alone",
    seen="other bytes in the weights' memory after each execute",
    tried_by="EXT-17 EXT-12 EXT-20",
)
class CountsInTheWeights(Odd):
    def needed_weights(self, binary: Any) -> int:
        return super().needed_weights(binary) + 4096

    def carry_out(self, graph: Any, sources: Any, sinks: Any) -> None:
        super().carry_out(graph, sources, sinks)
        external = graph.context.external
        if external is not None and WEIGHTS in external.memory:
            self.meet()
            memory, offset = external.memory[WEIGHTS]
            memory.view(offset + external.needed[WEIGHTS] - 1, 1)[:] += 1


@odd(
    "loaded-graphs-take-no-tensors",
    "a graph out of a binary is no valid handle for QnnTensor_createGraphTensor (7001)",
    source="QnnTensor.h, QnnTensor_createGraphTensor: INVALID_HANDLE; no code is for a closed graph",
    seen="7001 and neither 1005 nor 6024",
    tried_by="OFF-09",
)
class LoadedGraphsTakeNoTensors(Odd):
    def tensor_create_graph_tensor(self, graph: Any, tensor: Any) -> None:
        owner = self.graphs.get(graph or 0)
        if owner is not None and owner.context.deserialised:
            self.meet()
            raise QnnError(Error.TENSOR_ERROR_INVALID_HANDLE)
        super().tensor_create_graph_tensor(graph, tensor)


@odd(
    "create-has-no-such-option",
    "QnnContext_create refuses the option DEFER_GRAPH_INIT, whatever its value, as an argument (5000)",
    source="QnnContext.h, QnnContext_create: INVALID_ARGUMENT; seed 002: the option is for binaries",
    seen="5000 also where the option says no",
    tried_by="EXT-02 EXT-31",
)
class CreateHasNoSuchOption(Odd):
    def context_create(self, backend: Any, device: Any, config: Any, out: Any) -> None:
        if out and any(each.option == ContextOption.DEFER_GRAPH_INIT for each in context_config(config)):
            self.meet()
            raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
        super().context_create(backend, device, config, out)

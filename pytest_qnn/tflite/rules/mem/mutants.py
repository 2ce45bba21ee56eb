"""Reference delegates with one fault each, for the rules of MEM."""

from __future__ import annotations

import ctypes
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference import delegate
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import DynamicDelegate
from pytest_qnn.tflite.trace import ScriptTrace

_VECTOR = 64
"""Bytes."""
_CUSTOM = 6
"""kTfLiteCustom."""
Values = npt.NDArray[Any]


@faulty_delegate("reads-tail", "Reads its inputs in vectors of 64 bytes, the last one too.", "MEM-03")
class _ReadsTail(ReferenceDelegate):
    """Reads whole vectors."""

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        if values is not None and values.nbytes % 16:
            start = view.tensor(context, index).data
            ctypes.string_at(start, -(-values.nbytes // _VECTOR) * _VECTOR)
        return values


@faulty_delegate("writes-tail", "Writes an element more where their number is odd.", "MEM-03")
class _WritesTail(ReferenceDelegate):
    """Writes one element more than there are where their number is odd: the last one again."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        if value.size % 2:
            beside = view.tensor(context, index).data + value.nbytes
            peek.array(beside, value.dtype, (1,))[0] = value.ravel()[-1]


@faulty_delegate("reads-before", "Reads before inputs of more than 8 elements.", "MEM-03")
class _ReadsBefore(ReferenceDelegate):
    """Looks at the element before the first one of inputs of more than eight."""

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        if values is not None and values.size > 8:
            ctypes.string_at(view.tensor(context, index).data - values.itemsize, values.itemsize)
        return values


@faulty_delegate("reads-one-behind", "Reads the element behind its inputs.", "MEM-17")
class _ReadsOneBehind(ReferenceDelegate):
    """Looks at the element behind the last one, as a loop does that loads the next operand ahead."""

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        if values is not None and view.tensor(context, index).allocation_type != layouts.ALLOCATION_MMAP_RO:
            ctypes.string_at(view.tensor(context, index).data + values.nbytes, values.itemsize)
        return values


@faulty_delegate("reads-constants-on", "Reads constants in vectors of 16 bytes, the last one too.", "MEM-17")
class _ReadsConstantsOn(ReferenceDelegate):
    """Reads whole vectors of constants."""

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        if values is not None and view.tensor(context, index).allocation_type == layouts.ALLOCATION_MMAP_RO:
            ctypes.string_at(view.tensor(context, index).data, -(-values.nbytes // 16) * 16)
        return values


@faulty_delegate("reads-outputs-on", "Looks behind outputs of an odd number of elements.", "MEM-17")
class _ReadsOutputsOn(ReferenceDelegate):
    """Stores pairs of elements, and reads what the last pair must leave as it is."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        if value.size % 2:
            ctypes.string_at(view.tensor(context, index).data + value.nbytes, value.itemsize)


@faulty_delegate("arena-only", "Writes no output that is a custom allocation.", "MEM-04")
class _ArenaOnly(ReferenceDelegate):
    """Leaves outputs alone that are not in the runtime's arena."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        if view.tensor(context, index).allocation_type != _CUSTOM:
            super().write_output(context, index, value)


@faulty_delegate("keeps-pointers", "Keeps the addresses of inputs from the first invoke.", "MEM-05", "MEM-13")
class _KeepsPointers(ReferenceDelegate):
    """Uses at every invoke the addresses that inputs had at the first one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._first: dict[tuple[int, int], Values | None] = {}

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        if values is not None and view.tensor(context, index).allocation_type == _CUSTOM:
            return self._first.setdefault((context, index), values)
        return values

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self._first.clear()


@faulty_delegate("rounds-addresses", "Takes addresses for multiples of 64.", "MEM-06")
class _RoundsAddresses(ReferenceDelegate):
    """Takes the address of an input for a multiple of 64."""

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        address = view.tensor(context, index).data if values is not None else 0
        if values is None or view.tensor(context, index).allocation_type != _CUSTOM:
            return values
        return peek.array(address // 64 * 64, values.dtype, values.shape)


@faulty_delegate("loads-aligned", "Dies of misaligned inputs.", "MEM-06", deadly=True)
class _LoadsAligned(ReferenceDelegate):
    """Uses an instruction that wants addresses of its operands to be multiples of 16."""

    def read_input(self, context: int, index: int) -> Values | None:
        values = super().read_input(context, index)
        custom = values is not None and view.tensor(context, index).allocation_type == _CUSTOM
        if custom and view.tensor(context, index).data % 16:
            ctypes.string_at(0)  # as an aligned load ends on another address
        return values


@faulty_delegate("rounds-constants", "Rounds the constants of the model.", "MEM-07")
class _RoundsConstants(ReferenceDelegate):
    """Quantises the constants of a kernel where they are."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        for index in inputs:
            constant = (
                index >= 0 and view.tensor(context, index).allocation_type == layouts.ALLOCATION_MMAP_RO
            )
            values = self.read_input(context, index) if constant else None
            if values is not None and values.dtype != np.int32 and values.size:
                values.ravel()[-1] = np.round(values.ravel()[-1] / 4) * 4 + 1
        return super().init(context, nodes, inputs, outputs)


@faulty_delegate("reads-absent", "Adds a bias that is absent.", "MEM-08")
class _ReadsAbsent(ReferenceDelegate):
    """Takes what stands before the tensors for an operand that is absent."""

    def read_input(self, context: int, index: int) -> Values | None:
        if index != layouts.OPTIONAL_TENSOR:
            return super().read_input(context, index)
        integer = any(tensor.dtype == "int8" for tensor in self.plan.tensors.values())
        return np.full((1,), 1 << 20, np.int32 if integer else np.float32)


@faulty_delegate("writes-empty", "Writes the first of no elements.", "MEM-09", deadly=True)
class _WritesEmpty(ReferenceDelegate):
    """Clears the first element of each output, be there one or not."""

    def write_output(self, context: int, index: int, value: Values) -> None:
        peek.array(view.tensor(context, index).data, value.dtype, (1,))[0] = 0
        super().write_output(context, index, value)


@faulty_delegate(
    "empty-is-one", "A result without elements has one in place of each dimension of 0.", "DOM-01", "MEM-09"
)
class _EmptyIsOne(DynamicDelegate):
    """Reserves an element at least, as a device's allocator may ask for, and says so."""

    def resize(self, context: int, index: int, shape: tuple[int, ...]) -> None:
        super().resize(context, index, tuple(max(1, each) for each in shape))

    def write_output(self, context: int, index: int, value: Values) -> None:
        if value.size:
            super().write_output(context, index, value)


@faulty_delegate(
    "empty-for-good", "Does nothing more for nodes that have met tensors without elements.", "MEM-09"
)
class _EmptyForGood(ReferenceDelegate):
    """Remembers it by interpreter and nodes: the runtime may make the kernel anew."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._idle: set[tuple[int, tuple[int, ...]]] = set()

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        key = context, kernel.nodes
        if any(index >= 0 and not view.tensor(context, index).bytes for index in kernel.inputs):
            self._idle.add(key)
        return layouts.OK if key in self._idle else super().kernel_invoke(context, kernel)


@faulty_delegate("empty-counts-once", "Plans no more elements than tensors had when they had none.", "MEM-09")
class _EmptyCountsOnce(ReferenceDelegate):
    """Writes no output that had no elements when a kernel was last invoked."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sizes: dict[tuple[int, int], int] = {}

    def write_output(self, context: int, index: int, value: Values) -> None:
        before = self._sizes.get((context, index), value.size)
        self._sizes[context, index] = value.size
        if before:
            super().write_output(context, index, value)


@faulty_delegate("fills-inside", "Writes tensors inside its partitions.", "MEM-10")
class _FillsInside(ReferenceDelegate):
    """Writes every result of a partition to its tensor, if that has an address."""

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        result = super().compute_node(kernel, node, operands)
        tensor = view.tensor(self._context, node.outputs[0])
        if tensor.data and node.outputs[0] not in kernel.outputs:
            peek.array(tensor.data, result.dtype, (result.size,))[:] = result.ravel()
        return result

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self._context = context
        return super().kernel_invoke(context, kernel)


@faulty_delegate("declares-sharing", "Declares an in-place kernel that is none.", "MEM-11")
class _DeclaresSharing(ReferenceDelegate):
    """Declares that input and output may share memory, and clears its outputs first."""

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        registration = layouts.Registration(
            init=delegate.INIT,
            free=delegate.FREE,
            prepare=delegate.KERNEL_PREPARE,
            invoke=delegate.KERNEL_INVOKE,
            custom_name=ctypes.addressof(self._name),
            version=1,
            inplace_operator=4,
        )
        table = layouts.Context.from_address(context)
        call = layouts.ReplaceNodeSubsets(table.ReplaceNodeSubsetsWithDelegateKernels)
        array = peek.int_array(nodes)
        status: int = call(context, registration, ctypes.addressof(array), self.address)
        return status

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        for index in kernel.outputs:
            tensor = view.tensor(context, index)
            peek.array(tensor.data, np.uint8, (tensor.bytes,))[:] = 0x41
        return super().kernel_invoke(context, kernel)


@faulty_delegate("looks-back", "Reads an output after its interpreter.", "MEM-14", deadly=True)
class _LooksBack(ReferenceDelegate):
    """Looks at its last output once more when it is destroyed."""

    last = 0

    def write_output(self, context: int, index: int, value: Values) -> None:
        super().write_output(context, index, value)
        tensor = view.tensor(context, index)
        if tensor.allocation_type == _CUSTOM:
            self.last = tensor.data

    def close(self) -> None:
        if self.last:
            ctypes.string_at(self.last, 1)
        self.last = 0
        super().close()


@faulty_runtime_of_scripts("accepts-small", "The runtime accepts buffers that are too small.", "MEM-12")
def _silent(trace: ScriptTrace) -> ScriptTrace:
    """Nothing ever failed."""
    steps = (msgspec.structs.replace(seen, ok=not seen.skipped, message="") for seen in trace.steps)
    return msgspec.structs.replace(trace, steps=tuple(steps))


@faulty_runtime_of_scripts(
    "recycles-an-output", "The planner gives the memory of an output to a later one.", "MEM-16"
)
def _recycled(trace: ScriptTrace) -> ScriptTrace:
    """The first of several outputs of an interpreter without delegates is overwritten by the last one."""
    if len(trace.interpreters) != _TWO or any(one.applied for one in trace.interpreters):
        return trace
    steps = list(trace.steps)
    for number, seen in enumerate(steps):
        if len(seen.outputs) > 1 and seen.cpu:
            first, *others = seen.outputs
            data = (others[-1].data + first.data[len(others[-1].data) :])[: len(first.data)]
            outputs = (msgspec.structs.replace(first, data=data), *others)
            steps[number] = msgspec.structs.replace(seen, outputs=outputs)
            break
    return msgspec.structs.replace(trace, steps=tuple(steps))


_TWO = 2
_ARENA = 2
"""kTfLiteArenaRw."""


@faulty_delegate("writes-elsewhere", "Writes a tensor of other nodes.", "MEM-01")
class _WritesElsewhere(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        tensors = view.tensors(context)
        own = [(tensors[index].data, tensors[index].data + tensors[index].bytes) for index in kernel.outputs]
        for index, tensor in enumerate(tensors):
            foreign = index not in kernel.inputs and index not in kernel.outputs
            apart = all(tensor.data + tensor.bytes <= begin or end <= tensor.data for begin, end in own)
            if foreign and apart and tensor.data and tensor.allocation_type == _ARENA:
                peek.array(tensor.data, np.uint8, (1,))[0] ^= 0xFF
                break
        return status


@faulty_delegate("writes-input", "Rectifies its inputs in place.", "MEM-02")
class _WritesInput(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        status = super().kernel_invoke(context, kernel)
        for index in kernel.inputs:
            values = self.read_input(context, index)
            if values is not None and view.tensor(context, index).allocation_type == _ARENA:
                np.maximum(values, 0, out=values)
        return status


@faulty_delegate("requests-too-little", "Requests a byte less than it writes.", "MEM-15", deadly=True)
class _RequestsTooLittle(ReferenceDelegate):
    """Takes the index of the last element for their number."""

    def use_heap(self, kernel: Kernel) -> None:
        size = kernel.result_bytes
        block = self.heap.request(max(0, size - 1))
        ctypes.memset(block, 0, size)
        self.heap.give_back(block)


@faulty_delegate(
    "reads-whole-vectors", "Reads its own work memory in vectors of 32 bytes.", "MEM-15", deadly=True
)
class _ReadsWholeVectors(ReferenceDelegate):
    """The last vector goes beyond the block, where the block does not end with one."""

    def use_heap(self, kernel: Kernel) -> None:
        size = kernel.result_bytes
        block = self.heap.request(size)
        ctypes.memset(block, 0, size)
        ctypes.string_at(block, -(-size // 32) * 32)
        self.heap.give_back(block)


@faulty_delegate("reads-freed-work", "Reads the work memory of the invoke before.", "MEM-15", deadly=True)
class _ReadsFreedWork(ReferenceDelegate):
    """Compares with the last result, whose block has been freed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._last = 0

    def use_heap(self, kernel: Kernel) -> None:
        if self._last:
            ctypes.string_at(self._last, 1)
        size = kernel.result_bytes
        self._last = self.heap.request(size)
        ctypes.memset(self._last, 0, size)
        self.heap.give_back(self._last)


class _WithWorkMemory(ReferenceDelegate):
    """Has work memory for each kernel, from its first invoke to its end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.work: dict[int, int] = {}
        """By the identity of a kernel: the address."""

    def use_heap(self, kernel: Kernel) -> None:
        if id(kernel) not in self.work:
            self.work[id(kernel)] = self.heap.request(kernel.result_bytes)

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        if id(kernel) in self.work and self.heap.is_checked:
            self.end_work(id(kernel))

    def end_work(self, key: int) -> None:
        """Give it back."""
        self.heap.give_back(self.work.pop(key))


@faulty_delegate("writes-a-header", "Writes a header before its work memory.", "MEM-15", deadly=True)
class _WritesAHeader(_WithWorkMemory):
    """Of a block it takes eight bytes more than there are, in front."""

    def end_work(self, key: int) -> None:
        ctypes.memset(self.work[key] - 8, 0, 8)
        super().end_work(key)


@faulty_delegate(
    "frees-work-again", "Frees the work memory of its kernels once more at its end.", "MEM-15", deadly=True
)
class _FreesWorkAgain(_WithWorkMemory):
    """A list of all work memory forgets none of it."""

    def end_work(self, key: int) -> None:
        self.heap.give_back(self.work[key])

    def close(self) -> None:
        if self.heap.is_checked:
            for block in self.work.values():
                self.heap.give_back(block)
            self.work.clear()
        super().close()


@faulty_delegate("unmaps-twice", "Unmaps the work memory of a kernel twice.", "MEM-15", deadly=True)
class _UnmapsTwice(_WithWorkMemory):
    """Its destructor and its free both do."""

    def use_heap(self, kernel: Kernel) -> None:
        if id(kernel) not in self.work:
            self.work[id(kernel)] = self.heap.map(_PAGE)

    def end_work(self, key: int) -> None:
        self.heap.unmap(self.work[key], _PAGE)
        self.heap.unmap(self.work.pop(key), _PAGE)


_PAGE = 4096

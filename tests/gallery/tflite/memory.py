"""Delegates that keep and place memory in other ways."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from typing import Any, ClassVar

import numpy as np

from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.reference import delegate as trampolines
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.dynamic import address_of, owned_int_array
from tests.gallery.tflite.odd import function, note, oddity, pointer_to, tensor

_Resize = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_free = _Free(("free", ctypes.CDLL(None)))
_ARENA_RW = 2
_TYPES = {"float32": layouts.TYPE_FLOAT32, "int8": layouts.TYPE_INT8, "int32": layouts.TYPE_INT32}


@oddity(
    "arena-at-create",
    "takes 256 KiB when it is made, and computes there",
    "seed 003: 'any preparation work needed (e.g. allocate buffers)', with no word on when",
    "a delegate costs memory before it is applied",
)
class ArenaAtCreate(ReferenceDelegate):
    SIZE: ClassVar[int] = 1 << 18

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.arena = np.zeros(self.SIZE, np.uint8)
        self.lock = threading.Lock()

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        if not 0 < value.nbytes <= self.SIZE:
            return value
        note(self)
        with self.lock:  # interpreters on other threads may use the same delegate
            place = self.arena[: value.nbytes].view(value.dtype).reshape(value.shape)
            place[...] = value
            return place.copy()


@oddity(
    "at-first-invoke",
    "makes everything that a kernel needs in its first invoke, and forgets it in each prepare",
    "common.h, TfLiteRegistration.init: one-time allocations should, not must, be made there",
    "the first invoke takes longer and allocates",
)
class AtFirstInvoke(ReferenceDelegate):
    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            self.blocks = getattr(self, "blocks", {})
        return kernel

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        self.blocks.pop(id(kernel), None)
        return super().kernel_prepare(context, kernel)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        if id(kernel) not in self.blocks:
            note(self)
            self.blocks[id(kernel)] = np.empty(1 << 12, np.uint8)
        return super().kernel_invoke(context, kernel)

    def free(self, kernel: Kernel) -> None:
        self.blocks.pop(id(kernel), None)


@oddity(
    "outputs-as-scratch",
    "fills its outputs with other values before it writes the results",
    "common.h, TfLiteRegistration.invoke: it outputs to node->outputs; what they hold meanwhile is its own",
    "nothing once invoke is over",
)
class OutputsAsScratch(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        for index in kernel.outputs:
            seen = tensor(context, index)
            if seen.data:
                ctypes.memset(seen.data, 0xA5, seen.bytes)
                note(self)
        return super().kernel_invoke(context, kernel)


@oddity(
    "resizes-outputs",
    "asks in prepare for its outputs to have the shape that they have",
    "common.h, TfLiteRegistration.prepare: 'context->ResizeTensor() can be called'",
    "nothing",
)
class ResizesOutputs(ReferenceDelegate):
    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        resize = function(context, "ResizeTensor", _Resize)
        for index in kernel.outputs:
            shape = owned_int_array(peek.integers(view.tensor(context, index).dims))
            if resize(context, address_of(context, index), shape):
                return layouts.ERROR
            note(self)
        return super().kernel_prepare(context, kernel)


def _scratch_prepare(context: int, node: int) -> int:
    found = trampolines._kernels.get(peek.pointer(node + layouts.Node.user_data.offset))
    if found is not None and isinstance(found[0], ScratchTensors):
        try:
            found[0].add_scratch(context, layouts.Node.from_address(node), found[1])
        except BaseException as error:
            found[0].errors.append(error.with_traceback(None))
            return layouts.ERROR
    return _kernel_prepare(context, node)


_kernel_prepare = layouts.KernelCall(trampolines.KERNEL_PREPARE)
_keep = layouts.KernelCall(_scratch_prepare)


@oddity(
    "scratch-tensors",
    "adds tensors to the interpreter, one for each result inside a partition, and computes there",
    "common.h, TfLiteContext.AddTensors, and TfLiteNode.temporaries",
    "more tensors in the interpreter than in the model, and more with each resize: kernels are made again, "
    "and no function takes a tensor away",
    "RSZ-05",
)
class ScratchTensors(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scratch: dict[int, dict[int, int]] = {}
        """By id of a kernel: tensor inside the partition -> tensor of the interpreter."""
        self.contexts: dict[int, int] = {}

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        made = super().registration(nodes)
        made.prepare = pointer_to(_keep)
        return made

    def add_scratch(self, context: int, node: layouts.Node, kernel: Kernel) -> None:
        inside = [step.outputs[0] for step in kernel.steps if step.outputs[0] not in kernel.outputs]
        if not inside:
            return
        if id(kernel) not in self.scratch:
            first = ctypes.c_int()
            add = function(context, "AddTensors", layouts.AddTensors)
            if add(context, len(inside), ctypes.addressof(first)):
                raise RuntimeError("AddTensors failed")
            self.scratch[id(kernel)] = {index: first.value + at for at, index in enumerate(inside)}
        places = self.scratch[id(kernel)]
        _free(node.temporaries)
        node.temporaries = owned_int_array(tuple(places.values()))
        resize = function(context, "ResizeTensor", _Resize)
        for index, place in places.items():
            made = tensor(context, place)
            made.type, made.allocation_type = _TYPES[kernel.tensors[index].dtype], _ARENA_RW
            shape = owned_int_array(kernel.tensors[index].shape)
            if resize(context, address_of(context, place), shape):
                raise RuntimeError("ResizeTensor failed")

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self.contexts[id(kernel)] = context
        return super().kernel_invoke(context, kernel)

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        value = super().compute_node(kernel, node, operands)
        context, places = self.contexts[id(kernel)], self.scratch.get(id(kernel), {})
        if node.outputs[0] not in places:
            return value
        note(self)
        self.write_output(context, places[node.outputs[0]], value)
        kept = self.read_input(context, places[node.outputs[0]])
        assert kept is not None
        return kept

    def free(self, kernel: Kernel) -> None:
        self.scratch.pop(id(kernel), None)


@oddity(
    "folds-constants",
    "copies constants in prepare, and computes there what depends on constants alone",
    "common.h, kTfLiteMmapRo: read-only memory, 'i.e. weights', which are there before any invoke",
    "nothing; the first invoke has less to do",
)
class FoldsConstants(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.known: dict[int, dict[int, Values]] = {}
        self.local = threading.local()

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        known = self.known[id(kernel)] = {}
        for index in kernel.inputs:
            if index >= 0 and view.tensor(context, index).allocation_type == layouts.ALLOCATION_MMAP_RO:
                value = super().read_input(context, index)
                assert value is not None
                known[index] = value.copy()
        with np.errstate(all="ignore"):
            for node in kernel.steps:
                if all(index in known for index in node.inputs if index >= 0):
                    given = [known[index] if index >= 0 else None for index in node.inputs]
                    known[node.outputs[0]] = super().compute_node(kernel, node, given)
        return super().kernel_prepare(context, kernel)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        self.local.known = self.known.get(id(kernel), {})
        return super().kernel_invoke(context, kernel)

    def read_input(self, context: int, index: int) -> Values | None:
        known: dict[int, Values] = self.local.known
        if index in known:
            note(self)
            return known[index]
        return super().read_input(context, index)

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        folded = self.local.known.get(node.outputs[0])
        return super().compute_node(kernel, node, operands) if folded is None else folded.copy()

    def free(self, kernel: Kernel) -> None:
        self.known.pop(id(kernel), None)


@oddity(
    "remembers",
    "gives the results of the invoke before where the inputs are the same",
    "TfLiteRegistration.invoke: results follow from inputs, and no document says how they are found",
    "a second invoke is quicker",
)
class Remembers(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.last: dict[int, tuple[list[bytes], list[Values]]] = {}

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        self.last.pop(id(kernel), None)
        return super().kernel_prepare(context, kernel)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        given = [
            b"" if value is None else value.tobytes()
            for value in (self.read_input(context, index) for index in kernel.inputs)
        ]
        kept = self.last.get(id(kernel))
        if kept is not None and kept[0] == given:
            note(self)
            for index, value in zip(kernel.outputs, kept[1], strict=True):
                self.write_output(context, index, value)
            return layouts.OK
        status = super().kernel_invoke(context, kernel)
        if not status:
            results = [self.read_input(context, index) for index in kernel.outputs]
            self.last[id(kernel)] = given, [value.copy() for value in results if value is not None]
        return status

    def free(self, kernel: Kernel) -> None:
        self.last.pop(id(kernel), None)


@oddity(
    "shared-cache",
    "keeps what it compiled for the last 32 partitions, for all delegates of the process",
    "seed 004: state of the process; legal-choices.md: a bounded pool that is kept is no leak",
    "a graph that was seen before is prepared from a cache",
)
class SharedCache(ReferenceDelegate):
    compiled: ClassVar[OrderedDict[tuple[Any, ...], tuple[Any, Any]]] = OrderedDict()
    MOST: ClassVar[int] = 32

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is None:
            return None
        named = sorted(
            {index for step in kernel.steps for index in (*step.inputs, *step.outputs) if index >= 0}
        )
        key = kernel.steps, tuple((index, repr(kernel.tensors[index])) for index in named)
        if key in self.compiled:
            note(self)
            self.compiled.move_to_end(key)
        else:
            self.compiled[key] = kernel.steps, {index: kernel.tensors[index] for index in named}
        kernel.steps, kernel.tensors = self.compiled[key]
        while len(self.compiled) > self.MOST:
            self.compiled.popitem(last=False)
        return kernel

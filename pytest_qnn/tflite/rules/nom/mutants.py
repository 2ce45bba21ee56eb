"""Reference delegates with one fault each, for the rules of NOM."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.graph.graph import Node
from pytest_qnn.tflite.mutants import faulty_delegate
from pytest_qnn.tflite.reference.delegate import Kernel, NoMemory, ReferenceDelegate, Values

_LONG: Final = 3600.0
"""Seconds."""
_WORK: Final = 4096
"""Bytes of a piece of memory."""
Operands = list[Values | None]


def _is_refused(call: Callable[[], object]) -> bool:
    """Whether the call failed because of a refusal of the system's."""
    try:
        call()
    except NoMemory:
        return True
    return False


@faulty_delegate(
    "nom-writes-to-null", "Memory that was refused is written to all the same.", "NOM-01", deadly=True
)
class _WritesToNull(ReferenceDelegate):
    def ask(self, wanted: str) -> None:
        ask = super().ask
        if _is_refused(lambda: ask(wanted)):
            if self.requests.wanted != "new":
                ctypes.memset(0, 0, 8)
            raise NoMemory


@faulty_delegate(
    "nom-waits",
    "Whoever finds no memory while a graph is prepared waits for some.",
    "NOM-01",
    deadly=True,
    timeout=1.0,
)
class _Waits(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        try:
            return super().prepare(context)
        except NoMemory:
            time.sleep(_LONG)
            raise

    def init(self, *arguments: Any) -> Kernel | None:
        try:
            return super().init(*arguments)
        except NoMemory:
            time.sleep(_LONG)
            raise


def _throw() -> None:
    """Do what a library in C++ does whose function lets std::bad_alloc through to its caller in C."""
    sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
    sys.stderr.flush()
    os.abort()


@faulty_delegate("nom-throws", "An allocation that throws is caught nowhere.", "NOM-02", deadly=True)
class _Throws(ReferenceDelegate):
    def ask(self, wanted: str) -> None:
        ask = super().ask
        if _is_refused(lambda: ask(wanted)):
            if self.requests.wanted == "new":
                _throw()
            raise NoMemory


@faulty_delegate(
    "nom-throws-in-invoke",
    "An allocation that throws is not caught in a kernel's invoke.",
    "NOM-02",
    deadly=True,
)
class _ThrowsInInvoke(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        try:
            return super().kernel_invoke(context, kernel)
        except NoMemory:
            if self.requests.wanted == "new":
                _throw()
            raise


@faulty_delegate(
    "nom-invoke-gives-up",
    "A kernel's invoke without memory for its work computes nothing and answers kTfLiteOk.",
    "NOM-03",
)
class _InvokeGivesUp(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        invoke = super().kernel_invoke
        status: list[int] = []
        refused = _is_refused(lambda: status.append(invoke(context, kernel)))
        return layouts.OK if refused else status[0]


@faulty_delegate(
    "nom-kernel-of-nothing",
    "A kernel whose init or prepare finds no memory is made all the same, and its results are zeros.",
    "NOM-03",
)
class _KernelOfNothing(ReferenceDelegate):
    nothing: Kernel | None = None

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        try:
            return super().init(context, nodes, inputs, outputs)
        except NoMemory:
            steps = tuple(self.plan.nodes[index] for index in nodes)
            self.nothing = Kernel(nodes, inputs, outputs, steps, self.plan.tensors)
            return self.nothing

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        prepare = super().kernel_prepare
        if _is_refused(lambda: prepare(context, kernel)):
            self.nothing = kernel
        return layouts.OK

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        values = super().compute_node(kernel, node, operands)
        return values * values.dtype.type(0) if kernel is self.nothing else values


@faulty_delegate(
    "nom-takes-of-others",
    "An invoke without memory takes that of all other delegates' kernels, whose results are zeros then.",
    "NOM-04",
)
class _TakesOfOthers(ReferenceDelegate):
    taken: ClassVar[set[int]] = set()
    """Delegates, by their addresses."""
    alive: ClassVar[set[int]] = set()

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.taken.discard(self.address)
        self.alive.add(self.address)

    def close(self) -> None:
        self.alive.discard(self.address)
        super().close()

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        try:
            return super().kernel_invoke(context, kernel)
        except NoMemory:
            self.taken.update(self.alive - {self.address})
            raise

    def compute_node(self, kernel: Kernel, node: Node, operands: Operands) -> Values:
        values = super().compute_node(kernel, node, operands)
        return values * values.dtype.type(0) if self.address in self.taken else values


@faulty_delegate(
    "nom-spoils-the-next",
    "An invoke that finds no memory makes each kernel's prepare fail of the delegate that is made next.",
    "NOM-04",
)
class _SpoilsTheNext(ReferenceDelegate):
    left: ClassVar[list[int]] = []
    """How many delegates are still made, itself included, until the one that fails; of each refusal."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.left[:] = [count - 1 for count in self.left if count > 0]
        self.spoilt = 0 in self.left

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        if self.spoilt:
            return layouts.ERROR
        return super().kernel_prepare(context, kernel)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        try:
            return super().kernel_invoke(context, kernel)
        except NoMemory:
            self.left.append(1)
            raise


@faulty_delegate("nom-stays-broken", "A kernel whose invoke found no memory once fails ever after.", "NOM-05")
class _StaysBroken(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        broken: set[int] = self.__dict__.setdefault("broken", set())
        if id(kernel) in broken:
            return layouts.ERROR
        try:
            return super().kernel_invoke(context, kernel)
        except NoMemory:
            broken.add(id(kernel))
            raise


@faulty_delegate(
    "nom-refuses-once-more",
    "A create that found no memory leaves a lock taken, and the next one fails.",
    "NOM-05",
)
class _RefusesOnceMore(ReferenceDelegate):
    locked: ClassVar[list[bool]] = []

    def __init__(self, **arguments: Any) -> None:
        if self.locked:
            self.locked.clear()
            raise NoMemory
        try:
            super().__init__(**arguments)
        except NoMemory:
            self.locked.append(True)
            raise


@faulty_delegate(
    "nom-keeps-descriptor", "Whoever finds no memory while a graph is prepared keeps a file open.", "NOM-06"
)
class _KeepsDescriptor(ReferenceDelegate):
    def _keeping(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except NoMemory:
            os.open(os.devnull, os.O_RDONLY)
            raise

    def prepare(self, context: int) -> int:
        prepare = super().prepare
        status: int = self._keeping(lambda: prepare(context))
        return status

    def init(self, *arguments: Any) -> Kernel | None:
        init = super().init
        kernel: Kernel | None = self._keeping(lambda: init(*arguments))
        return kernel

    def kernel_prepare(self, context: int, kernel: Kernel) -> int:
        prepare = super().kernel_prepare
        status: int = self._keeping(lambda: prepare(context, kernel))
        return status


@faulty_delegate(
    "nom-keeps-work-memory", "An invoke that finds no second piece of memory keeps its first.", "NOM-06"
)
class _KeepsWorkMemory(ReferenceDelegate):
    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        work = libc.malloc(_WORK)
        kept = True
        try:
            status = super().kernel_invoke(context, kernel)
            kept = False
        finally:
            if not kept:
                libc.free(work)
        return status

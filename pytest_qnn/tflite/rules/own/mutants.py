"""Reference delegates with one fault each, for the rules of OWN."""

from __future__ import annotations

import ctypes
import itertools
import os
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.mutants import faulty_delegate, faulty_runtime_of_scripts
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView
from pytest_qnn.tflite.trace import LentCounts, ScriptSeen, ScriptTrace

Values = npt.NDArray[Any]


@faulty_delegate("makes-in-create", "Leaks where it is never applied.", "OWN-03")
class _MakesInCreate(ReferenceDelegate):
    """Takes its memory when it is made, and gives it back with its first kernel."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._memory = libc.malloc(256)

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        ctypes.CDLL(None).free(ctypes.c_void_p(self._memory))
        self._memory = None


@faulty_delegate("shares-state", "The first free ends what all kernels use.", "OWN-04")
class _SharesState(ReferenceDelegate):
    """All kernels of one delegate share what the first of them made, and the first free ends it."""

    open = True

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        self.open = True
        return super().init(context, nodes, inputs, outputs)

    def free(self, kernel: Kernel) -> None:
        super().free(kernel)
        self.open = False

    def compute_node(self, kernel: Kernel, node: Any, operands: list[Values | None]) -> Values:
        result = super().compute_node(kernel, node, operands)
        return result if self.open else np.full_like(result, 99)


@faulty_delegate("once-init", "Works once: what is torn down is not set up again.", "OWN-05")
class _EverySecond(ReferenceDelegate):
    """A library that is set up by every second delegate only: what one tears down, the next one misses.

    That one leaves out its first node, if it has others: so it shows whichever of two comes first.
    """

    _made = itertools.count()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._set_up = next(self._made) % 2

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        return chosen if self._set_up or len(chosen) == 1 else chosen[1:]


@faulty_delegate(
    "refuses-second-model", "Fails in Prepare while a delegate of another model lives.", "OWN-06"
)
class _RefusesSecondModel(ReferenceDelegate):
    """The process has one device, set up for one model until the last delegate that uses it is destroyed.

    Delegates of one interpreter are of one model, whatever each of them claims.
    """

    _users: ClassVar[dict[int, tuple[int, tuple[Any, ...]]]] = {}
    """By delegate: its interpreter's context, then the operators of its model, and their dimensions."""

    def prepare(self, context: int) -> int:
        self._context = context
        return super().prepare(context)

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        chosen = super().choose(plan)
        model = tuple(
            (plan.nodes[n], *(plan.tensors[t].shape for t in plan.nodes[n].outputs)) for n in chosen
        )
        others = [other for user, other in self._users.items() if user != self.address]
        if any(context != self._context and other != model for context, other in others):
            raise RuntimeError("the device is in use")
        if chosen:
            self._users[self.address] = (self._context, model)
        return chosen

    def close(self) -> None:
        self._users.pop(self.address, None)
        super().close()


class _Contexts(ReferenceDelegate):
    """Each delegate that has work takes a context of the process, and gives it back when it is destroyed."""

    _alive: ClassVar[set[int]] = set()

    def prepare(self, context: int) -> int:
        status = super().prepare(context)
        if self.choose(self.plan) and self.address not in self._alive:
            self._alive.add(self.address)
            self.has_taken(len(self._alive))
        return status

    def has_taken(self, count: int) -> None:
        """A context more is in use: so many."""

    def close(self) -> None:
        self._alive.discard(self.address)
        super().close()


@faulty_delegate(
    "dies-at-36th",
    "Takes one of 35 contexts for each delegate, and the process dies where there is none left.",
    "OWN-06",
    deadly=True,
)
class _DiesAt36th(_Contexts):
    """That a context was not made is not looked at: what is no context is used."""

    _alive: ClassVar[set[int]] = set()

    def has_taken(self, count: int) -> None:
        if count > 35:
            os.abort()


@faulty_delegate(
    "recovers-late", "Where more than 32 were alive, the first one after all of them is refused.", "OWN-06"
)
class _RecoversLate(_Contexts):
    """That there is no context left is remembered until a delegate was refused and no other one is alive."""

    _alive: ClassVar[set[int]] = set()
    _full: ClassVar[list[bool]] = []

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        if self._full:
            if not self._alive:
                self._full.clear()
            raise RuntimeError("there is no context left")
        return super().choose(plan)

    def has_taken(self, count: int) -> None:
        if count > 32:
            self._full.append(True)


@faulty_delegate("numbers-in-five-bits", "The 33rd live kernel takes the place of the first.", "OWN-06")
class _NumbersInFiveBits(ReferenceDelegate):
    """Kernels are in a table of the process, by five bits; what stands there runs on memory of its own."""

    _table: ClassVar[dict[int, Kernel]] = {}
    _made: ClassVar[Any] = itertools.count()

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            kernel.number = next(self._made) % 32  # type: ignore[attr-defined] # the mutant's own memory
            self._table[kernel.number] = kernel  # type: ignore[attr-defined] # as above
        return kernel

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        found = self._table.get(kernel.number)  # type: ignore[attr-defined] # as above
        return super().kernel_invoke(context, kernel) if found is kernel else layouts.OK

    def free(self, kernel: Kernel) -> None:
        if self._table.get(kernel.number) is kernel:  # type: ignore[attr-defined] # as above
            del self._table[kernel.number]  # type: ignore[attr-defined] # as above
        super().free(kernel)


@faulty_runtime_of_scripts(
    "lets-delegates-go", "The runtime does not hold the delegates that it was given.", "OWN-01"
)
def _let_go(trace: ScriptTrace) -> ScriptTrace:
    """The interpreter does not hold what it was lent."""
    return msgspec.structs.replace(trace, steps=tuple(map(_freed_early, trace.steps)))


def _freed_early(seen: ScriptSeen) -> ScriptSeen:
    if not isinstance(seen.counts, LentCounts):
        return seen
    return msgspec.structs.replace(seen, counts=msgspec.structs.replace(seen.counts, kept=False))

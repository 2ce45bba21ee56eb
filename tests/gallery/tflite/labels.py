"""Delegates whose registrations say other things: names, versions, codes, a string for profiles, sharing."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values
from pytest_qnn.tflite.reference.plan import PlanView
from tests.gallery.tflite.odd import note, oddity, pointer_to, tensor

_INPUT_SHARED: Final = 0b11100
"""kTfLiteInplaceOpInput0Shared, -1Shared and -2Shared."""
_FURTHEST: Final = (1 << 31) - 1
_TEXT: Final = ctypes.create_string_buffer(b"odd %s kernel")
_ProfilingString = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def _profiling_string(_context: int, _node: int) -> int:
    return ctypes.addressof(_TEXT)


_keep: Final = _ProfilingString(_profiling_string)


class _Labelled(ReferenceDelegate):
    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        note(self, bool(nodes))
        made = super().registration(nodes)
        self.label(made)
        return made

    def label(self, made: layouts.Registration) -> None:
        raise NotImplementedError


@oddity(
    "nameless",
    "its kernels have no custom_name",
    "facts/tflite-delegates.md 11: TestDelegateKernel.WithoutName of delegate_test.cc",
    "a kernel without a name",
    "LIFE-13",
)
class Nameless(_Labelled):
    def label(self, made: layouts.Registration) -> None:
        made.custom_name = None


@oddity(
    "strange-name",
    "its kernels' name is long, of several scripts, and has percent signs and a line break",
    "common.h, TfLiteRegistration.custom_name: a C string; no document limits it",
    "the name in plans and messages",
)
class StrangeName(_Labelled):
    NAME: Final = ctypes.create_string_buffer(("100 %s %n \u00e4\u59d4\u6258\n" * 40).encode())

    def label(self, made: layouts.Registration) -> None:
        made.custom_name = ctypes.addressof(self.NAME)


@oddity(
    "empty-name",
    "its kernels' name is empty, its version the greatest there is, its code that of custom operators",
    "tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels: the runtime sets builtin_code by itself",
    "version and name of nodes in the plan",
    "LIFE-13",
)
class EmptyName(_Labelled):
    NAME: Final = ctypes.create_string_buffer(b"")

    def label(self, made: layouts.Registration) -> None:
        made.custom_name, made.version, made.builtin_code = ctypes.addressof(self.NAME), _FURTHEST, 32


@oddity(
    "version-zero",
    "its kernels have the code of delegates, the version 0, and a string for profiles",
    "seed 003: kernel_registration.builtin_code = kTfLiteBuiltinDelegate; common.h, profiling_string",
    "the string in profiles",
)
class VersionZero(_Labelled):
    def label(self, made: layouts.Registration) -> None:
        made.builtin_code, made.version = layouts.BUILTIN_DELEGATE, 0
        made.profiling_string = pointer_to(_keep)


@oddity(
    "in-place",
    "claims nodes of even index, and lets the runtime put the first output where an input is",
    "common.h, TfLiteInPlaceOp: kTfLiteInplaceOpInputNShared",
    "an input that nothing else reads may be overwritten by a kernel",
)
class InPlace(_Labelled):
    def label(self, made: layouts.Registration) -> None:
        made.inplace_operator = _INPUT_SHARED

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        made = ReferenceDelegate.registration(self, nodes)
        self.label(made)
        return made

    def choose(self, plan: PlanView) -> tuple[int, ...]:
        """With nodes of the CPU between them: a graph's own inputs and outputs are never shared."""
        return tuple(index for index in super().choose(plan) if index % 2 == 0)

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        inputs = {tensor(context, index).data for index in kernel.inputs if index >= 0} - {None}
        outputs = {tensor(context, index).data for index in kernel.outputs} - {None}
        note(self, len(inputs & outputs))
        return super().kernel_invoke(context, kernel)

    def read_input(self, context: int, index: int) -> Values | None:
        """A copy: the memory may be an output's."""
        value = super().read_input(context, index)
        return None if value is None else value.copy()


@oddity(
    "silent",
    "says nothing to the runtime of why it fails",
    "common.h, ReportError: a request that no callback has to make",
    "an exception with the runtime's own text only",
    "ERR-07",
)
class Silent(ReferenceDelegate):
    def explain(self, context: int, text: str) -> None:
        note(self)


@oddity(
    "talks",
    "says on standard error in each Prepare how many nodes it takes",
    "seed 000: 'INFO: TfLiteQnnDelegate delegate: 128 nodes delegated out of 128 nodes with 1 partitions.'",
    "a line on standard error for each subgraph",
)
class Talks(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        note(self)
        self.say(f"INFO: odd delegate: {len(nodes)} nodes delegated out of {len(self.plan.plan)} nodes.\n")
        return super().replace(context, nodes)

    def say(self, text: str) -> None:
        _write(2, text.encode(), len(text))


_write: Any = ctypes.CDLL(None).write

"""Delegates that ask the context in other ways: several calls, idle previews, questions asked again."""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate
from pytest_qnn.tflite.reference.plan import PlanView, has_node, read_plan
from pytest_qnn.tflite.reference.previewing import Preview
from tests.gallery.tflite.odd import function, note, oddity

SEVERAL = "facts/tflite-delegates.md, 'Measured later': several Replace calls within one Prepare are legal"
_MOST_SUBGRAPHS = 64
_GetExternal = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_GetMetadata = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


@oddity(
    "one-by-one",
    "claims each node by a call, the last first",
    SEVERAL,
    "a kernel for each node",
    "PART-15",
)
class OneByOne(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        for index in reversed(nodes):
            note(self)
            status = super().replace(context, (index,))
            if status:
                return status
        return layouts.OK


@oddity(
    "by-operator",
    "claims each operator by a call of its own, with a registration of its own name",
    SEVERAL,
    "kernels of one operator each, under different names",
    "PART-15",
)
class ByOperator(ReferenceDelegate):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.names: dict[str, Any] = {}

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        operators = dict.fromkeys(self.plan.nodes[index].op for index in nodes)
        for op in operators:
            note(self, len(operators) > 1)
            status = super().replace(context, tuple(i for i in nodes if self.plan.nodes[i].op == op))
            if status:
                return status
        return layouts.OK

    def registration(self, nodes: tuple[int, ...]) -> layouts.Registration:
        made = super().registration(nodes)
        op = self.plan.nodes[nodes[0]].op
        name = self.names.setdefault(op, ctypes.create_string_buffer(f"odd-{op}".encode()))
        made.custom_name = ctypes.addressof(name)
        return made


@oddity(
    "no-plan-no-claims",
    "where there is no plan it claims nothing, and succeeds",
    "tflite/delegates/delegate_test_util.cc, FP16Delegate: nothing is claimed where no partitions can be had",
    "success of a Prepare in which GetExecutionPlan failed",
)
class NoPlanNoClaims(ReferenceDelegate):
    def read(self, context: int) -> PlanView:
        try:
            return super().read(context)
        except RuntimeError:
            note(self)
            return PlanView((), {}, {}, set())


@oddity(
    "empty-calls",
    "calls Replace with an empty list before and after its claim",
    "tflite/core/subgraph.cc, ReplaceNodeSubsetsWithDelegateKernels: 'Ignore empty node replacement sets'",
    "nothing",
)
class EmptyCalls(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        note(self, bool(nodes))
        replace = super().replace
        return replace(context, ()) or replace(context, nodes) or replace(context, ())


@oddity(
    "shuffled",
    "names the nodes of its claim backwards, and some twice",
    "facts/tflite-delegates.md 7 (i): duplicate and unsorted claims are normalised",
    "nothing",
)
class Shuffled(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        found = super().choose(plan)
        note(self, len(found) > 1)
        return (*found[::-1], *found[::2])


@oddity(
    "no-empty-call",
    "does not call Replace where it claims nothing",
    "common.h, TfLiteDelegate.Prepare: it 'typically' calls Replace",
    "nothing",
)
class NoEmptyCall(ReferenceDelegate):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        found = super().choose(plan)
        return found if len(found) > 1 else ()

    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        if nodes:
            return super().replace(context, nodes)
        note(self)
        return layouts.OK


@oddity(
    "idle-previews",
    "previews halves of its claim, and then claims all without regard to them",
    "common.h, PreviewDelegatePartitioning: it shows what would become of a claim",
    "nothing",
)
class IdlePreviews(Preview):
    def choose(self, plan: PlanView) -> tuple[int, ...]:
        found = ReferenceDelegate.choose(self, plan)
        for some in (found[::2], found[: len(found) // 2], ()):
            self.preview(some)
            note(self, bool(some))
        return found


@oddity(
    "asks-again",
    "asks for plan, nodes, external contexts and metadata that it does not need, again and again",
    "common.h, TfLiteContext: GetExecutionPlan invalidates what it gave before; no call is limited",
    "nothing",
)
class AsksAgain(ReferenceDelegate):
    def read(self, context: int) -> PlanView:
        for _ in range(2):
            read_plan(context)
        external = function(context, "GetExternalContext", _GetExternal)
        for kind in range(4):
            external(context, kind)
        found, size = ctypes.c_void_p(), ctypes.c_size_t()
        get = function(context, "GetModelMetadata", _GetMetadata)
        get(context, b"no such metadata", ctypes.byref(found), ctypes.addressof(size))
        note(self)
        return super().read(context)

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        if not all(has_node(context, index) for index in (*nodes, *nodes)):
            return None
        return super().init(context, nodes, inputs, outputs)


@oddity(
    "peeks",
    "looks into every subgraph of the model, until there is none left",
    "common.h, AcquireSubgraphContext: status kTfLiteError for an index that is out of range",
    "nothing",
)
class Peeks(ReferenceDelegate):
    def prepare(self, context: int) -> int:
        acquire = function(context, "AcquireSubgraphContext", layouts.AcquireSubgraph)
        release = function(context, "ReleaseSubgraphContext", layouts.ReleaseSubgraph)
        found = ctypes.c_void_p()
        for index in range(_MOST_SUBGRAPHS):
            if acquire(context, index, ctypes.addressof(found)):
                break
            read_plan(found.value or 0, ())
            release(context, index)
            note(self)
        return super().prepare(context)


@oddity(
    "looks-after",
    "reads the plan and its own kernels once it has claimed",
    "common.h, GetExecutionPlan and GetNodeAndRegistration: valid while Prepare runs",
    "nothing",
)
class LooksAfter(ReferenceDelegate):
    def replace(self, context: int, nodes: tuple[int, ...]) -> int:
        status = super().replace(context, nodes)
        if not status:
            found = (ctypes.c_void_p * 2)()
            first = ctypes.addressof(found)
            get = function(context, "GetNodeAndRegistration", layouts.GetNodeAndRegistration)
            for index in read_plan(context, ()).plan:
                if get(context, index, first, first + 8):
                    return layouts.ERROR
                code = peek.integer(peek.pointer(first + 8) + layouts.Registration.builtin_code.offset)
                note(self, code == layouts.BUILTIN_DELEGATE)
        return status

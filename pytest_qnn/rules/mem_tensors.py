"""MEM: constants, absent, empty and hollow tensors, shared memory, and the runtime's check of sizes."""

from __future__ import annotations

from pytest_qnn.cases import script_strategies as cases
from pytest_qnn.cases.script import Allocate, Place, Read, ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import Kernel, ScriptTrace

_COMMON = "tflite/core/c/common.h"
_IN_PLACE = "inplace_operator"
_FIRST_SHARED = 1
"""kTfLiteInplaceOpInput0Shared."""


@rule(
    "MEM-07",
    Level.MUST,
    "Constant tensors are never written, and the model's bytes are the same after use.",
    source=f"{_COMMON}, kTfLiteMmapRo",
    subject="delegate",
    cases=cases.guarded,
    weight=0.4,
)
def leaves_constants_alone(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at constants in read-only pages, and at the whole model, during every callback of the target."""
    scripts.need_work(case, trace)
    for touch, kernel in scripts.by_target(trace, "constant"):
        scripts.accuse(case, trace, touch, kernel, "no byte of a constant written")
    seen = scripts.view(case, trace)
    reads = [kernel for kernel in support.target_kernels(seen[1]) if _constants(case, kernel)] if seen else []
    return Examined(len(reads) if scripts.target_invokes(trace) else 0, "kernels that read constants")


def _constants(case: ScriptCase, kernel: Kernel) -> list[int]:
    tensors = case.graphs[0].tensors
    return [t for t in kernel.inputs if 0 <= t < len(tensors) and tensors[t].data is not None]


@rule(
    "MEM-08",
    Level.MUST,
    "An optional operand that is absent (-1) is not looked up.",
    source=f"{_COMMON}, kTfLiteOptionalTensor",
    subject="delegate",
    cases=cases.without_bias,
    gate=("optional inputs",),
    weight=0.5,
)
def knows_absent_operands(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at FULLY_CONNECTED without bias in kernels of the target."""
    scripts.need_trace(trace)
    seen = scripts.view(case, trace)
    if seen is None or not scripts.target_invokes(trace):
        scripts.need_work(case, trace)
        return Examined(0, "absent operands")
    nodes = {node for kernel in support.live_target_kernels(seen[1]) for node in kernel.nodes}
    absent = sum(
        -1 in case.graphs[0].nodes[node].inputs for node in nodes if node < len(case.graphs[0].nodes)
    )
    if absent:
        outputs_are_right(*seen, "the CPU's values, which come of no bias")
    return Examined(absent, "absent operands")


@rule(
    "MEM-09",
    Level.SHOULD,
    "Tensors without elements, whose data may be NULL, give results without elements, or an error.",
    source=f"{_COMMON}, TfLiteTensor.bytes; docs/custom-allocations.md",
    subject="delegate",
    cases=cases.empty,
    gate=("float32",),
    weight=0.5,
)
def bears_empty_tensors(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the shape of the outputs; XNNPACK on tflite-runtime 2.14 fails cleanly, which is accepted."""
    scripts.need_trace(trace)
    for _, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Read) and seen.ok and seen.cpu and seen.outputs != seen.cpu:
            shapes = [output.shape for output in seen.outputs]
            raise Violation(f"outputs of shape {[array.shape for array in seen.cpu]}", f"shapes {shapes}")
    for touch, kernel in scripts.by_target(trace, "outside"):
        scripts.accuse(case, trace, touch, kernel, "nothing written to a tensor without elements")
    found = scripts.interpreter(trace)
    made = sum(found.applied[kernel.application].is_target for kernel in found.kernels) if found else 0
    return Examined(made, "kernels with empty tensors")


@rule(
    "MEM-10",
    Level.MUST,
    "Tensors inside a partition have no memory: the kernel does not touch what their data points to.",
    source="tflite/arena_planner.cc (plans the tensors of the execution plan only); docs/runtimes.md",
    subject="delegate",
    cases=cases.hollow,
    weight=0.4,
)
def knows_hollow_tensors(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at kernels of several nodes, with pages that must not be touched behind the tensors inside them.

    That a tensor inside a partition still has an address is nothing strange: where a delegate is applied
    after allocate_tensors, some keep that of an arena which has been freed.
    """
    scripts.need_work(case, trace)
    for touch, kernel in scripts.by_target(trace, "hollow"):
        scripts.accuse(case, trace, touch, kernel, "no data of a tensor inside the partition touched")
    found = scripts.interpreter(trace)
    inside = [kernel for kernel in found.kernels if len(kernel.nodes) > 1] if found else []
    return Examined(sum(found.applied[k.application].is_target for k in inside) if found else 0, "kernels")


@rule(
    "MEM-11",
    Level.MUST,
    "A kernel that declares that its first input and output may share memory is right when they do.",
    source="tflite/core/c/c_api_types.h, TfLiteInPlaceOp",
    subject="delegate",
    cases=cases.shared,
)
def declares_sharing_truly(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the registrations; where one declares it, also at results with both in one buffer."""
    scripts.need_work(case, trace)
    found, sharing = scripts.view(case, trace), scripts.view(case, trace, "i1")
    if found is None or sharing is None:
        return Examined(0, "registrations")
    declared = [r for a in found[1].applied if a.is_target for r in a.replaces]
    tensors = [
        step.tensor
        for _, step, seen in scripts.numbered(case, trace)
        if isinstance(step, Place) and step.interpreter == "i1" and seen.ok
    ]
    shared = any(_FIRST_SHARED & value for r in declared for name, value, _ in r.tail if name == _IN_PLACE)
    kernels = support.live_target_kernels(sharing[1])
    if (
        shared
        and len(tensors) == 2
        and len(sharing[1].plan) == 1
        and any(_shares(k, tensors) for k in kernels)
    ):
        outputs_are_right(*sharing, f"the CPU's values, with t{tensors[0]} and t{tensors[1]} in one buffer")
    return Examined(len(declared), "registrations")


def _shares(kernel: Kernel, tensors: list[int]) -> bool:
    return kernel.inputs[:1] == (tensors[0],) and kernel.outputs == (tensors[1],)


@rule(
    "MEM-12",
    Level.MUST,
    "A buffer that is too small is reported by allocate_tensors, before any kernel writes to it.",
    source="tflite/core/interpreter.h, SetCustomAllocationForTensor; docs/runtimes.md RT-03",
    subject="delegate",
    cases=cases.too_small,
    self_check=True,
    weight=0.5,
)
def reports_small_buffers(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at allocate_tensors on the CPU and behind static delegates.

    Behind a delegate that allows dynamic tensors the runtimes do not check outputs of partitions (RT-03);
    what comes of that is no delegate's fault, and not tried.
    """
    scripts.need_trace(trace)
    looked_at = 0
    small = -1
    for _, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Place) and seen.ok and seen.numbers["bytes"] < seen.numbers["size"]:
            small = step.tensor
        elif isinstance(step, Allocate) and small >= 0:
            looked_at += 1
            if "too small" not in seen.message:
                raise Violation(
                    f"allocate_tensors to refuse the buffer of t{small}", seen.message or "success"
                )
    for touch in trace.touches:
        if touch.why == "outside":
            scripts.accuse(case, trace, touch, None, "nothing written before the buffer is refused")
    return Examined(looked_at, "buffers that are too small")

"""MEM: tensors in the client's own memory (SetCustomAllocationForTensor).

Seed 000 is the workflow: request memory, wrap it as a TfLiteCustomAllocation, assign it, allocate tensors,
modify the graph with the delegate, invoke, free the memory, delete the delegate.
"""

from __future__ import annotations

from pytest_qnn.cases import script_strategies as cases
from pytest_qnn.cases.script import FreeBuffer, Place, Read, ScriptCase, flat
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import ScriptTrace

_SEED = "seeds/000 (Running Inference Using Shared Memory)"
_HEADER = "tflite/core/interpreter.h, SetCustomAllocationForTensor"


@rule(
    "MEM-03",
    Level.MUST,
    "A kernel writes no byte outside its tensors' data, and reads none before it or 16 and more behind it.",
    source="tflite/core/c/common.h, TfLiteTensor.data and bytes; xnnpack.h, XNN_EXTRA_BYTES",
    subject="delegate",
    cases=cases.guarded,
    weight=0.7,
)
def stays_inside(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the pages and bytes beside placed tensors, constants included, around each invoke.

    Vector kernels, XNNPACK's among them, read up to 16 bytes behind the data and forget them. With data that
    ends there, whatever its alignment, a read of one byte more is noticed; a target that dies of the
    alignment alone is not judged by such cases.
    """
    scripts.need_work(case, trace)
    for touch, kernel in scripts.by_target(trace, "outside"):
        scripts.accuse(case, trace, touch, kernel, "no byte touched but those of the tensors' data")
    return Examined(scripts.target_invokes(trace) if _placed(case, trace) else 0, "guarded invokes")


@rule(
    "MEM-04",
    Level.MUST,
    "Results are right with tensors in custom allocations, of the exact size or larger, assigned any time.",
    source=f"{_HEADER}; {_SEED}, steps 1 to 3",
    subject="delegate",
    cases=cases.placed,
    weight=0.4,
)
def works_in_foreign_memory(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs; a buffer that is refused, or is too small, and then replaced does no harm.

    What fails on an interpreter with memory of the runtime's own too is not judged here.
    """
    scripts.need_trace(trace)
    alone = scripts.view(case, trace, "i1")
    if alone is None or support.blame(alone[1]) or not _placed(case, trace):
        scripts.need_work(case, trace)
        return Examined(0, "placed tensors")
    return Examined(_right_numbers(case, trace) * _placed(case, trace), "placed tensors")


@rule(
    "MEM-05",
    Level.MUST,
    "After a tensor was assigned another buffer, and allocate_tensors called, the delegate uses that one.",
    source=f"{_HEADER} (assigns or reassigns); {_SEED}, running example",
    subject="delegate",
    cases=cases.replaced(allocate=True),
    weight=0.4,
)
def follows_the_pointer(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs of the second invoke, which has other inputs in other buffers."""
    return _after_replacement(case, trace)


@rule(
    "MEM-06",
    Level.SHOULD,
    "With SkipAlignCheck and misaligned buffers, results are right or there is an error.",
    source="tflite/core/c/common.h, kTfLiteCustomAllocationFlagsSkipAlignCheck; docs/custom-allocations.md",
    subject="delegate",
    cases=cases.misaligned,
    weight=0.4,
)
def bears_misalignment(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the outputs; that the process ends is a crash."""
    if trace.misaligned:
        raise Violation("right results, or an error", "the process died of the buffers' alignment")
    scripts.need_trace(trace)
    seen = scripts.view(case, trace)
    if seen is None or support.blame(seen[1]) or not scripts.target_invokes(trace):
        return Examined(0, "invokes with misaligned buffers")
    return Examined(_right_numbers(case, trace), "invokes with misaligned buffers")


@rule(
    "MEM-13",
    Level.SHOULD,
    "A tensor may be assigned another buffer between invokes, and it is used without allocate_tensors too.",
    source="tflite/interpreter_test.cc, CustomInputAlloc_AllocateTensorsBefore; docs/custom-allocations.md",
    subject="delegate",
    cases=cases.replaced(allocate=False),
    weight=0.4,
)
def follows_the_pointer_at_once(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """As MEM-05. Both runtimes' own kernels and XNNPACK do so."""
    return _after_replacement(case, trace)


@rule(
    "MEM-14",
    Level.MUST,
    "Memory of an interpreter's tensors may be freed once it is gone: the delegate, still alive, lets it be.",
    source=f"{_HEADER} (outlives the interpreter); {_SEED}, step 4 and the order of deletion",
    subject="delegate",
    cases=cases.outlived,
    weight=0.4,
)
def lets_memory_go(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at memory given back, while the delegate works for another interpreter and is destroyed."""
    scripts.need_work(case, trace)
    for touch in trace.touches:
        if touch.why == "given-back":
            scripts.accuse(case, trace, touch, None, "no byte touched of memory that was given back")
    freed = sum(seen.ok for _, step, seen in scripts.numbered(case, trace) if isinstance(step, FreeBuffer))
    return Examined(freed if scripts.target_invokes(trace) else 0, "buffers given back")


def _placed(case: ScriptCase, trace: ScriptTrace) -> int:
    return sum(seen.ok for _, step, seen in scripts.numbered(case, trace) if isinstance(step, Place))


def _after_replacement(case: ScriptCase, trace: ScriptTrace) -> Examined:
    scripts.need_trace(trace)
    last = max((n for n, step, _ in scripts.numbered(case, trace) if isinstance(step, Place)), default=0)
    if not any(isinstance(step, Read) for step in flat(case.steps)[:last]) or not _placed(case, trace):
        return Examined(0, "buffers replaced")
    before = scripts.view(case, trace, upto=last)
    if before is None or not before[1].outputs or not scripts.target_invokes(trace):
        scripts.need_work(case, trace)
        return Examined(0, "buffers replaced")
    return Examined(_right_numbers(case, trace), "buffers replaced")


def _right_numbers(case: ScriptCase, trace: ScriptTrace) -> int:
    """1, if the interpreter's last results could be judged and are right.

    Raises:
        Violation: they are not, or something failed that must not.
    """
    seen = scripts.view(case, trace)
    if seen is None or not scripts.target_invokes(trace):
        return 0
    blamed = support.blame(seen[1])
    if blamed:
        raise Violation("every call to succeed", blamed, picture=support.draw(*seen))
    outputs_are_right(*seen, "the CPU's values, from and in the client's memory")
    return len(seen[1].outputs)

"""What rules about buffer handles share: who keeps results in buffers, and what is unsupported for others."""

from __future__ import annotations

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.script import CopyFrom, ScriptCase
from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import BufferCall, BufferFunctions, DelegateTrace, Handled, InterpreterSeen, ScriptTrace
from pytest_qnn.trace import ScriptSeen as Seen


def opened(trace: ScriptTrace, name: str = "i0") -> InterpreterSeen:
    """The interpreter, which the target was applied to.

    Raises:
        Unsupported: there is nothing to be seen of it.
    """
    scripts.need_trace(trace)
    found = scripts.interpreter(trace, name)
    if found is None or not any(one.is_target and one.ok for one in found.applied):
        raise Unsupported("the delegate was not applied", settled=False)
    return found


def boundary(found: InterpreterSeen, *, inputs: bool = False) -> list[Handled]:
    """Outputs of the target's kernels right after each invoke; or stale inputs right before."""
    return [
        one
        for one in found.handled
        if one.is_input is inputs and found.applied[found.kernels[one.kernel].application].is_target
    ]


def stale_outputs(found: InterpreterSeen) -> list[Handled]:
    """Outputs that the target's kernels have left stale: their results are in buffers.

    Raises:
        Unsupported: there are none.
    """
    stale = [one for one in boundary(found) if one.stale]
    if not stale:
        has = any(functions.copy_from for functions in target_functions(found))
        reason = "keeps no results in buffers: no kernel has set data_is_stale"
        text = f"the delegate {reason}" + ("" if has else ", and CopyFromBufferHandle is NULL")
        raise Unsupported(text, settled=not has)
    return stale


def target_functions(found: InterpreterSeen) -> list[BufferFunctions]:
    """The functions for buffer handles of each delegate of the target."""
    return [one for one, applied in zip(found.functions, found.applied, strict=False) if applied.is_target]


def calls(found: InterpreterSeen, kind: str) -> list[BufferCall]:
    """Calls of one of the target's functions for buffer handles."""
    return [
        call
        for call in found.buffer_calls
        if call.kind == kind and call.application >= 0 and found.applied[call.application].is_target
    ]


def where(found: InterpreterSeen, one: Handled) -> str:
    """Which tensor and kernel it is about."""
    return f"t{one.tensor}, kernel {one.kernel} of nodes {list(found.kernels[one.kernel].nodes)}"


def seen_as_case(
    case: ScriptCase, trace: ScriptTrace, name: str = "i0", upto: int | None = None
) -> tuple[DelegateCase, DelegateTrace]:
    """One interpreter as a delegate case.

    Raises:
        Unsupported: it was not opened.
    """
    seen = scripts.view(case, trace, name, upto)
    if seen is None:
        raise Unsupported("the interpreter was not opened", settled=False)
    return seen


def reads_right(case: ScriptCase, trace: ScriptTrace, expected: str, name: str = "i0") -> int:
    """Judge every Read of the interpreter; how many there were.

    Raises:
        Violation: an output is gravely wrong.
    """
    judged = 0
    for number, step, seen in scripts.numbered(case, trace):
        if (
            type(step).__name__ == "Read"
            and getattr(step, "interpreter", "") == name
            and seen.ok
            and seen.cpu
        ):
            outputs_are_right(*seen_as_case(case, trace, name, number + 1), expected)
            judged += 1
    return judged


def need_success(case: ScriptCase, trace: ScriptTrace, expected: str, name: str = "i0") -> None:
    """Raises Violation where an allocate or invoke of the interpreter failed, or a kernel of the target."""
    view = seen_as_case(case, trace, name)
    failed = support.blame(view[1]) or support.failure(view[1])
    if failed:
        raise Violation(expected, failed, f"interpreter {name}", support.draw(*view))


def copies(case: ScriptCase, trace: ScriptTrace) -> list[tuple[int, CopyFrom, Seen]]:
    """The CopyFrom steps that were carried out."""
    return [
        (number, step, seen)
        for number, step, seen in scripts.numbered(case, trace)
        if isinstance(step, CopyFrom) and not seen.skipped
    ]

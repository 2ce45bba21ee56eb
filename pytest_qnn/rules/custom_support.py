"""What rules about a delegate's custom memory share: gates, what was assigned, and right results."""

from __future__ import annotations

import re

from pytest_qnn.cases.arrays import Array
from pytest_qnn.cases.script import Invoke, Poison, Read, ScriptCase, SetInputs
from pytest_qnn.cases.script_custom import AllocCustom, AssignCustom, ReadCustom, ReadLog
from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.rules.delegate_numbers import outputs_are_right
from pytest_qnn.trace import ScriptSeen, ScriptTrace

_REGISTERED = re.compile(r"Tensor (\d+) is successfully registered to shared memory\.")


def allocations(case: ScriptCase, trace: ScriptTrace) -> list[tuple[int, AllocCustom, ScriptSeen]]:
    """Requests that gave memory, with the number of each step.

    Raises:
        Unsupported: the delegate offers none, or gave none although it was asked for sizes that fit anywhere.
    """
    asked = [
        (number, step, seen)
        for number, step, seen in scripts.numbered(case, trace)
        if isinstance(step, AllocCustom)
    ]
    refused = next((seen.skipped for _, _, seen in asked if "offers no custom memory" in seen.skipped), "")
    if refused:
        raise Unsupported(refused)
    got = [one for one in asked if one[2].ok]
    if not got and any(0 < step.bytes <= 1 << 20 and not seen.skipped for _, step, seen in asked):
        raise Unsupported("the delegate gives no custom memory here: every request was answered with NULL")
    return got


def assigned(case: ScriptCase, trace: ScriptTrace, name: str = "i0") -> list[int]:
    """Tensors of the interpreter that were placed in custom memory."""
    allocations(case, trace)
    found = {
        step.tensor
        for _, step, seen in scripts.numbered(case, trace)
        if isinstance(step, AssignCustom) and step.interpreter == name and seen.ok
    }
    return sorted(found)


def judged(case: ScriptCase, trace: ScriptTrace) -> int:
    """How many tensors in custom memory are of partitions that the target makes without it, too.

    Nought where the interpreter ``i1``, which has no custom memory, fails or is wrong: what is wrong in
    ``i0`` has another cause then, and other rules find it.

    Raises:
        Unsupported: nothing can be seen.
    """
    scripts.need_trace(trace)
    inside = assigned(case, trace)
    seen, plain = scripts.view(case, trace), scripts.view(case, trace, "i1")
    if seen is None or plain is None or not any(one.is_target for one in seen[1].applied):
        return 0
    if support.failure(plain[1]):
        return 0
    try:
        outputs_are_right(*plain, "")
    except Violation:
        return 0
    return len(set(inside) & _border(case, trace, "i1"))


def _border(case: ScriptCase, trace: ScriptTrace, name: str = "i0") -> set[int]:
    """Inputs and outputs of the target's kernels in the plan of an interpreter."""
    seen = scripts.view(case, trace, name)
    kernels = support.live_target_kernels(seen[1]) if seen else ()
    return {tensor for kernel in kernels for tensor in (*kernel.inputs, *kernel.outputs)}


def works(case: ScriptCase, trace: ScriptTrace, expected: str) -> None:
    """Every call on ``i0`` succeeds, every result is right, and the client's pointer leads to it.

    Raises:
        Violation: something failed or is wrong.
    """
    view = scripts.view(case, trace)
    failed = support.failure(view[1]) if view else ""
    if view and failed:
        raise Violation(expected, failed, "interpreter i0", support.draw(*view))
    latest: dict[int, ScriptSeen] = {}
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Invoke | Poison | SetInputs):
            latest.clear()
        elif isinstance(step, Read) and step.interpreter == "i0" and seen.ok and seen.cpu:
            until = scripts.view(case, trace, upto=number + 1)
            if until is not None:
                outputs_are_right(*until, expected)
                latest = {
                    tensor: ScriptSeen(outputs=(value,))
                    for tensor, value in zip(until[0].graph.outputs, seen.outputs, strict=True)
                }
        elif isinstance(step, ReadCustom) and not seen.skipped:
            _through_the_pointer(step, seen, latest.get(step.tensor), expected, number)


def _through_the_pointer(
    step: ReadCustom, seen: ScriptSeen, read: ScriptSeen | None, expected: str, number: int
) -> None:
    where = f"tensor t{step.tensor}, step {number}"
    if seen.numbers.get("same", 1) != 1:
        raise Violation(expected, "the runtime has the tensor elsewhere", where)
    if read is not None and read.outputs != seen.outputs:
        raise Violation(expected, "the client's pointer leads to other values than the runtime's", where)


Result = tuple[tuple[Array, ...], tuple[Array, ...]]
"""Inputs, and what was read of the graph's outputs."""


def results(case: ScriptCase, trace: ScriptTrace, name: str) -> list[Result]:
    """Each Read of an interpreter whose inputs are known, with those of its invoke."""
    found: list[Result] = []
    given: tuple[Array, ...] = ()
    used = given
    for _, step, seen in scripts.numbered(case, trace):
        if getattr(step, "interpreter", "") != name or not seen.ok:
            continue
        if isinstance(step, SetInputs):
            given = seen.outputs
        elif isinstance(step, Invoke):
            used = given
        elif isinstance(step, Read) and seen.cpu and not step.tensors:
            found.append((used, seen.outputs))
    return found


def registered(case: ScriptCase, trace: ScriptTrace) -> tuple[set[int], set[int]]:
    """Tensors that the delegate says it registered, and those of its partitions in custom memory.

    Raises:
        Unsupported: what it says cannot be seen.
    """
    lines: list[str] = []
    heard = False
    for _, step, seen in scripts.numbered(case, trace):
        if isinstance(step, ReadLog):
            if seen.skipped:
                raise Unsupported(f"{seen.skipped} at the level INFO")
            heard = True
            lines += seen.lines
    said = {int(found[1]) for line in lines if (found := _REGISTERED.search(line))}
    return said, set(assigned(case, trace)) & _border(case, trace) if heard else set()


def invoked(case: ScriptCase, trace: ScriptTrace) -> bool:
    """An invoke of ``i0`` succeeded in which the target had work."""
    done = any(isinstance(s, Invoke) and seen.ok for _, s, seen in scripts.numbered(case, trace))
    return done and scripts.target_invokes(trace) > 0

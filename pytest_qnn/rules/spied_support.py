"""What rules share that look at a delegate's calls of the context."""

from __future__ import annotations

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.trace import Applied, Call, DelegateTrace


def need_callbacks(trace: DelegateTrace) -> None:
    """Raises Unsupported when the target's callbacks cannot be seen."""
    support.need_observation(trace)
    for applied in trace.applied:
        operator = any(member == "registration_external" for r in applied.replaces for member, *_ in r.tail)
        if applied.is_target and ((applied.ok and not applied.prepared) or operator):
            raise Unsupported(f"the callbacks of the opaque delegate {applied.name} are not seen")


def need_work(trace: DelegateTrace) -> None:
    """Raises Unsupported when callbacks cannot be seen, or the target failed before it could be judged."""
    need_callbacks(trace)
    support.need_work(trace)


def of_target(trace: DelegateTrace, call: Call) -> bool:
    """A delegate of the target made the call."""
    return trace.applied[call.application].is_target


def where(trace: DelegateTrace, call: Call) -> str:
    """The callback in words."""
    name = trace.applied[call.application].name
    if call.kernel >= 0:
        return f"{call.during} of kernel {call.kernel} ({name})"
    return f"{'an init within Prepare' if call.during == 'init' else 'Prepare'} of {name}"


def refused_applications(trace: DelegateTrace) -> list[tuple[Applied, list[Call]]]:
    """Applications of the target in which calls were refused, up to the first one that failed.

    What comes after a failed one may be refused by the runtime for its own reasons (RT-01).
    """
    found = []
    for position, applied in enumerate(trace.applied):
        calls = [call for call in trace.spied.refused if call.application == position]
        if applied.is_target and calls:
            found.append((applied, calls))
        if not applied.ok:
            break
    return found


def works(case: DelegateCase, trace: DelegateTrace, expected: str) -> None:
    """Raises Violation when an allocate or invoke failed."""
    error = trace.allocate_error or next(filter(None, trace.invoke_errors), "")
    if error:
        seen = f"allocate_tensors fails: {error}" if trace.allocate_error else f"invoke fails: {error}"
        raise Violation(expected, " ".join(seen.split()), picture=support.draw(case, trace))

"""SSR: what is left of a client's objects when the subsystem behind a backend has restarted."""

from __future__ import annotations

from collections.abc import Callable

from pytest_qnn.abi.qnn_codes import Error, low
from pytest_qnn.cases import restart_strategies
from pytest_qnn.cases.memory import ContextCreate, Deregister, Execute, MemoryCase, Register
from pytest_qnn.cases.memory_probes import Restart
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Unsupported, Violation
from pytest_qnn.oracle.memory import Walked
from pytest_qnn.oracle.memory_codes import named
from pytest_qnn.rules.memory_support import judge_valid, own_steps, place, require_memory
from pytest_qnn.trace import MemoryTrace

_GONE = int(Error.COMMON_ERROR_SYSTEM_COMMUNICATION)


@rule(
    "SSR-01",
    Level.SHOULD,
    "After a subsystem restart, which an execute answers with 1007, contexts, graphs and memory handles of "
    "before are of no use; deregistering, and registering with a new context, recovers.",
    source="documentation of the SDK, version 2.13, subsystem restart",
    subject="memory",
    cases=restart_strategies.restarts,
    gate=("1101",),
    weight=0.5,
)
def ssr_01(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The restart is injected, which the reference alone can do: a device does it when its DSP crashes."""
    require_memory(case, trace)
    restart = next((at for at, step in enumerate(case.steps) if isinstance(step, Restart)), len(case.steps))
    if restart >= len(trace.steps):
        return Examined(0, "calls after a restart")
    if trace.steps[restart].skipped:
        raise Unsupported(trace.steps[restart].skipped)
    after = [at for at, step in enumerate(case.steps) if at > restart and isinstance(step, ContextCreate)]
    anew = after[0] if after else len(case.steps)
    count = _refused(case, trace, lambda walked: restart < walked.index < anew)
    given_back = judge_valid(
        case, trace, lambda walked: restart < walked.index < anew and isinstance(walked.step, Deregister), ""
    )
    recovered = judge_valid(case, trace, lambda walked: walked.index >= anew, "")
    return Examined(count + given_back.count + recovered.count, "calls after a restart")


def _refused(case: MemoryCase, trace: MemoryTrace, between: Callable[[Walked], bool]) -> int:
    """Calls on objects of before: the first execute answers 1007, and none of them succeeds."""
    count = 0
    told = False
    for walked in own_steps(case, trace, between):
        if not isinstance(walked.step, Execute | Register):
            continue
        code = walked.seen.code or 0
        first = isinstance(walked.step, Execute) and not told
        if (first and low(code) != _GONE) or not code:
            wanted = named(_GONE) if first else "no success on objects from before the restart"
            raise Violation(wanted, named(code) if code else "success", place(walked))
        told |= first
        count += 1
    return count

"""ERR: failures of a delegate, and what they leave behind."""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.life import freed_once
from pytest_qnn.rules.prec import undone_to_cpu
from pytest_qnn.trace import DelegateTrace


@rule(
    "ERR-03",
    Level.MUST,
    "After a failed application the plan is the original one, every kernel that was initialised has been "
    "freed, and the results are the CPU's.",
    source="tflite delegate_test.cc, DelegateNodePrepareFailure and SecondDelegationPrepareFailure",
    subject="delegate",
    cases=cases.before_a_failure,
)
def failure_leaves_nothing(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at the target's own failures, and at its kernels that were undone for a later probe's failure."""
    support.need_observation(trace)
    failed = [applied for _, applied in support.targets(trace) if not applied.ok]
    if trace.applied[-1].ok or not (failed or support.target_kernels(trace)):
        return Examined(0, "failures and kernels undone")
    undone_to_cpu(case, trace)
    return Examined(freed_once(case, trace) + len(failed), "failures and kernels undone")

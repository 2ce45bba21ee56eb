"""ERR: failures of a delegate, and what they leave behind."""

from __future__ import annotations

from pytest_qnn.cases import delegate_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.life import freed_once
from pytest_qnn.rules.prec import failed_after_target, undone_to_cpu
from pytest_qnn.rules.rule import rule
from pytest_qnn.trace import DelegateTrace
from pytest_qnn.verdict import Examined, Level


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
    """Looks at the target's kernels that were undone because a probe after the target failed."""
    support.need_work(trace)
    kernels = support.target_kernels(trace)
    if not kernels or not failed_after_target(trace):
        return Examined(0, "kernels undone")
    undone_to_cpu(case, trace)
    return Examined(freed_once(case, trace), "kernels undone")

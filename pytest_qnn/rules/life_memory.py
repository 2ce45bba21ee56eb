"""LIFE: what free gives back."""

from __future__ import annotations

from pytest_qnn.cases import again_strategies as again
from pytest_qnn.cases.script import Close, Measure, Repeat, ScriptCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Unsupported
from pytest_qnn.rules import leak_support as leaks
from pytest_qnn.rules import script_support as scripts
from pytest_qnn.trace import ScriptTrace

_LEAST = 96
"""Bytes for each interpreter."""


@rule(
    "LIFE-05",
    Level.MUST,
    "free releases all that init, prepare and invoke have acquired for the kernel.",
    source="tflite/core/c/common.h, TfLiteRegistration.free; tflite/core/subgraph.cc, Subgraph::CleanupNode",
    subject="delegate",
    cases=again.cycles,
    weight=0.12,
)
def gives_everything_back(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Interpreters come and go while the delegate stays; what malloc has given out must not grow with them.

    Spells of few and of many interpreters take turns: only what the many leave more than the few counts,
    only if it does so each time, and if it is still there in the end. A cache that fills up, or a table that
    grows once, is no leak. Less than `_LEAST` bytes for each interpreter is not told from what the suite
    itself keeps.
    """
    scripts.need_trace(trace)
    found = [seen.numbers for _, step, seen in scripts.numbered(case, trace) if isinstance(step, Measure)]
    if len(found) < 1 + 2 * again.PAIRS or not all("malloc" in numbers for numbers in found):
        raise Unsupported("malloc cannot be asked what it has given out (mallinfo2 of glibc 2.33)")
    spells = [step for step in case.steps if isinstance(step, Repeat)]
    times = [again.FEW, *([again.FEW, again.MANY] * again.PAIRS)]
    whole = bool(spells) and any(isinstance(step, Close) for step in spells[0].steps)
    if [spell.times for spell in spells] != times or len({spell.steps for spell in spells}) > 1 or not whole:
        return Examined(0, "kernels freed")  # no two spells that could be compared
    live = [seen for seen in trace.interpreters if all(applied.ok for applied in seen.applied)]
    if not any(seen.kernels for seen in live):
        return Examined(0, "kernels freed")
    values = [numbers["malloc"] for numbers in found[: 1 + 2 * again.PAIRS]]
    surplus = leaks.surplus(values)
    more = again.MANY - again.FEW
    kernels = max(len(seen.kernels) for seen in live)
    if leaks.is_left(values) and min(surplus) >= _LEAST * more:
        raise Measured(
            "as much memory in use after an interpreter as before it",
            f"{', '.join(map(str, surplus))} bytes more after {more} interpreters more",
            f"{kernels} kernels in each",
        )
    return Examined(kernels * again.PAIRS * again.MANY, "kernels freed")

"""ABI: the two functions of an external delegate library, and how they treat what they are given."""

from __future__ import annotations

from pytest_qnn.cases import plugin_strategies as cases
from pytest_qnn.cases.plugin import Apply, Create, Cycle, Destroy, PluginCase, Spoil
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level, Measured, Violation
from pytest_qnn.rules import abi_support as support
from pytest_qnn.trace import PluginSeen, PluginTrace

_LEAST_LEAK = 16
"""Bytes per delegate: the smallest block that malloc gives."""


@rule(
    "ABI-02",
    Level.MUST,
    "create may be given no options, with NULL for both arrays; a delegate that was selected without options "
    "is then made with its defaults.",
    source=f"{support.HEADER}, tflite_plugin_create_delegate",
    subject="delegate",
    cases=cases.without_options,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def creates_without_options(case: PluginCase, trace: PluginTrace) -> Examined:
    """A plugin that was selected with options may need them, and refuse to do without."""
    support.need_functions(trace)
    needs = trace.facts is not None and trace.facts.needs_options
    creates = list(support.steps(case, trace, Create))
    for position, step, seen in creates:
        if not seen.made and not needs:
            raise Violation(
                "a delegate with its defaults",
                f"NULL{_said(seen)}",
                f"{support.at(position, step)}, {'NULL arrays' if step.null_arrays else 'empty arrays'}",
            )
    return Examined(len(creates), "creates without options")


@rule(
    "ABI-03",
    Level.SHOULD,
    "create reads options as UTF-8 text as Python's str() makes it, leaves the arrays as they are, and "
    "refuses a value that is not of its option's kind: 'abc' is no number.",
    source=f"{support.HEADER}, tflite_plugin_create_delegate (should not modify); {support.PYTHON}.__init__",
    subject="delegate",
    cases=cases.parsed,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def parses_strictly(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at options given on the command line: as they are, and, if a number or truth value, spoilt."""
    support.need_functions(trace)
    support.need_options(case, trace)
    looked_at = 0
    for position, step, seen in support.steps(case, trace, Create):
        if seen.modified:
            raise Violation(
                "the arrays as they were", f"{seen.modified[0]} changed", support.at(position, step)
            )
        if step.name == cases.ALTERED and seen.made:
            raise Violation(
                "NULL for a value that is not of its option's kind (a text that looks like a number may be "
                "given as another text)",
                "a delegate",
                f"{support.at(position, step)}, {_shown(step)}",
            )
        if step.name != cases.ALTERED and not seen.made:
            raise Violation(
                "a delegate", f"NULL{_said(seen)}", f"{support.at(position, step)}, {_shown(step)}"
            )
        looked_at += len(step.options)
    return Examined(looked_at, "options")


@rule(
    "ABI-04",
    Level.SHOULD,
    "A key that the plugin does not know makes create return NULL; whenever create returns NULL, it has "
    "called report_error with a text that says why.",
    source=f"{support.HEADER}, tflite_plugin_create_delegate",
    subject="delegate",
    cases=cases.refused,
    gate=("plugin interface",),
    weight=0.5,
)
@support.pictured
def explains_refusals(case: PluginCase, trace: PluginTrace) -> Examined:
    """Looks at creates with an unknown key, or with a spoilt value where that is refused."""
    support.need_functions(trace)
    refusals = 0
    for position, step, seen in support.steps(case, trace, Create):
        where = f"{support.at(position, step)}, {_shown(step)}"
        if step.name == cases.BAD and seen.made:
            raise Violation("NULL for a key that the plugin does not know", "a delegate", where)
        if not seen.made:
            refusals += 1
            if not "".join(seen.reports).strip():
                raise Violation("a text through report_error", "NULL without one", where)
    return Examined(refusals, "refused options")


@rule(
    "ABI-05",
    Level.MUST,
    "create keeps neither the arrays nor the texts of the options: their owner reuses the memory.",
    source=f"{support.HEADER}, tflite_plugin_create_delegate; {support.PYTHON}.__init__ frees them",
    subject="delegate",
    cases=cases.spoiling,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def keeps_no_options(case: PluginCase, trace: PluginTrace) -> Examined:
    """Compares the delegate at work before and after its options were overwritten."""
    support.need_functions(trace)
    support.need_options(case, trace)
    given = sum(len(step.options) for _, step, seen in support.steps(case, trace, Create) if seen.made)
    spoilt = [position for position, _, _ in support.steps(case, trace, Spoil)]
    applied = list(support.steps(case, trace, Apply))
    before = [seen for position, _, seen in applied if spoilt and position < spoilt[0]]
    after = [(position, step, seen) for position, step, seen in applied if spoilt and position > spoilt[0]]
    if not before or before[0].error:
        return Examined(0, "options overwritten")
    for position, step, seen in after:
        support.works(case, trace, seen, "after its options' memory was overwritten, as before")
        if seen.claimed != before[0].claimed:
            raise Violation(
                f"the nodes {list(before[0].claimed)} to be claimed as before",
                f"{list(seen.claimed)} after the options' memory was overwritten",
                support.at(position, step),
            )
    return Examined(given * len(after), "options overwritten")


@rule(
    "ABI-06",
    Level.MUST,
    "report_error may be NULL, and is not called once create has returned.",
    source=f"{support.HEADER}, report_error if provided; tflite/delegates/external/external_delegate.cc",
    subject="delegate",
    cases=cases.unreported,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def reports_in_create_only(case: PluginCase, trace: PluginTrace) -> Examined:
    """Without a report_error the result must be the same as with one."""
    support.need_functions(trace)
    creates = list(support.steps(case, trace, Create))
    made = [seen.made for _, step, seen in creates if step.report == "function"]
    for position, (step, seen) in enumerate(zip(case.steps, trace.steps, strict=True)):
        if seen.late:
            raise Violation(
                "no call of report_error after its create",
                f"report_error({seen.late[0]!r})",
                support.at(position, step),
            )
    for position, step, seen in creates:
        if step.report == "null" and step.name != cases.BAD and made and made[0] and not seen.made:
            raise Violation("a delegate, as with a report_error", "NULL", support.at(position, step))
    return Examined(sum(step.report == "null" for _, step, _ in creates), "creates without report_error")


@rule(
    "ABI-07",
    Level.MUST,
    "destroy with NULL has no effect.",
    source=f"{support.HEADER}, tflite_plugin_destroy_delegate; docs/runtimes.md RT-11",
    subject="delegate",
    cases=cases.destroying_nothing,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def destroys_nothing(case: PluginCase, trace: PluginTrace) -> Examined:
    """The delegate works after it as it did before."""
    support.need_functions(trace)
    nulls = [position for position, step, _ in support.steps(case, trace, Destroy) if not step.name]
    worked = False
    for position, step, seen in support.steps(case, trace, Create):
        if not seen.made and nulls and nulls[0] < position:
            raise Violation(
                "a delegate after destroy(NULL)", f"NULL{_said(seen)}", support.at(position, step)
            )
    for _, _, seen in support.steps(case, trace, Apply):
        if worked:
            support.works(case, trace, seen, "after destroy(NULL), as before")
        worked = not seen.error
    return Examined(len(nulls), "calls of destroy with NULL")


@rule(
    "ABI-08",
    Level.MUST,
    "destroy ends exactly the delegate that it is given, and gives back what create took.",
    source=f"{support.HEADER}, tflite_plugin_destroy_delegate",
    subject="delegate",
    cases=cases.two_at_once,
    gate=("plugin interface",),
    weight=0.3,
)
@support.pictured
def destroys_its_own(case: PluginCase, trace: PluginTrace) -> Examined:
    """One of two delegates works on when the other is gone; memory in use is the same after every cycle."""
    support.need_functions(trace)
    worked: set[str] = set()
    for _, step, seen in support.steps(case, trace, Apply):
        if step.name in worked:
            support.works(case, trace, seen, f"({step.name}) after another one was destroyed")
        if not seen.error:
            worked.add(step.name)
    looked_at = len(list(support.steps(case, trace, Destroy)))
    for position, cycle, seen in support.steps(case, trace, Cycle):
        growth = [after - before for before, after in zip(seen.in_use, seen.in_use[1:], strict=False)]
        if growth and min(growth) >= _LEAST_LEAK * seen.times:
            raise Measured(
                "as many bytes in use after each delegate was created and destroyed",
                f"{', '.join(f'{grown:+}' for grown in growth)} bytes for {seen.times} delegates each",
                support.at(position, cycle),
            )
        looked_at += len(growth) * seen.times
    return Examined(looked_at, "delegates destroyed")


def _said(seen: PluginSeen) -> str:
    text = " ".join("".join(seen.reports).split())
    return f" ({text!r})" if text else " without a report"


def _shown(step: Create) -> str:
    return f"options {', '.join(map(support.shown, step.options))}" if step.options else "no options"

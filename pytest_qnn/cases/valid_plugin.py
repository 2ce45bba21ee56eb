"""Cases of a plugin's interface from files: steps that can be carried out, options of a sane size."""

from __future__ import annotations

from pytest_qnn.cases.plugin import AnyPluginStep, Copy, Create, Cycle, PluginCase
from pytest_qnn.cases.valid_delegate import check_graph
from pytest_qnn.core.bounds import need, within

MOST_STEPS = 64
MOST_OPTIONS = 64
LONGEST_OPTION = 4096
"""Bytes of a key or a value."""


def check_plugin(case: PluginCase) -> None:
    """Raise `pytest_qnn.core.bounds.BadCase` for a case that must not be run."""
    check_graph(case.graph)
    within("the number of steps", len(case.steps), 0, MOST_STEPS)
    within("the position of the delegate", case.delegate, 0, 8)
    within("data_seed", case.data_seed, 0, (1 << 32) - 1)
    for number, step in enumerate(case.steps):
        _check_step(f"step {number}", step)


def _check_step(where: str, step: AnyPluginStep) -> None:
    if isinstance(step, Cycle):
        within(f"{where}: times", step.times, 1, 256)
    if not isinstance(step, Create | Copy | Cycle):
        return
    within(f"{where}: the number of options", len(step.options), 0, MOST_OPTIONS)
    for pair in step.options:
        for part in pair:
            within(f"{where}: the length of an option", len(part), 0, LONGEST_OPTION)
            need(b"\0" not in part, f"{where}: an option has a NUL in it")

"""Smaller cases of a plugin's interface: fewer steps, the smallest graph.

Options stay: a plugin may need each of those it was given, and a rule knows a refusal that it expects by the
name of its step.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.plugin import PluginCase
from pytest_qnn.cases.reduce_graph import smaller_delegate


def smaller_plugin(case: PluginCase) -> Iterator[PluginCase]:
    """Cases with fewer steps, then a smaller graph; the boldest first.

    A step whose delegate has gone is skipped when it is run, so that every choice of steps is a case.
    """
    size = len(case.steps) // 2
    while size:
        for end in range(len(case.steps), size - 1, -size):
            yield replace(case, steps=(*case.steps[: end - size], *case.steps[end:]))
        size //= 2
    for smaller in smaller_delegate(DelegateCase(case.graph, data_seed=case.data_seed)):
        if smaller.graph != case.graph or smaller.data_seed != case.data_seed:
            yield replace(case, graph=smaller.graph, data_seed=smaller.data_seed)

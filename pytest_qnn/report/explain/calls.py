"""A case of any kind as lines of text: its graphs, and a sentence for each call or step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_qnn.report.explain.telling import numbered

if TYPE_CHECKING:
    from pytest_qnn.tflite.cases.delegate import DelegateCase
    from pytest_qnn.tflite.cases.plugin import PluginCase
    from pytest_qnn.tflite.cases.script import ScriptCase


def lines(case: Any) -> list[str]:
    """A sentence for each step with its number, as findings count them."""
    # A case of one half loads nothing of the other.
    from pytest_qnn.qnn.cases.case import MemoryCase

    if hasattr(case, "cells"):
        return numbered(
            [
                f"a model of one node: {cell}; the delegate is applied, and invoked if it claims it"
                for cell in case.cells
            ]
        )
    if isinstance(case, MemoryCase):
        from pytest_qnn.report.explain import memory_calls

        return numbered(memory_calls.lines(case))
    return numbered(_of_delegate(case))


def _of_delegate(case: DelegateCase | ScriptCase | PluginCase) -> list[str]:
    from pytest_qnn.report.explain import graphs, script_calls
    from pytest_qnn.tflite.cases.delegate import DelegateCase

    return graphs.lines(case) if isinstance(case, DelegateCase) else script_calls.lines(case)


def graphs_of(case: Any) -> list[str]:
    """The graphs of a case of delegates, a line for each node; of QNN memory: none."""
    found = getattr(case, "graphs", None) or ((case.graph,) if hasattr(case, "graph") else ())
    if not found:
        return []
    from pytest_qnn.report.explain import graphs

    names = ("main",) if len(found) == 1 else tuple(f"graph {number}" for number in range(len(found)))
    return [line for given, name in zip(found, names, strict=True) for line in graphs.graph(given, name)]

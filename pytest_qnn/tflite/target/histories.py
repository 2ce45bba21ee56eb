"""Controls of cases whose history is about another graph than theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pytest_qnn.core.target import Control
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.script import ScriptCase
from pytest_qnn.tflite.controls.graphs import single_nodes
from pytest_qnn.tflite.runner.history import PLAIN, is_used_again

_OWNER: Final = "RUN-01"
"""Whoever judges that a plain run neither ends the process nor blocks it."""
_CALLS: Final = ("Interpreter.ModifyGraphWithDelegate", "Interpreter.allocate_tensors", "Interpreter.invoke")
"""In which a history dies: its kernels are not observed, and no callback of theirs is named."""


def of_histories(case: object, *, died: bool) -> Iterator[Control]:
    """Of a death: plain runs of the graph that the history has in the place of the case's, each node first.

    Nothing in the case needs to be like it, so that the controls of the case's own graph do not show why its
    history died.
    """
    if not died or not isinstance(case, DelegateCase | ScriptCase) or case.history is None:
        return
    own = case.graph if isinstance(case, DelegateCase) else case.graphs[0]
    history = case.history
    if (history.used or history.kept or history.failed) and not is_used_again(own):
        for graph in (*single_nodes(PLAIN), PLAIN):
            yield from (Control(DelegateCase(graph), (_OWNER,), within=call) for call in _CALLS)

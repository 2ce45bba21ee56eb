"""Smaller cases: what the engine tries once Hypothesis has shrunk the bytes that a case was drawn from.

Bytes are not steps: a step that others stand on, or a node that others read, seldom goes by changing
bytes. Here whole steps, nodes, entries of batches, applications and claims go. Every candidate is a valid
case, and a target that obeys the rules passes it as it passes the case that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.plugin import PluginCase
from pytest_qnn.cases.reduce_graph import smaller_delegate, with_more_outputs
from pytest_qnn.cases.reduce_memory import smaller_memory
from pytest_qnn.cases.reduce_plugin import smaller_plugin
from pytest_qnn.cases.reduce_script import smaller_script
from pytest_qnn.cases.script import ScriptCase


def smaller(case: Any, *, deadly: bool = False) -> Iterator[Any]:
    """Cases that are smaller than ``case``, the boldest first; none for a case of any other type.

    The order is always the same. A case from which none of them still fails has no step (memory) and no
    node (delegate) that can be removed.

    Args:
        case: a `MemoryCase`, `DelegateCase`, `ScriptCase` or `PluginCase`.
        deadly: the case ends the process, so that nothing depends on what it counts.
    """
    if isinstance(case, MemoryCase):
        yield from smaller_memory(case, deadly=deadly)
    elif isinstance(case, DelegateCase):
        yield from smaller_delegate(case)
    elif isinstance(case, ScriptCase):
        yield from smaller_script(case)
    elif isinstance(case, PluginCase):
        yield from smaller_plugin(case)


def revealing(case: Any) -> Iterator[Any]:
    """Cases that show more of what went wrong inside ``case``: of a delegate case, results inside its graph.

    Where a number is wrong, the first of them that still fails names the node with which it began. None
    for a case of any other type.
    """
    if isinstance(case, DelegateCase):
        yield from with_more_outputs(case)

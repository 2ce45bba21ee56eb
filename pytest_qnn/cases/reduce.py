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
from pytest_qnn.cases.reduce_graph import smaller_delegate
from pytest_qnn.cases.reduce_memory import smaller_memory


def smaller(case: Any, *, deadly: bool = False) -> Iterator[Any]:
    """Cases that are smaller than ``case``, the boldest first; none for a case of any other type.

    The order is always the same. A case from which none of them still fails has no step (memory) and no
    node (delegate) that can be removed.

    Args:
        case: a `MemoryCase` or `DelegateCase`.
        deadly: the case ends the process, so that nothing depends on what it counts.
    """
    if isinstance(case, MemoryCase):
        yield from smaller_memory(case, deadly=deadly)
    elif isinstance(case, DelegateCase):
        yield from smaller_delegate(case)

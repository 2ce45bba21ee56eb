"""Sequences of allocations of a QNN delegate's custom memory."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_qnn.core.drawing import decoded
from pytest_qnn.tflite.cases.script import (
    AllocCustom,
    AnyScriptStep,
    FreeCustom,
    InspectCustom,
    ScriptCase,
)
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor

_RECORD = 4
"""Bytes of one step."""
_GRAPH = Graph((Tensor((1,)), Tensor((1,))), (Node("RELU", (0,), (1,)),), (0,), (1,))
"""A script has at least one graph; no interpreter of it is opened."""
_LARGEST = 12
"""2 ** 12 is the largest alignment: a page."""


def custom_allocation_sequences(
    max_steps: int = 20, max_size: int = 1 << 16, *, position: int = 0, invalid: bool = True
) -> st.SearchStrategy[ScriptCase]:
    """Any order of TfLiteQnnDelegateAllocCustomMem and FreeCustomMem, of several buffers and alignments.

    Each drawn record gives one step, so a case has at most ``max_steps`` steps. Alignments are powers of two
    up to 4096. Between allocations buffers are looked at (`InspectCustom`): their contents must have stayed.
    With ``invalid`` pointers are freed that are NULL or unknown, which the function ignores. What is left is
    freed when the case ends.

    Args:
        max_steps: 1 to 400.
        max_size: bytes of the largest buffer, 1 to 2 ** 30.
        position: whose functions: position of the delegate in --tflite-delegate, from 0.
        invalid: as said above.

    Raises:
        ValueError: a number is out of its range.
    """
    if not 1 <= max_steps <= 400:
        raise ValueError(f"max_steps is 1 to 400, not {max_steps}")
    if not 1 <= max_size <= 1 << 30:
        raise ValueError(f"max_size is 1 to {1 << 30}, not {max_size}")

    def decode(data: bytes) -> ScriptCase:
        made, live = 0, list[str]()
        steps: list[AnyScriptStep] = []
        for start in range(0, len(data), _RECORD):
            act, which, low, high = data[start : start + _RECORD]
            kind = act % (5 if invalid else 4)
            if kind < 2 or not live:
                size = 1 + (low | high << 8) * max(1, max_size >> 16) % max_size
                steps.append(AllocCustom(f"c{made}", size, 1 << which % (_LARGEST + 1), position, seed=made))
                live.append(f"c{made}")
                made += 1
            elif kind == 2:
                steps.append(FreeCustom(live.pop(which % len(live)), position=position))
            elif kind == 3:
                steps.append(InspectCustom(live[which % len(live)]))
            else:
                steps.append(FreeCustom(what="unknown" if which & 1 else "null", position=position))
        return ScriptCase((_GRAPH,), tuple(steps))

    return decoded(max_steps * _RECORD, decode)

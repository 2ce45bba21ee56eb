"""A plugin may make one delegate at a time: which NULL is excused by that."""

from __future__ import annotations

import pytest

from pytest_qnn.core.verdict import Unsupported
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.plugin import AnyPluginStep, Create, Destroy, PluginCase
from pytest_qnn.tflite.rules.abi.rules import need_alone
from pytest_qnn.tflite.runner import plain
from pytest_qnn.tflite.trace import PluginSeen, PluginTrace

MADE, NULL, DONE = PluginSeen(made=True), PluginSeen(made=False), PluginSeen()


@pytest.mark.parametrize(
    ("steps", "seen", "kept", "excused"),
    [
        ((Create("d0"),), (NULL,), 0, False),
        ((Create("d0"),), (NULL,), 1, True),
        ((Create("d0"), Create("d1")), (MADE, NULL), 0, True),
        ((Create("d0"), Create("d1")), (NULL, NULL), 0, False),  # the first one does not live either
        ((Create("d0"), Destroy("d0"), Create("d1")), (MADE, DONE, NULL), 0, False),
    ],
)
def test_only_a_delegate_that_lives_excuses_a_null(
    steps: tuple[AnyPluginStep, ...], seen: tuple[PluginSeen, ...], kept: int, excused: bool
) -> None:
    case = PluginCase(plain.PLAIN.graph, steps, history=History(kept=kept))
    found = None
    try:
        need_alone(case, PluginTrace(steps=seen), len(steps) - 1)
    except Unsupported as raised:
        found = raised
    assert (found is not None) is excused

"""Carry out a ScriptCase on a runtime with a chain of delegates, and write down what was seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pytest_qnn.tflite.cases.script import (
    Allocate,
    Apply,
    Close,
    Hollow,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Place,
    Read,
    RemoveAll,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.observe.stderr import hearing
from pytest_qnn.tflite.runner import custom_memory, extras, flow, tensor_memory
from pytest_qnn.tflite.runner import steps as script_steps
from pytest_qnn.tflite.runner.delegates import DelegateFactory
from pytest_qnn.tflite.runner.world import Chain, Handlers, OnStep, World
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.trace import ScriptTrace

HANDLERS: Final[Handlers] = {
    **script_steps.HANDLERS,
    **tensor_memory.HANDLERS,
    **flow.HANDLERS,
    **extras.HANDLERS,
    **custom_memory.HANDLERS,
}
"""By type of step: what carries it out."""


_LEFT: list[World] = []
"""What scripts that end their process leave alive."""


def run_script_case(
    case: ScriptCase,
    chain: Chain,
    runtime: Runtime,
    remake: Callable[[int, Mapping[str, str]], DelegateFactory],
    on_step: OnStep | None = None,
) -> ScriptTrace:
    """Carry out the steps in order; then destroy what is left, whatever happened.

    Nothing is destroyed for a case that ends the process: whoever carries it out ends the process next.

    ``chain`` is the target: its delegates in order of precedence. ``remake`` makes a factory for one of
    them with further options. ``on_step`` is told the number of the step that begins.

    Raises:
        ValueError: the runtime refuses a model.
        RuntimeError: the spy itself went wrong.
    """
    world = World(case, chain, runtime, remake, on_step)
    try:
        with hearing(case) as world.heard:
            for number, step in flow.numbered(case.steps, 0):
                flow.perform(world, HANDLERS, number, step)
    finally:
        if case.ends:
            _LEFT.append(world)
        else:
            world.end()
    for error in world.errors:
        if not isinstance(error, Exception):
            raise error  # an interrupt, not a failure
        raise RuntimeError("the spy failed") from error
    return world.trace()


def warming_script(graph: Graph) -> ScriptCase:
    """A script that makes all that later ones find made: symbols looked up, handlers imported and run."""
    steps = (
        MakeDelegate("d", "probe"),
        Open("i"),
        Place("i", graph.inputs[0]),
        Hollow("i"),
        Apply("i", "d"),
        Allocate("i"),
        SetInputs("i"),
        Invoke("i"),
        Read("i"),
        RemoveAll("i"),
        Close("i"),
        Measure(),
    )
    return ScriptCase((graph,), steps)

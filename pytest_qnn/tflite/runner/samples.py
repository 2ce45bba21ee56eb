"""The step `Sample`: an inference with tensors that are too large for a trace, of which elements are kept."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.cases.arrays import Array
from pytest_qnn.tflite.cases.samples import PERIOD, of_length, periods, places
from pytest_qnn.tflite.cases.script import Sample
from pytest_qnn.tflite.cases.valid import ELEMENTWISE
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.runner.interpreter import LiveInterpreter, attempt
from pytest_qnn.tflite.runner.world import Handlers, Skip, World
from pytest_qnn.tflite.trace import SampleCounts, ScriptSeen

Values = npt.NDArray[Any]

_BLOCK: Final = 1 << 20
"""Elements that are compared at once: the whole of a tensor would take its memory several times over."""
_MOST: Final = 1 << 26
"""Elements of an input."""


def _sample(world: World, step: Sample) -> ScriptSeen:
    live = world.interpreter(step.interpreter)
    if not live.ready:
        raise Skip("the last allocate_tensors failed, or there was none")
    _check(live)
    contents = periods(live.graph, step.seed)
    cpu = _on_cpu(world, live, contents)
    live.invoked, live.inputs = None, [None] * len(live.inputs)
    message = ""
    for tensor, shape, values in zip(live.graph.inputs, live.shapes, contents, strict=True):
        message = message or _set(live.native, tensor, np.resize(values, shape))
    message = message or attempt(live.native.invoke)
    world.attribute_events(live)
    if message:
        return ScriptSeen(ok=False, message=message)
    seen: Values = live.native.get_tensor(live.graph.outputs[0]).ravel()
    at, count = _where(seen, cpu)
    sampled = () if cpu is None else (Array.of(cpu[at % PERIOD]),)
    return ScriptSeen(
        outputs=(Array.of(at), Array.of(seen[at])), cpu=sampled, counts=SampleCounts(seen.size, count)
    )


def _check(live: LiveInterpreter) -> None:
    """Raises Skip where the elements of the output are not those of the inputs in the same places."""
    graph = live.graph
    if live.placed or len(graph.outputs) != 1 or any(node.op not in ELEMENTWISE for node in graph.nodes):
        raise Skip("only element-wise graphs with one output, in the runtime's memory, are sampled")
    if len(set(live.shapes)) != 1 or any(tensor.data is not None for tensor in graph.tensors):
        raise Skip("only graphs without constants, whose inputs have one shape, are sampled")
    if prod(live.shapes[0]) >= _MOST or min(live.shapes[0], default=0) < 0:
        raise Skip("an input has more elements than there can be")


def _set(native: Any, tensor: int, values: Values) -> str:
    return attempt(functools.partial(native.set_tensor, tensor, values))


def _on_cpu(world: World, live: LiveInterpreter, contents: list[Values]) -> Values | None:
    """The first period of the output by the runtime's own kernels; None: it refuses."""
    try:
        native = world.runtime.interpreter(emit(of_length(live.graph, PERIOD)))
        native.allocate_tensors()
        for tensor, values in zip(live.graph.inputs, contents, strict=True):
            native.set_tensor(tensor, values)
        native.invoke()
        found: Values = native.get_tensor(live.graph.outputs[0])
    except (RuntimeError, ValueError):
        return None
    return found


def _where(seen: Values, cpu: Values | None) -> tuple[Values, int]:
    """Which elements are kept, and how many are not as on the CPU, bit for bit.

    Beside `places` those of each block that differ first, last and most.
    """
    usual = places(seen.size)
    if cpu is None:
        return usual, 0
    repeated = np.resize(cpu, _BLOCK + PERIOD)
    further: list[int] = []
    count = 0
    for begin in range(0, seen.size, _BLOCK):
        ours = seen[begin : begin + _BLOCK]
        theirs = repeated[begin % PERIOD :][: ours.size]
        differs = np.flatnonzero(ours != theirs)
        if differs.size:
            count += differs.size
            with np.errstate(invalid="ignore"):
                by = np.abs(ours[differs].astype(np.float64) - theirs[differs].astype(np.float64))
            most = int(np.nan_to_num(by, nan=np.inf).argmax())
            further += (begin + int(differs[place]) for place in (0, most, -1))
    return np.unique(np.concatenate([usual, np.array(further, np.int64)])), count


HANDLERS: Final[Handlers] = {Sample: _sample}

"""Contents that follow from a case: its inputs, and what its operators make of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.core.bounds import BadCase
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import CellsBeside, DomainCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.script import Invoke, Open, Read, ScriptCase, SetInputs, flat
from pytest_qnn.tflite.checks.ordered_sums import SUMS, summed
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.numerics.flat import flattened
from pytest_qnn.tflite.numerics.kernels import compute, constant_value
from pytest_qnn.tflite.trace import ScriptSeen, ScriptTrace

_MOST = np.finfo(np.float32).max
_Inputs = list[npt.NDArray[Any]]


def foretold(case: Any, trace: Any) -> list[bytes]:
    """Contents that the trace of a case may have; the same on every machine.

    Args:
        case: of any kind that concerns delegates.
        trace: of the case; of its arrays only the shapes are looked at.
    """
    if isinstance(case, DelegateCase):
        return list(_of_graph(case))
    if isinstance(case, ScriptCase):
        return list(_of_script(case, trace))
    if isinstance(case, DomainCase | CellsBeside):
        return []  # What many of its operators compute is not the same everywhere; its tensors are small.
    return list(_results(case.graph, inputs_of(DelegateCase(case.graph, data_seed=case.data_seed))))


def _of_graph(case: DelegateCase) -> Iterator[bytes]:
    """Of the inputs of each invoke: they, and what it gives."""
    for seed in dict.fromkeys((case.data_seed, *case.reseed)):
        inputs = inputs_of(msgspec.structs.replace(case, data_seed=seed))
        yield from (value.tobytes() for value in inputs)
        yield from _results(case.graph, inputs)


def _of_script(case: ScriptCase, trace: ScriptTrace) -> Iterator[bytes]:
    """Of each step in order: what was set, and what an invoke with it gives."""
    graphs: dict[str, Graph] = {}
    given: dict[str, _Inputs] = {}
    read: dict[str, tuple[Graph, _Inputs]] = {}
    for step, seen in zip(flat(case.steps), trace.steps, strict=False):
        if isinstance(step, Open):
            graphs[step.interpreter] = case.graphs[step.graph]
        elif isinstance(step, SetInputs) and step.interpreter in graphs:
            shaped = _shaped(graphs[step.interpreter], seen)
            given[step.interpreter] = inputs = inputs_of(
                DelegateCase(shaped, data_seed=step.seed, fill=step.fill)
            )
            yield from (value.tobytes() for value in inputs)
        elif isinstance(step, Invoke) and step.interpreter in given:
            read[step.interpreter] = graphs[step.interpreter], given[step.interpreter]
        elif isinstance(step, Read) and step.interpreter in read:
            yield from _results(*read[step.interpreter])


def _shaped(graph: Graph, seen: ScriptSeen) -> Graph:
    """The graph with inputs of the shapes that were set."""
    tensors = list(graph.tensors)
    for index, array in zip(graph.inputs, seen.outputs, strict=False):
        tensors[index] = msgspec.structs.replace(tensors[index], shape=array.shape)
    return msgspec.structs.replace(graph, tensors=tuple(tensors))


def _clipped(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.clip(values, -_MOST, _MOST) if values.dtype == np.float32 else values


def _results(graph: Graph, inputs: _Inputs, *, clipped: bool = False) -> Iterator[bytes]:
    """The outputs of the graph, as far as they are soon computed; with infinities, also as the runtime does.

    It clips what most operators give to the range of float32 (``clipped``).
    """
    with contextlib.suppress(BadCase, ValueError, KeyError, IndexError, TypeError):
        plain = flattened(graph, inputs)
        values = dict(zip(plain.inputs, inputs, strict=True))
        for index, tensor in enumerate(plain.tensors):
            if tensor.data is not None:
                values[index] = constant_value(tensor.data, tensor.dtype, tensor.shape)
        for node in plain.nodes:
            read = [index for index in node.inputs if index >= 0]
            if all(index in values for index in read):
                operands = [values[index] for index in read]
                with np.errstate(all="ignore"):
                    found = (summed if node.op in SUMS else compute)(node, plain.tensors, operands)
                if found is not None:
                    values[node.outputs[0]] = _clipped(found) if clipped else found
        known = [values[index] for index in plain.outputs if index in values]
        yield from (np.ascontiguousarray(value).tobytes() for value in known)
        if not clipped and any(value.dtype == np.float32 and np.isinf(value).any() for value in known):
            yield from _results(graph, inputs, clipped=True)

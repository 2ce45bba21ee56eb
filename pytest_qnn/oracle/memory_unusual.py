"""What is wrong with a Prepare or an Execute beside its handles: memory types, sizes, and arrays of tensors.

Prepare
    faults: ``mem-type`` (outside the enum), ``no-data`` (a STATIC tensor without data). Unsettled:
    RETRIEVE_RAW, which property 516 is about.
Execute
    faults: ``not-finalised``, ``mem-type``, ``short-data`` (raw memory that is too small), ``tensors`` (a
    tensor that is missing, there twice, foreign, or in the wrong array).
    notes: ``data-size`` (a handle comes with a dataSize, which is then no member of the union),
    ``permuted`` (arrays in another order).
"""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, TensorMemType
from pytest_qnn.cases.memory import Execute, Prepare
from pytest_qnn.oracle.memory_state import Graph

Faults = dict[str, frozenset[int]]

UNUSUAL = frozenset({"not-finalised", "mem-type", "short-data", "tensors"})
"""The faults of an Execute that are told here."""
_KNOWN = frozenset({int(TensorMemType.RAW), int(TensorMemType.MEMHANDLE)})
_PARAMETER = frozenset({int(Error.TENSOR_ERROR_INVALID_TENSOR_PARAM)})
_OUTSIDE = _PARAMETER | {int(Error.TENSOR_ERROR_UNSUPPORTED_TENSOR_PARAM)}
_TENSOR = frozenset({int(Error.GRAPH_ERROR_INVALID_TENSOR)})
_LOOSE = _TENSOR | {int(Error.GRAPH_ERROR_INVALID_ARGUMENT)}
_UNFINISHED = frozenset({int(Error.GRAPH_ERROR_GRAPH_NOT_FINALIZED)})


def prepare_faults(step: Prepare) -> tuple[Faults, bool]:
    """What is wrong with the tensors, and whether documents leave it open."""
    faults: Faults = {}
    odd = set(step.mem_types) - _KNOWN
    vague = TensorMemType.RETRIEVE_RAW in odd
    if odd:
        faults["mem-type"] = _OUTSIDE
    if step.weights is not None and step.weights_as == "null":
        faults["no-data"] = _PARAMETER
    return faults, vague


def execute_faults(step: Execute, graph: Graph, notes: set[str]) -> tuple[Faults, bool]:
    """What is wrong with the arrays and raw memory of an execute, and whether documents leave it open."""
    faults: Faults = {}
    vague = False
    if not graph.finalised:
        faults["not-finalised"] = _UNFINISHED
    if _wrong_arrays(step, graph):
        faults["tensors"] = _LOOSE
    elif step.inputs is not None and list(step.inputs) != sorted(step.inputs):
        notes.add("permuted")
    for binding in step.bindings:
        if binding.kind == "handle":
            if binding.data_size:
                notes.add("data-size")
            continue
        if binding.mem_type not in (None, TensorMemType.RAW):
            faults["mem-type"] = _TENSOR
            vague = vague or binding.mem_type in (TensorMemType.MEMHANDLE, TensorMemType.RETRIEVE_RAW)
        if binding.short > 0:
            faults["short-data"] = _LOOSE
    return faults, vague


def _wrong_arrays(step: Execute, graph: Graph) -> bool:
    """Not every input once in the one array and every output once in the other."""
    inputs = range(graph.inputs) if step.inputs is None else step.inputs
    outputs = (graph.inputs,) if step.outputs is None else step.outputs
    whole = sorted(inputs) == list(range(graph.inputs)) and list(outputs) == [graph.inputs]
    foreign = any(binding.of not in ("", step.graph) for binding in step.bindings)
    return foreign or not whole

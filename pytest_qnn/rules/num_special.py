"""NUM-07: NaN, infinities, zeros of either sign and denormal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_qnn.cases import numeric_strategies as cases
from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.graph import Node
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Divergence, Examined, Level
from pytest_qnn.oracle import numerics_special as special
from pytest_qnn.oracle.kernels import constant_value
from pytest_qnn.rules import delegate_support as support
from pytest_qnn.rules.num_support import need_claim
from pytest_qnn.trace import DelegateTrace

Array = npt.NDArray[Any]


@rule(
    "NUM-07",
    Level.SHOULD,
    "NaN and infinities propagate as IEEE 754 allows, and copies change neither zeros' signs nor denormal "
    "numbers.",
    source="IEEE 754-2019; what the CPU kernels and XNNPACK of both runtimes do (oracle/numerics_special.py)",
    subject="delegate",
    cases=cases.special_values,
    gate=("float32",),
)
def propagates_special_values(case: DelegateCase, trace: DelegateTrace) -> Examined:
    """Looks at elements of the target's results that are, or are computed from, special values."""
    need_claim(case, trace)
    written = {tensor for kernel in support.live_target_kernels(trace) for tensor in kernel.outputs}
    looked_at = 0
    for number, outputs in enumerate(trace.outputs if not support.failure(trace) else ()):
        for index, node, operands in _judgeable(case, trace):
            tensor = node.outputs[0]
            if tensor not in written or tensor not in case.graph.outputs:
                continue
            seen = outputs[case.graph.outputs.index(tensor)].numpy()
            results = special.allowed(node, operands, seen.shape)
            wrong = special.wrong_elements(node, results, seen)
            if wrong.any():
                at = int(wrong.argmax())
                raise Divergence(
                    f"{_any_of(results, at)} (IEEE 754)",
                    f"{_shown(seen, at)}, {int(wrong.sum())} of {seen.size} elements off",
                    f"element {at} of graph output t{tensor}, {_call(node, operands, at)}, invoke {number}",
                    support.draw(case, trace, index),
                    node=index,
                    is_first=True,
                )
            looked_at += int(special.is_special(seen).sum())
    return Examined(looked_at, "special values")


def _judgeable(case: DelegateCase, trace: DelegateTrace) -> Iterator[tuple[int, Node, list[Array]]]:
    """float32 nodes that read only graph inputs and constants: (index, node, contents of its operands)."""
    tensors = case.graph.tensors
    known = {i: array.numpy() for i, array in zip(case.graph.inputs, trace.inputs, strict=True)}
    known |= {
        index: constant_value(tensor.data, tensor.dtype, tensor.shape)
        for index, tensor in enumerate(tensors)
        if tensor.data is not None
    }
    for index, node in enumerate(case.graph.nodes):
        plain = node.op in special.JUDGED and node.activation == "NONE"
        if plain and tensors[node.outputs[0]].dtype == "float32" and known.keys() >= set(node.inputs):
            yield index, node, [known[operand] for operand in node.inputs]


def _any_of(results: list[Array], at: int) -> str:
    return " or ".join(dict.fromkeys(_shown(result, at) for result in results))


def _shown(values: Array, at: int) -> str:
    return repr(values.ravel()[at].item())


def _call(node: Node, operands: list[Array], at: int) -> str:
    """The operator with the values that element ``at`` is computed from, where each is plain to see."""
    if node.op in special.MOVED:
        return node.op
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    return f"{node.op}({', '.join(_shown(np.broadcast_to(one, shape), at) for one in operands)})"

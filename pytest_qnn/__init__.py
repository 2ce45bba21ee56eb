"""A pytest plugin and conformance suite for TensorFlow Lite delegates and the QNN memory APIs.

What authors need in their own tests can be imported from here (docs/fixtures.md shows how). Each name is
loaded when it is first used, because every pytest run of an environment imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_qnn.cases.data import inputs_of
    from pytest_qnn.cases.delegate import Application, DelegateCase
    from pytest_qnn.cases.graph import Graph, Node, Tensor
    from pytest_qnn.cases.graphs import graphs, graphs_with_claims, single_op_graphs
    from pytest_qnn.cases.memory import Binding, MemoryCase
    from pytest_qnn.cases.memory_strategies import memory_sequences
    from pytest_qnn.cases.model import emit
    from pytest_qnn.live import Delegate, assert_partitioning, execution_plan, invoke
    from pytest_qnn.oracle.numerics import expected_outputs, mismatch

_HOMES = {
    "Application": "cases.delegate",
    "Binding": "cases.memory",
    "Delegate": "live",
    "DelegateCase": "cases.delegate",
    "Graph": "cases.graph",
    "MemoryCase": "cases.memory",
    "Node": "cases.graph",
    "Tensor": "cases.graph",
    "assert_partitioning": "live",
    "emit": "cases.model",
    "execution_plan": "live",
    "expected_outputs": "oracle.numerics",
    "graphs": "cases.graphs",
    "graphs_with_claims": "cases.graphs",
    "inputs_of": "cases.data",
    "invoke": "live",
    "memory_sequences": "cases.memory_strategies",
    "mismatch": "oracle.numerics",
    "single_op_graphs": "cases.graphs",
}

__all__ = [
    "Application",
    "Binding",
    "Delegate",
    "DelegateCase",
    "Graph",
    "MemoryCase",
    "Node",
    "Tensor",
    "assert_partitioning",
    "emit",
    "execution_plan",
    "expected_outputs",
    "graphs",
    "graphs_with_claims",
    "inputs_of",
    "invoke",
    "memory_sequences",
    "mismatch",
    "single_op_graphs",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

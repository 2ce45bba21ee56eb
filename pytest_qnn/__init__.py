"""A pytest plugin and conformance suite for TensorFlow Lite delegates and the QNN memory APIs.

What authors need in their own tests can be imported from here (docs/how-to/fixtures.md shows how). Each name
is loaded when it is first used, because every pytest run of an environment imports this package.

PYTEST_DONT_REWRITE: nothing is asserted here, and a run inside a test, which finds it imported, would
warn that it cannot rewrite the package.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_qnn.qnn.cases.case import Binding, MemoryCase
    from pytest_qnn.qnn.live import QnnError, packed
    from pytest_qnn.qnn.live.errors import WrongFree
    from pytest_qnn.qnn.strategies.allocations import allocation_sequences
    from pytest_qnn.qnn.strategies.sequences import memory_sequences
    from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
    from pytest_qnn.tflite.cases.inputs import inputs_of
    from pytest_qnn.tflite.cases.script import ScriptCase
    from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
    from pytest_qnn.tflite.graph.model import emit
    from pytest_qnn.tflite.graph.strategies import graphs, graphs_with_claims, single_op_graphs
    from pytest_qnn.tflite.live import Delegate, assert_partitioning, execution_plan, invoke
    from pytest_qnn.tflite.live.placing import place_tensor
    from pytest_qnn.tflite.numerics.bounds import expected_outputs, mismatch
    from pytest_qnn.tflite.strategies.allocations import custom_allocation_sequences

_HERE = os.path.dirname(__file__)
if not os.path.isdir(os.path.join(_HERE, "conformance")):
    # This is the package of a clone or of an unpacked source distribution, whose conformance/ and fixtures/
    # stand beside it: only an installation puts them into it. ``python -m pytest`` puts the folder that it is
    # started in first on sys.path, so that there this package hides the installed one. It finds the two here.
    __path__.append(os.path.dirname(_HERE))

_HOMES = {
    "Application": "tflite.cases.delegate",
    "Binding": "qnn.cases.case",
    "Delegate": "tflite.live",
    "DelegateCase": "tflite.cases.delegate",
    "Graph": "tflite.cases.built",
    "MemoryCase": "qnn.cases.case",
    "Node": "tflite.graph.graph",
    "QnnError": "qnn.live",
    "ScriptCase": "tflite.cases.script",
    "Tensor": "tflite.graph.graph",
    "WrongFree": "qnn.live.errors",
    "allocation_sequences": "qnn.strategies.allocations",
    "assert_partitioning": "tflite.live",
    "custom_allocation_sequences": "tflite.strategies.allocations",
    "emit": "tflite.graph.model",
    "execution_plan": "tflite.live",
    "expected_outputs": "tflite.numerics.bounds",
    "graphs": "tflite.graph.strategies",
    "graphs_with_claims": "tflite.graph.strategies",
    "inputs_of": "tflite.cases.inputs",
    "invoke": "tflite.live",
    "memory_sequences": "qnn.strategies.sequences",
    "mismatch": "tflite.numerics.bounds",
    "packed": "qnn.live",
    "place_tensor": "tflite.live.placing",
    "single_op_graphs": "tflite.graph.strategies",
}

__all__ = [
    "Application",
    "Binding",
    "Delegate",
    "DelegateCase",
    "Graph",
    "MemoryCase",
    "Node",
    "QnnError",
    "ScriptCase",
    "Tensor",
    "WrongFree",
    "allocation_sequences",
    "assert_partitioning",
    "custom_allocation_sequences",
    "emit",
    "execution_plan",
    "expected_outputs",
    "graphs",
    "graphs_with_claims",
    "inputs_of",
    "invoke",
    "memory_sequences",
    "mismatch",
    "packed",
    "place_tensor",
    "single_op_graphs",
]


_STRATEGIES: dict[str, dict[str, tuple[int, int]]] = {
    "allocation_sequences": {},
    "custom_allocation_sequences": {"position": (0, 100)},
    "graphs": {},
    "graphs_with_claims": {},
    "memory_sequences": {"max_steps": (1, 1000)},
    "single_op_graphs": {},
}
"""Functions whose arguments are looked at; ranges are those that they do not check themselves."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    if name not in _STRATEGIES:
        return found
    return importlib.import_module(f"{__name__}.core.drawing.arguments").asked(found, _STRATEGIES[name])


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

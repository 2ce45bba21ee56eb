"""What the reference of the QNN delegate claims: what both sides define alike, and the backend validates."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from pytest_qnn.qnn.abi.codes import TensorType
from pytest_qnn.qnn.runner.client import NullFunction, QnnClient, Session
from pytest_qnn.tflite.graph.graph import Node, Tensor
from pytest_qnn.tflite.qnn_delegate.partition import OPERATORS, config, describe, operands

_MOST_DIMENSIONS = 4


def known(node: Node, tensors: Mapping[int, Tensor], constants: set[int]) -> bool:
    """QNN and TensorFlow Lite define the operator alike to the bit, with these types and shapes."""
    if node.op not in OPERATORS or node.activation != "NONE":
        return False
    if node.op == "RESHAPE" and any(index not in constants for index in node.inputs[1:]):
        return False
    border = (*operands(node), *node.outputs)
    shapes = [tensors[index].shape for index in border]
    plain = all(
        tensors[index].dtype == "float32" and len(tensors[index].shape) <= _MOST_DIMENSIONS
        for index in border
    )
    return plain and all(map(all, shapes)) and (node.op == "RESHAPE" or len(set(shapes)) == 1)


def validates(client: QnnClient, session: Session, node: Node, tensors: Mapping[int, Tensor]) -> bool:
    """QnnBackend_validateOpConfig accepts the operator with these tensors."""
    kept: list[Any] = []
    inputs = [describe(kept, index, tensors[index], TensorType.APP_WRITE) for index in operands(node)]
    outputs = [describe(kept, index, tensors[index], TensorType.APP_READ) for index in node.outputs]
    with contextlib.suppress(NullFunction):
        made = config(kept, node, inputs, outputs)
        return not client.call("backendValidateOpConfig", session.backend, made)
    return False

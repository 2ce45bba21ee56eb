"""Which operators the reference delegate implements: by type, quantisation and options."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pytest_qnn.tflite.graph.graph import Node, Tensor


def supports(node: Node, tensors: Mapping[int, Tensor], constants: Collection[int]) -> bool:
    """Whether the reference delegate computes ``node`` as the CPU does.

    ``tensors`` holds every present operand and result of the node, ``constants`` the indices of those
    that the model fixes. Shapes of results must follow from shapes of operands and constants alone.
    """
    operands = [index for index in node.inputs if index >= 0]
    if node.op in ("MEAN", "FULLY_CONNECTED") and any(0 in tensors[index].shape for index in operands):
        return False  # nothing to sum
    if node.op in ("RESHAPE", "MEAN"):
        if any(index not in constants for index in operands[1:]):
            return False
        operands = operands[:1]
    if node.op in ("FULLY_CONNECTED", "CONV_2D"):
        return _weighted(node, tensors, operands)
    kinds = {tensors[index].dtype for index in (*operands, *node.outputs)}
    return kinds == {"float32"} or (kinds == {"int8"} and _per_tensor(tensors, (*operands, *node.outputs)))


def _weighted(node: Node, tensors: Mapping[int, Tensor], operands: list[int]) -> bool:
    """CONV_2D and FULLY_CONNECTED: data, weights and a bias of the matching type."""
    if len(operands) < 2:
        return False
    value, weights, *bias = (tensors[index] for index in operands)
    result = tensors[node.outputs[0]]
    dtype = value.dtype
    if dtype not in ("float32", "int8") or weights.dtype != dtype or result.dtype != dtype:
        return False
    if dtype == "int8" and not _per_tensor(tensors, (operands[0], node.outputs[0])):
        return False
    if node.op == "CONV_2D" and value.shape[-1:] != weights.shape[-1:]:
        return False  # a grouped convolution
    return all(tensor.dtype == ("int32" if dtype == "int8" else "float32") for tensor in bias)


def _per_tensor(tensors: Mapping[int, Tensor], indices: Collection[int]) -> bool:
    return all(len(tensors[index].scales) == 1 for index in indices)

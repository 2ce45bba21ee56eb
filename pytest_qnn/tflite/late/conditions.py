"""What the faults share: conditions that they wait for, and what they do to values and memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from pytest_qnn.isolation import libc
from pytest_qnn.tflite.abi import layouts, peek, view
from pytest_qnn.tflite.graph.graph import Op, Tensor
from pytest_qnn.tflite.reference.delegate import Kernel, ReferenceDelegate, Values

KIB = 1024
MIB = 1024 * KIB

BINARY: tuple[Op, ...] = ("ADD", "SUB", "MUL", "MAXIMUM")
Operands = list[Values | None]


def cut(value: Values, elements: int) -> Values:
    """A copy with zeros behind the first elements."""
    flat: Values = np.array(value).ravel()
    flat[elements:] = 0
    return flat.reshape(value.shape)


def store_part(context: int, index: int, value: Values, elements: int) -> None:
    """Store the first elements of a result; the tensor keeps what it has behind them."""
    data = view.tensor(context, index).data
    peek.array(data, value.dtype, (min(elements, value.size),))[...] = value.ravel()[:elements]


def leak(size: int) -> None:
    """Take memory that nobody gives back."""
    libc.malloc(size)


def with_tensors(kernel: Kernel, changed: Mapping[int, Tensor]) -> Kernel:
    """The kernel with other descriptions of some tensors."""
    return dataclasses.replace(kernel, tensors={**kernel.tensors, **changed})


def is_constant(context: int, index: int) -> bool:
    """The tensor is part of the model."""
    return view.tensor(context, index).allocation_type == layouts.ALLOCATION_MMAP_RO


class Knowing(ReferenceDelegate):
    """As the reference; it knows its kernels, and which one is at work."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kernels: list[tuple[int, Kernel]] = []
        """(context, kernel) of all that live, in the order of init."""
        self.current: Kernel | None = None
        """The kernel that is invoked, or was last."""

    def init(
        self, context: int, nodes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> Kernel | None:
        """As the reference."""
        kernel = super().init(context, nodes, inputs, outputs)
        if kernel is not None:
            self.kernels.append((context, kernel))
        return kernel

    def kernel_invoke(self, context: int, kernel: Kernel) -> int:
        """As the reference."""
        self.current = kernel
        return super().kernel_invoke(context, kernel)

    def free(self, kernel: Kernel) -> None:
        """As the reference."""
        self.kernels = [(context, one) for context, one in self.kernels if one is not kernel]
        super().free(kernel)

    def outputs_of(self, context: int, kernel: Kernel) -> dict[int, Values]:
        """Copies of what the kernel's outputs hold."""
        found = {index: self.read_input(context, index) for index in kernel.outputs}
        return {index: value.copy() for index, value in found.items() if value is not None}

    def put_back(self, context: int, kept: Mapping[int, Values]) -> None:
        """Store results of another time, as far as the tensors have their sizes."""
        for index, value in kept.items():
            if view.tensor(context, index).bytes == value.nbytes:
                self.write_output(context, index, value)

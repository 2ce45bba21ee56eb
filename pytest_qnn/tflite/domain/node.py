"""What the model of a cell consists of: operands, options, and the results that are expected."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy.typing as npt

from pytest_qnn.tflite.domain.cell import Cell

Values = npt.NDArray[Any]
Field = tuple[int, str, Any]
"""Number of a field in its table, its format (as of `struct`; ``iv``: a vector of int32), and its value."""


class Scaling(NamedTuple):
    """The quantisation of a tensor."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0


class Operand(NamedTuple):
    """A tensor that the node reads."""

    values: Values
    """As they are stored; of the tensor's type."""
    constant: bool = False
    scaling: Scaling | None = None


class Result(NamedTuple):
    """A tensor that the node writes."""

    dtype: str
    values: Values
    """What is expected, in stored units: float64, or integers where it must be exact."""
    error: Any = 0
    """How far each may be from it: the bound, of the same shape or a number."""
    scaling: Scaling | None = None


class OneNode(NamedTuple):
    """The node of a cell."""

    operands: tuple[Operand | None, ...]
    """None: an optional one that is absent."""
    results: tuple[Result, ...]
    tag: int = 0
    """Of its options in the union BuiltinOptions; 0: it has none."""
    fields: tuple[Field, ...] = ()


class NoSuchCellError(Exception):
    """No model can be made with these coordinates; the text says why."""


@dataclasses.dataclass(frozen=True)
class Operator:
    """A builtin operator."""

    name: str
    code: int
    """BuiltinOperator."""
    make: Callable[[Cell], OneNode]
    fuses: bool = False
    """It has a fused activation."""
    forms: tuple[str, ...] = ()
    """Beside the plain one."""
    channels: bool = False
    """Its weights may have a scale per channel."""
    hybrid: tuple[str, ...] = ()
    """Forms of its float32 nodes with weights of int8."""
    versions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """By type, or type and form: the version from which the converter uses the operator; others: 1."""

    def version(self, cell: Cell) -> int:
        """Of the operator in the model of the cell."""
        return self.versions.get(f"{cell.dtype} {cell.form}") or self.versions.get(cell.dtype, 1)

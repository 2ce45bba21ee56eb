"""How an operator of the table is described, and one call of it.

A signature says what data types fit: letters of the inputs, ``>``, letters of the outputs.

    T   one data type throughout: of floats, fixed point or integers
    K   floats where T are floats, fixed point where T is fixed point, else the type of T
    F   floats             Q   fixed point         I   integers of 32 or 64 bits
    B   BOOL_8             N   any but BOOL_8      A   any

Behind a letter ``?`` allows that it is left out (at the end), ``*`` that there are any more of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_qnn.qnn.abi.codes import DataType
from pytest_qnn.qnn.reference.objects import Tensor
from pytest_qnn.qnn.reference.operators.values import Values, kind_of

Scalar = bool | int | float
_INDICES = frozenset(map(int, (DataType.INT_32, DataType.INT_64, DataType.UINT_32, DataType.UINT_64)))


@dataclasses.dataclass(frozen=True)
class Call:
    """Operands of an operator as real values, its parameters, and the tensors that it has to fill."""

    inputs: Sequence[Values]
    """float64 for floats and fixed point, int64 for integers, bool for BOOL_8."""
    parameters: Mapping[str, Any]
    """Scalars, and arrays of what a tensor holds, by the name in QnnOpDef.h."""
    outputs: Sequence[Tensor]

    def number(self, name: str, usual: Scalar | None = None) -> Any:
        """A scalar parameter. Raises KeyError where it is missing and has no usual value."""
        return self.parameters[name] if usual is None else self.parameters.get(name, usual)

    def integers(self, name: str, usual: Sequence[int] | None = None) -> list[int]:
        """A tensor parameter, flat. Raises KeyError as `number`."""
        found = self.parameters[name] if usual is None else self.parameters.get(name, usual)
        return [int(each) for each in np.ravel(found)]

    def axis(self, usual: int | None = None, rank: int | None = None) -> int:
        """The parameter ``axis``, from 0 up. Raises ValueError for one that the first input has not."""
        rank = self.inputs[0].ndim if rank is None else rank
        axis = int(self.number("axis", usual))
        if not -rank <= axis < rank:
            raise ValueError(f"there is no axis {axis}")
        return axis % rank

    def operand(self, index: int) -> Values | None:
        """An input that may be left out."""
        return self.inputs[index] if index < len(self.inputs) else None


@dataclasses.dataclass(frozen=True)
class Definition:
    """An operator of the table."""

    signature: str
    compute: Callable[[Call], Values | Sequence[Values]]
    """Its outputs, in their shapes.

    Raises:
        ValueError, KeyError, IndexError, TypeError: the call does not fit.
    """
    parameters: frozenset[str] = frozenset()
    """Names that it knows: any other is refused."""


def operator(signature: str, compute: Callable[[Call], Values | Sequence[Values]], *names: str) -> Definition:
    """A definition with parameters of these names."""
    return Definition(signature, compute, frozenset(names))


def matches(signature: str, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
    """Whether data types are those of a signature."""
    given, made = (re.findall(r"(\w)([?*]?)", side) for side in signature.split(">"))
    pairs = [*_pairs(given, inputs), *_pairs(made, outputs)]
    firsts = [data_type for letter, data_type in pairs if letter == "T"]
    return all(_is(letter, data_type, firsts[0] if firsts else None) for letter, data_type in pairs)


def _pairs(letters: Sequence[tuple[str, str]], types: Sequence[int]) -> Iterator[tuple[str, int | None]]:
    """Each type with its letter; None stands for a letter or a type that the other side lacks."""
    waiting = list(types)
    for letter, more in letters:
        if waiting:
            yield letter, waiting.pop(0)
        elif more != "?":
            yield letter, None
        while more == "*" and waiting:
            yield letter, waiting.pop(0)
    for data_type in waiting:
        yield "", data_type


def _is(letter: str, data_type: int | None, first: int | None) -> bool:
    if data_type is None:
        return False
    kind = kind_of(data_type)
    if letter == "K":
        return first is not None and kind == kind_of(first)
    return {
        "T": data_type == first and kind != "boolean",
        "F": kind == "float",
        "Q": kind == "fixed",
        "I": data_type in _INDICES,
        "B": kind == "boolean",
        "N": kind != "boolean",
        "A": True,
    }.get(letter, False)

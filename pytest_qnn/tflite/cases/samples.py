"""Tensors that are too large for a trace: contents each element of which can be told, and where to look."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.graph.graph import Graph

Values = npt.NDArray[Any]

PERIOD: Final = 4093
"""Elements after which contents repeat: a prime, so that what is beside the right element by a power of two
has another value."""
_EVENLY: Final = 2048
"""Elements looked at from the first to the last one."""
_AT_THE_ENDS: Final = 128
_AROUND: Final = 3
"""The same on either side of each power of two."""


def of_length(graph: Graph, count: int) -> Graph:
    """The graph of element-wise operators with ``count`` elements in each tensor, in one dimension."""
    tensors = tuple(msgspec.structs.replace(tensor, shape=(count,)) for tensor in graph.tensors)
    return msgspec.structs.replace(graph, tensors=tensors)


def periods(graph: Graph, seed: int) -> list[Values]:
    """What the contents of each input repeat, shape (PERIOD,)."""
    return inputs_of(DelegateCase(of_length(graph, PERIOD), data_seed=seed))


def places(count: int) -> Values:
    """Where to look in a tensor of so many elements: ascending indices, int64.

    Its ends, evenly between them, and around each power of two, where a counter of few bits overflows.
    """
    evenly = np.linspace(0, max(0, count - 1), _EVENLY).astype(np.int64)
    ends = np.concatenate([np.arange(_AT_THE_ENDS), count - 1 - np.arange(_AT_THE_ENDS)])
    powers = 1 << np.arange(max(1, int(count).bit_length() + 1), dtype=np.int64)
    around = (powers[:, None] + np.arange(-_AROUND, _AROUND + 1)).ravel()
    every = np.unique(np.concatenate([evenly, ends, around]))
    inside: Values = every[(every >= 0) & (every < count)]
    return inside

"""Cases for rules about numbers: graphs and claims from drawn bytes, with the contents of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from hypothesis.strategies import SearchStrategy

from pytest_qnn.core.drawing import decoded
from pytest_qnn.tflite.cases.delegate import DelegateCase, Fill
from pytest_qnn.tflite.graph.decode import HEADER, RECORD
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.kinds import Claims, Kind, decode_graph
from pytest_qnn.tflite.graph.scales import scale_of

_FILLS: tuple[Fill, ...] = ("mixed", "ramp", "extreme")
_EXTRA = 5
"""Bytes before the graph's: class of size, shape of the case, seed (2), contents."""

Make = Callable[[Graph, Claims, int], DelegateCase]
"""(graph, claims, choice 0..255) -> case; seed and contents of the inputs are filled in afterwards."""


def numeric_cases(
    kinds: Sequence[Kind],
    make: Make,
    n_claims: int,
    *,
    min_nodes: int = 1,
    max_nodes: int,
    fills: Sequence[Fill] = _FILLS,
    single: Sequence[Kind] = (),
    scaled: Sequence[str] | None = None,
) -> SearchStrategy[DelegateCase]:
    """Cases decoded from one draw of bytes. ``single``: every second one is a node of these kinds.

    ``scaled``: names of classes of `pytest_qnn.tflite.graph.scales`; None: all.
    """
    size = _EXTRA + HEADER + n_claims + max_nodes * (RECORD + (n_claims > 0))

    def decode(data: bytes) -> DelegateCase:
        choice, seed, fill = data[1], int.from_bytes(data[2:4], "big"), fills[data[4] % len(fills)]
        scale = scale_of(data[0], max_nodes, scaled)
        if single and choice & 1:
            graph, claims = decode_graph(data[_EXTRA:], single, n_claims, 1, 1, scale)
            fill = "mixed"
        else:
            graph, claims = decode_graph(data[_EXTRA:], kinds, n_claims, min_nodes, max_nodes, scale)
        return msgspec.structs.replace(make(graph, claims, choice), data_seed=seed, fill=fill)

    return decoded(size, decode)

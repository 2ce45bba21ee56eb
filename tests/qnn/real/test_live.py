"""What authors' own tests use, on Qualcomm's library, in a process of its own."""

from __future__ import annotations

import pytest
from real_libraries import real_library

SOURCE = """
import numpy as np
from pytest_qnn import Binding

def test_a_context_binary(qnn_backend, qnn_context, qnn_graph, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(qnn_backend.save(qnn_context))
    info = qnn_backend.binary_info(str(path))
    assert info.backend_id == 6
    (graph,) = info.graphs
    assert graph.name == qnn_graph
    assert [(each.shape, each.dtype) for each in (*graph.inputs, *graph.outputs)] == [
        ((1, 2, 2, 2), np.uint8)
    ] * 3
    value = np.full((1, 2, 2, 2), 140, np.uint8)
    (loaded,) = qnn_backend.load(path).graph().execute(value, value)
    assert (loaded == 146).all()

def test_the_reference_beside_it(qnn_backend, reference_backend):
    both = [
        backend.execute(backend.graph(backend.context(), (1, 8)), Binding(seed=1), Binding(seed=2))
        for backend in (qnn_backend, reference_backend)
    ]
    assert both[0] == both[1]
"""


def test_a_real_binary_and_the_reference_beside_a_real_backend(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SOURCE)
    option = f"--qnn-backend={real_library('libQnnHtp.so')}"
    pytester.runpytest_subprocess("-p", "no:cacheprovider", option).assert_outcomes(passed=2)

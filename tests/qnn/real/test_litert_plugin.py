"""LiteRT's compiler plugin for Qualcomm, a program in C++, composes graphs on the reference and keeps its
binary."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_run import later

from pytest_qnn import native
from pytest_qnn.qnn.live import qnn_session
from pytest_qnn.qnn.reference.binaries import HEADER_SIZE, MAGIC
from pytest_qnn.tflite.graph.combinations import GRID, Combination
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import graph_of
from pytest_qnn.tflite.graph.model import emit

_FIRST = Combination("CONV_2D", "int8", 4, quantisation="channel", zero_points=True)
_CHAIN = Graph(
    tensors=(Tensor((1, 4)),) * 5,
    nodes=(Node("ADD", (0, 1), (2,)), Node("MUL", (2, 0), (3,)), Node("RELU", (3,), (4,))),
    inputs=(0, 1),
    outputs=(4,),
)
_UNUSED = ("libQnnIr.so", "libQnnLpai.so", "libQnnSaver.so")
"""What the plugin is linked with, besides the two libraries that it opens for HTP."""


def _wheel() -> Path:
    found = importlib.util.find_spec("ai_edge_litert")
    if found is None or not found.submodule_search_locations:
        pytest.skip("there is no wheel of ai-edge-litert for this platform")
    return Path(found.submodule_search_locations[0])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process that finds the reference where the plugin looks for libQnnHtp.so."""
    if native.libpython() is None:
        pytest.skip("this Python has no shared library that a C++ program could load")
    folder = tmp_path_factory.mktemp("native")
    libraries = native.build(folder)
    shutil.copy(libraries.backend, folder / "libQnnHtp.so")
    empty = folder / "empty.c"
    empty.write_text("int pytest_qnn_nothing;\n")
    for name in _UNUSED:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, empty], check=True)
    found = os.environ | libraries.environment()
    return found | {"LD_LIBRARY_PATH": f"{folder}:{_wheel()}"}


def _compiled(graph: Graph, folder: Path, environment: dict[str, str]) -> tuple[bytes, str]:
    """The one context binary in what the plugin makes of a model, and what it says."""
    model, out = folder / "model.tflite", folder / "compiled.tflite"
    model.write_bytes(emit(graph))
    command = [_wheel() / "tools" / "apply_plugin_main", "--cmd=apply", f"--model={model}", f"--o={out}"]
    target = ["--soc_manufacturer=Qualcomm", "--soc_model=SM8650"]
    plugin = f"--libs={_wheel() / 'vendors' / 'qualcomm' / 'compiler'}"
    done = subprocess.run(
        [*command, *target, plugin],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    data = out.read_bytes() if out.exists() else b""
    (begin,) = [match.start() for match in re.finditer(MAGIC, data)] or pytest.fail(said)
    (length,) = struct.unpack_from("<Q", data, begin + len(MAGIC))
    return data[begin : begin + HEADER_SIZE + length], said


def _on_cpu(graph: Graph) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of a model, and what LiteRT's kernels make of them, by name."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - the wheel may be missing

    interpreter = Interpreter(model_content=bytes(emit(graph)))
    interpreter.allocate_tensors()
    random = np.random.default_rng(3)
    inputs = {}
    for each in interpreter.get_input_details():
        floats = (random.integers(-16, 17, each["shape"]) / 8).astype(np.float32)
        stored = random.integers(-128, 128, each["shape"]).astype(np.int8)
        inputs[each["name"]] = floats if each["dtype"] == np.float32 else stored
        interpreter.set_tensor(each["index"], inputs[each["name"]])
    interpreter.invoke()
    details = interpreter.get_output_details()
    return inputs, {each["name"]: interpreter.get_tensor(each["index"]) for each in details}


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(graph_of(_FIRST), id=str(_FIRST)),
        later(_CHAIN, name="ADD, MUL, RELU"),
        *(later(graph_of(each), name=str(each)) for each in GRID[::12]),
    ],
)
def test_the_plugin_compiles_a_model_that_computes_what_litert_computes(
    graph: Graph, tmp_path: Path, environment: dict[str, str]
) -> None:
    binary, said = _compiled(graph, tmp_path, environment)
    count = len(graph.nodes)
    assert f"selected {count} ops, from a total of {count} ops. resulted in 1 partitions" in said
    inputs, wanted = _on_cpu(graph)
    with qnn_session() as session:
        loaded = session.load(binary).graph()
        given = [inputs[each.name].reshape(each.shape) for each in loaded.info.inputs]
        found = dict(zip((each.name for each in loaded.info.outputs), loaded.execute(*given), strict=True))
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        apart = np.abs(found[name].reshape(values.shape).astype(np.float64) - values.astype(np.float64))
        # A step, since LiteRT's kernels multiply by scales of 31 bits; of floats as `ort_models`, "rounded".
        bound = 1 if values.dtype == np.int8 else 32 * 2.0**-24 * np.abs(values).max()
        assert apart.max() <= bound

"""LiteRT's compiler plugin for Qualcomm, a program in C++, composes graphs on the reference and keeps its
binary."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_run import later
from real_libraries import real_library

from pytest_qnn import native
from pytest_qnn.core.verdict import Violation
from pytest_qnn.qnn.cases.case import ContextCreate, GetBinary, Inspect, MemoryCase, Prepare
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.live import qnn_session
from pytest_qnn.qnn.trace import MemoryTrace, StepSeen
from pytest_qnn.rules import catalogue
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
_KEY = b"bytecode_size\0"
"""Where the options of the operator that stands for a binary begin: a vector, its length before it."""
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


def _compiled(graph: Graph, folder: Path, environment: dict[str, str], *options: str) -> tuple[bytes, str]:
    """The one context binary in what the plugin makes of a model, and what it says."""
    model, out = folder / "model.tflite", folder / "compiled.tflite"
    model.write_bytes(emit(graph))
    command = [_wheel() / "tools" / "apply_plugin_main", "--cmd=apply", f"--model={model}", f"--o={out}"]
    target = ["--soc_manufacturer=Qualcomm", "--soc_model=SM8650"]
    plugin = f"--libs={_wheel() / 'vendors' / 'qualcomm' / 'compiler'}"
    done = subprocess.run(
        [*command, *target, plugin, *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = done.stdout + done.stderr
    data = out.read_bytes() if out.exists() else b""
    (begin, length) = _place_of_binary(data) or pytest.fail(said)
    return data[begin : begin + length], said


def _place_of_binary(data: bytes) -> tuple[int, int] | None:
    """Where in a compiled model its binary is, and how long, as the options of its only operator say."""
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    begin = data.find(_KEY)
    if begin < 0:
        return None
    (length,) = struct.unpack_from("<I", data, begin - 4)
    options = flexbuffers.GetRoot(data[begin : begin + length]).AsMap.Value
    return options["bytecode_offset"], options["bytecode_size"]


def _judge_memory_types(code: int, types: tuple[int, ...], given: int) -> None:
    """OFF-01 of a binary whose graph has three IO tensors, which were made with this memory type.

    Raises:
        Violation: the binary has another one.
    """
    steps = (
        ContextCreate("c"),
        Prepare("g", "c", mem_types=(given,) * 3),
        GetBinary("c", "f"),
        Inspect("f"),
    )
    facts = MemoryFacts(operators=(("ElementWiseAdd", "UFIXED_POINT_8"),), capabilities={202: 0})
    seen = (StepSeen(0), StepSeen(0), StepSeen(0, values=(1, 1)), StepSeen(code, values=types))
    catalogue()["OFF-01"].check(MemoryCase(steps), MemoryTrace(steps=seen, facts=facts))


_DESCRIBE = """
import os, sys
from pytest_qnn.qnn.runner.binaries import describe
from pytest_qnn.qnn.runner.sources import MemorySource
with MemorySource(sys.argv[1], "emulated").open() as (entry, _), open(sys.argv[2], "rb") as file:
    code, types, _ = describe(entry, file.read())
    print(code, *types, flush=True)
    os._exit(0)
"""


def _described(backend: str, binary: bytes, folder: Path) -> tuple[int, ...]:
    """What the System interface beside a backend answers, and each tensor's memory type; in a child."""
    file = folder / "binary"
    file.write_bytes(binary)
    command = [sys.executable, "-c", _DESCRIBE, backend, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return tuple(map(int, done.stdout.splitlines()[-1].split()))


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


@pytest.mark.parametrize(
    ("kind", "library"),
    [
        ("memhandle", ""),
        later("raw", ""),
        later("memhandle", "libQnnHtp.so"),
        later("raw", "libQnnHtp.so"),
    ],
)
def test_a_binary_of_the_plugin_has_the_memory_types_that_it_was_told(
    kind: str, library: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Seed 001's option in a compiler: OFF-01 judges its binaries, of the reference and of libQnnHtp.so."""
    backend = str(real_library(library)) if library else "reference"
    if library:
        beside = environment["LD_LIBRARY_PATH"].partition(":")[0]
        stub = tmp_path / "stub"
        stub.mkdir()
        shutil.copy(Path(beside, "libQnnLpai.so"), stub)
        environment = environment | {"LD_LIBRARY_PATH": f"{Path(backend).parent}:{stub}:{_wheel()}"}
    option = f"--qualcomm_graph_io_tensor_mem_type={kind}"
    binary, _ = _compiled(_CHAIN, tmp_path, environment, option)
    code, *types = _described(backend, binary, tmp_path)
    given = ("raw", "memhandle").index(kind)
    _judge_memory_types(code, tuple(types), given)
    with pytest.raises(Violation):
        _judge_memory_types(code, tuple(types), 1 - given)

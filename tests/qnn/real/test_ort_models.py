"""Whole models on the reference, by ONNX Runtime's QNN provider, without falling back to the CPU."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fast_run import later

from pytest_qnn import native
from pytest_qnn.native import NativeReference

pytest.importorskip("onnx", reason="there is no wheel of onnxruntime-qnn for this platform")
CLIENTS = Path(__file__).parent / "native_clients"
NETWORK = "a network like MobileNet"
FEW = (
    "Sigmoid",
    "Softmax",
    "Conv, depthwise",
    "AveragePool with padding",
    "Resize, linear",
    "Slice",
    "Add, i16",
    "Gemm, u8",
    "Conv, u8, per axis",
    "Convert between data types",
    "QuantizeLinear and DequantizeLinear",
    NETWORK,
)
"""In the fast run; they take one process."""


def _models() -> ModuleType:
    """The table of models, which is a module of the client's."""
    spec = importlib.util.spec_from_file_location("ort_models", CLIENTS / "ort_models.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


_TABLE = _models()
MODELS, AS_THE_LIBRARY = _TABLE.MODELS, _TABLE.AS_THE_LIBRARY
LIMITS = {"exact": 0, "rounded": 1, "step": 1, "no tie": 0}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> NativeReference:
    return native.build(tmp_path_factory.mktemp("native"))


@functools.cache
def _answers(
    libraries: NativeReference, *words: str, personality: str = "default"
) -> dict[str, dict[str, Any]]:
    """What the client says of each model, by name; each list of words is asked once."""
    command = [sys.executable, str(CLIENTS / "ort_compare.py"), str(libraries.backend), *words]
    environment = os.environ | libraries.environment(personality)
    done = subprocess.run(
        command,
        env=environment,
        cwd=libraries.backend.parent,  # the provider writes beside what it profiles, and where it is started
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {each["name"]: each for each in answers}


@pytest.mark.parametrize("name", [name if name in FEW else later(name) for name in MODELS])
def test_a_model_computes_what_the_cpu_provider_computes(libraries: NativeReference, name: str) -> None:
    few = tuple(each for each in MODELS if each in FEW)
    asked = few if name in FEW else tuple(each for each in MODELS if each not in FEW)
    found = _answers(libraries, *asked)[name]
    assert "refused" not in found, found["refused"]
    assert found["difference"] <= LIMITS[MODELS[name].bound]
    assert found["values"] > 1  # an output of one number would show nothing


def test_a_network_has_more_than_fifty_operators_and_no_value_near_a_half(libraries: NativeReference) -> None:
    few = tuple(each for each in MODELS if each in FEW)
    margins = _answers(libraries, *few)[NETWORK]["margins"]
    assert min(margins.values()) > 0.0038, margins  # float32 is off by less: `ort_models.ODD`
    operators = [node.op_type for node in MODELS[NETWORK].make().graph.node]
    assert sum(not each.endswith("Linear") for each in operators) > 50


@pytest.mark.full
def test_results_that_are_cut_instead_of_rounded_are_seen(libraries: NativeReference) -> None:
    found = _answers(libraries, NETWORK, "Conv, u8, per axis", personality="rounds-down")
    assert found[NETWORK]["difference"] > 0
    assert found["Conv, u8, per axis"]["difference"] <= 1  # a step, which its bound has to allow


@pytest.mark.full
def test_relu_and_multiply_are_rounded_as_by_the_library_that_it_stands_for(
    libraries: NativeReference,
) -> None:
    package = importlib.util.find_spec("onnxruntime_qnn")
    assert package
    library = Path((package.submodule_search_locations or [""])[0], "libQnnHtp.so")
    found = _answers(libraries, f"against={library}", *AS_THE_LIBRARY)
    assert {name: each.get("difference") for name, each in found.items()} == dict.fromkeys(AS_THE_LIBRARY, 0)
    assert all(each["values"] > 60 for each in found.values())


@pytest.fixture(scope="module")
def saved(libraries: NativeReference, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A folder of saved contexts, and what was computed as they were made, and out of them elsewhere."""
    folder = tmp_path_factory.mktemp("saved")
    saving = _answers(libraries, "ep.context_enable=1", f"ep.context_file_path={folder}/%d.onnx", *MODELS)
    return folder, saving, _answers(libraries, f"load={folder}/%d.onnx", *MODELS)


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_a_saved_context_computes_the_same_in_another_process(
    saved: tuple[Path, Any, Any], name: str
) -> None:
    folder, saving, loading = saved
    (binary,) = folder.glob(f"{list(MODELS).index(name)}_*.bin")
    assert binary.read_bytes()[:8] == b"PQNNCTX1"
    assert saving[name]["difference"] == loading[name]["difference"]
    assert loading[name]["difference"] <= LIMITS[MODELS[name].bound]


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_the_same_with_the_shared_memory_allocator(
    libraries: NativeReference, name: str
) -> None:
    found = _answers(libraries, "enable_htp_shared_memory_allocator=1", *MODELS)[name]
    assert "refused" not in found, found["refused"]
    assert found["difference"] == _answers(libraries, *MODELS)[name]["difference"]
    assert found["difference"] <= LIMITS[MODELS[name].bound]


@pytest.mark.parametrize("level", ["detailed", later("basic")])
def test_profiles_reach_the_table_and_the_serialisation_target(
    libraries: NativeReference, tmp_path: Path, level: str
) -> None:
    table = tmp_path / "profile.csv"
    _answers(libraries, f"profiling_level={level}", f"profiling_file_path={table}", "Sigmoid")
    rows = [line.split(",") for line in table.read_text().splitlines()[1:]]
    assert [(row[1], row[3], row[6]) for row in rows] == [
        ("FINALIZE", "US", "finalize"),
        ("EXECUTE", "US", "execute"),
    ]
    lines = [json.loads(line) for line in Path(tmp_path, "profile_qnn.log").read_text().splitlines()]
    measured = [line for line in lines if "events" in line]
    assert [line["application"] for line in lines if "application" in line] == ["OnnxRuntime"] * 2
    assert [(line["method"], event["type"]) for line in measured for event in line["events"]] == [
        (2, 300),
        (1, 400),
    ]
    assert [str(event["value"]) for line in measured for event in line["events"]] == [row[2] for row in rows]
    assert all(line["start"] <= line["stop"] for line in measured)

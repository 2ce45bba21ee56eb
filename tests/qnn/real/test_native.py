from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast_run import expression, later, some_of
from reports import judged_by_id

from pytest_qnn import native
from pytest_qnn.native import NativeReference
from pytest_qnn.rules import catalogue

CLIENTS = Path(__file__).parent / "native_clients"
ORT = "onnxruntime_qnn"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> NativeReference:
    return native.build(tmp_path_factory.mktemp("native"))


@functools.cache
def _ort_library(name: str) -> str:
    found = importlib.util.find_spec(ORT)
    if found is None or not found.submodule_search_locations:
        pytest.skip("there is no wheel of onnxruntime-qnn for this platform")
    return str(Path(found.submodule_search_locations[0], name))


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@functools.cache
def _ort(libraries: NativeReference, *words: str, client: str = "ort_client.py") -> dict[str, Any]:
    """What ONNX Runtime answers in a process of its own; each is asked once: starting takes seconds."""
    _ort_library("")
    command = [sys.executable, str(CLIENTS / client), *words]
    done = _run(command, libraries.environment())
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_c_client_without_python_computes_in_shared_memory(
    libraries: NativeReference, tmp_path: Path
) -> None:
    if native.libpython() is None:
        pytest.skip("this Python has no shared library that a C program could load")
    client = tmp_path / "client"
    source = str(CLIENTS / "qnn_client.c")
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", client, source, "-ldl"], check=True)
    done = _run([str(client), str(libraries.backend)], libraries.environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "PYTEST_QNN_REFERENCE: 128 sums are right\n"


def test_the_c_client_sees_the_personality_that_was_asked_for(
    libraries: NativeReference, tmp_path: Path
) -> None:
    if native.libpython() is None:
        pytest.skip("this Python has no shared library that a C program could load")
    client = tmp_path / "client"
    subprocess.run(["gcc", "-o", client, str(CLIENTS / "qnn_client.c"), "-ldl"], check=True)
    done = _run([str(client), str(libraries.backend)], libraries.environment("no-memory"))
    assert (done.returncode, done.stderr) == (1, "1000: memRegister\n")


def test_a_process_without_any_python_gets_not_supported_and_a_reason(
    libraries: NativeReference, tmp_path: Path
) -> None:
    client = tmp_path / "client"
    subprocess.run(["gcc", "-o", client, str(CLIENTS / "qnn_client.c"), "-ldl"], check=True)
    environment = libraries.environment() | {"PYTEST_QNN_LIBPYTHON": "/nowhere/libpython.so"}
    done = _run([str(client), str(libraries.backend)], environment)
    assert done.returncode == 1
    assert "1000: QnnInterface_getProviders" in done.stderr
    assert "none to load: /nowhere/libpython.so" in done.stderr


def _verdicts(libraries: NativeReference, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The suite's rules on the libraries, by id; none is broken."""
    report = folder / "report.json"
    target = (f"--qnn-backend={libraries.backend}", f"--qnn-rpcmem={libraries.rpcmem}")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--qnn-profile=quick",
        "--qnn-seed=1",
    ]
    suite = ("--rootdir", str(folder), f"--qnn-report={report}", "--pyargs", "pytest_qnn.conformance")
    done = _run([*command, *target, *suite, *options], {})
    assert done.returncode == 0, done.stdout
    return judged_by_id(json.loads(report.read_text()))


@pytest.mark.parametrize("which", ["some", later("all")])
def test_the_libraries_pass_the_suite_as_foreign_ones(
    libraries: NativeReference, tmp_path: Path, which: str
) -> None:
    every = [rule.id for rule in catalogue().values() if rule.subject == "memory"]
    chosen = some_of("memory", "DMA-01", "EXE-18", "EXT-29") if which == "some" else every
    rules = _verdicts(libraries, tmp_path, "-k", expression(chosen))
    # What the default personality has no gate for, and what only the reference in Python can be made to do.
    closed = {
        "CAP-02",
        "DMA-01",
        "DMA-02",
        "DMA-03",
        "DMA-04",
        "EXE-18",
        "EXE-22",
        "EXT-29",
        "EXT-32",
        "ION-06",
        "MSC-01",
        "MSC-02",
        "MSC-03",
        "MSC-04",
        "OFF-12",
        *(f"OOM-{number:02}" for number in range(1, 7)),
        "QMG-13",
        "SSR-01",
    }
    others = {name: rule["verdict"] for name, rule in rules.items() if rule["verdict"] != "pass"}
    assert others == dict.fromkeys(closed & set(chosen), "unsupported")
    assert set(rules) == set(chosen)


@pytest.mark.parametrize("kind", ["u8", "float"])
def test_onnx_runtime_computes_on_the_reference_as_on_its_own_kernels(
    libraries: NativeReference, kind: str
) -> None:
    found = _ort(libraries, kind, str(libraries.backend))
    wanted = _ort(libraries, kind, "cpu")
    assert "QNNExecutionProvider" in found["providers"]
    # One unit of uint8: sums that are halfway between two are rounded to even there, and up here.
    bound = 1 if kind == "u8" else 0
    assert np.abs(np.subtract(found["c"], wanted["c"])).max() <= bound


def test_onnx_runtime_gets_the_same_bits_from_the_reference_and_from_libqnnhtp(
    libraries: NativeReference,
) -> None:
    real = _ort(libraries, "u8", _ort_library("libQnnHtp.so"))
    found = _ort(libraries, "u8", str(libraries.backend))
    assert found["c"] == real["c"]
    assert len(set(found["c"])) > 60


def test_onnx_runtime_loads_in_another_process_what_it_saved(
    libraries: NativeReference, tmp_path: Path
) -> None:
    model = tmp_path / "saved.onnx"
    saving = ["ep.context_enable=1", f"ep.context_file_path={model}"]
    saved = _ort(libraries, "u8", str(libraries.backend), *saving)
    binaries = [path.read_bytes() for path in tmp_path.glob("*.bin")]
    assert [data[:8] for data in binaries] == [b"PQNNCTX1"]
    loaded = _ort(libraries, "u8", str(libraries.backend), f"model={model}")
    assert loaded == saved


def test_onnx_runtime_takes_the_emulated_rpcmem(libraries: NativeReference) -> None:
    found = _ort(libraries, "u8", str(libraries.backend), "enable_htp_shared_memory_allocator=1")
    assert found["c"] == _ort(libraries, "u8", str(libraries.backend))["c"]


def test_onnx_runtime_registers_shared_memory_at_offsets_and_lets_it_go(libraries: NativeReference) -> None:
    found = _ort(libraries, str(libraries.backend), client="ort_shared_client.py")
    wanted = _ort(libraries, "u8", str(libraries.backend))
    assert found["c"] == wanted["c"]
    inputs = [{"offset": offset, "size": 4096, "bytes": 128} for offset in (256, 512)]
    output = {"offset": 0, "size": 128, "bytes": 128}
    assert found["running"] == [*inputs, output]
    assert found["inputs_freed"] == [output]
    assert found["all_freed"] == []


def test_the_emulated_rpcmem_reports_wrong_frees(libraries: NativeReference) -> None:
    """As in onnxruntime#23892, where a client freed another address than it had been given."""
    frees = """
import ctypes, sys
rpcmem = ctypes.CDLL(sys.argv[1])
rpcmem.rpcmem_alloc.restype = ctypes.c_void_p
own = rpcmem.rpcmem_alloc(25, 1, 8192)
print(own)
for pointer in (None, own + 4096, own, own):
    rpcmem.rpcmem_free(ctypes.c_void_p(pointer))
"""
    command = [sys.executable, "-c", frees, str(libraries.rpcmem)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    own = int(done.stdout)
    said = "emulated rpcmem: rpcmem_free({:#x}) frees nothing: {}"
    assert done.stderr.splitlines() == [
        said.format(own + 4096, f"it is byte 4096 of an allocation of 8192 bytes at {own:#x}"),
        said.format(own, "no live allocation has this address"),
    ]


def test_a_missing_compiler_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(native.BuildFailed, match=r"need a C compiler \(cc or gcc\), and there is none"):
        native.build(tmp_path)


def test_a_failing_compiler_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'no such machine' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(native.BuildFailed, match=r"cannot build libQnnReference\.so: no such machine"):
        native.build(tmp_path / "out")


def test_a_file_is_no_folder_for_the_libraries(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("")
    done = _run([sys.executable, "-m", "pytest_qnn.native", str(tmp_path / "text.so")], {})
    assert done.returncode == 2
    assert done.stderr.endswith(
        f"'{tmp_path}/text.so' is not a folder: the reference's libraries are written to one\n"
    )


def test_the_command_prints_what_a_client_needs(tmp_path: Path) -> None:
    done = _run([sys.executable, "-m", "pytest_qnn.native", str(tmp_path), "--personality", "no-ion"], {})
    assert done.returncode == 0
    assert f"# backend: {tmp_path}/libQnnReference.so" in done.stdout
    assert "export PYTEST_QNN_PERSONALITY=no-ion" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "libQnnReference.so",
        "libQnnSystem.so",
        "libcdsprpc.so",
    ]

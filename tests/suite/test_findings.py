"""The programs of docs/findings: each sees its finding on its library, and none on the reference.

They know nothing of the suite. Every program is compiled, and runs in a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fast_run import first, later
from real_libraries import real_library

from pytest_qnn import native

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "docs" / "findings"
PAGE = ROOT / "docs" / "findings.md"
HTP, SAVER, IR, GPU = (f"libQnn{name}.so" for name in ("Htp", "Saver", "Ir", "Gpu"))
FINDINGS = {
    "any-type-created": (HTP, IR),
    "backend-freed-first": (SAVER,),
    "changed-binary": (HTP,),
    "damaged-binary": (HTP,),
    "defer-no": (HTP,),
    "denied-messages": (HTP, IR, GPU),
    "denied-properties": (HTP,),
    "equal-ids": (IR,),
    "equal-names": (IR,),
    "first-session": (HTP,),
    "half-deferred": (HTP,),
    "handles-left": (GPU,),
    "invalid-handle": (HTP, SAVER, IR, GPU),
    "kept-memory": (HTP,),
    "kept-names": (HTP,),
    "keys-without-memory": (HTP,),
    "loud-log": (HTP,),
    "no-log": (SAVER, IR),
    "no-memory": (HTP,),
    "nothing-to-finalise": (IR,),
    "null-arguments": (HTP, SAVER, IR, GPU),
    "null-in-structs": (HTP, SAVER, IR),
    "null-properties": (HTP,),
    "null-used": (IR,),
    "preset-data": (SAVER,),
    "refused-name": (HTP,),
    "relu-of-rank-5": (HTP,),
    "ruled-out-tensors": (HTP, IR),
    "small-memory": (HTP,),
    "static-without-data": (SAVER,),
    "thrown": (SAVER, IR),
    "unknown-handle": (HTP,),
    "unknown-memory-type": (HTP,),
    "updated-weights": (HTP,),
}
"""The programs of docs/findings/qnn, and the libraries on which each ends with 1."""
ALLOCATIONS = ("kept-memory", "kept-names", "no-log", "no-memory", "null-used", "thrown")
MALFORMED = ("changed-binary", "ruled-out-tensors")
FOLDERS = dict.fromkeys(ALLOCATIONS, "allocations") | dict.fromkeys(MALFORMED, "malformed")
"""Of those that stand elsewhere in docs/findings."""
SOON = {("relu-of-rank-5", HTP), ("equal-ids", IR), ("handles-left", GPU), ("no-log", SAVER)}
"""What the fast run looks at: a crash, and one finding of each of the other libraries."""
XNNPACK = {
    "absent_operand": {"tflite_runtime": 0, "ai_edge_litert": 1},
    "conv_same": {"tflite_runtime": 1, "ai_edge_litert": 0},
    "few_elements": {"tflite_runtime": 0, "ai_edge_litert": 1},
    "last_constant": {"tflite_runtime": 1, "ai_edge_litert": 1},
    "one_slope": {"tflite_runtime": 1, "ai_edge_litert": 0},
    "rank_7_and_8": {"tflite_runtime": 0, "ai_edge_litert": 1},
    "short_bias": {"tflite_runtime": 0, "ai_edge_litert": 1},
    "transpose_of_float16": {"tflite_runtime": 1, "ai_edge_litert": 0},
    "variable_read_twice": {"tflite_runtime": 0, "ai_edge_litert": 1},
}
BOTH = ("tflite_runtime", "ai_edge_litert")
KERNELS = {
    "softmax_without_elements": BOTH,
    "log_softmax_without_elements": BOTH,
    "depthwise_without_elements": BOTH[:1],
    "batch_matmul_without_elements": BOTH[:1],
    "arg_max_without_elements": BOTH[:1],
    "dynamic_update_slice_of_scalars": BOTH[:1],
    "prelu_of_rank_5": BOTH[:1],
    "maximum_of_rank_6": BOTH[:1],
    "sub_of_rank_6": BOTH[:1],
    "mul_of_rank_5": BOTH[:1],
    "prelu_of_rank_5_by_reference": BOTH[:1],
    "add_of_rank_7": BOTH[:1],
    "reshape_without_shape": BOTH,
    "mean_without_operand": BOTH[:1],
    "maximum_without_operand": BOTH[:1],
    "conv_of_many_groups": BOTH[:1],
    "add_with_tanh": BOTH,
    "atan2_of_a_row": BOTH,
    "sign_of_int8": BOTH[:1],
    "prelu_of_int16": BOTH[1:],
    "where_of_int16": BOTH[:1],
    "fully_connected_without_depth": BOTH,
    "conv_of_2_x_2": BOTH[:1],
    "reshape_of_a_reshape": BOTH,
    "reshape_by_a_computed_shape": BOTH[1:],
    "fully_connected_of_rank_3": BOTH[:1],
    "matrix_diag_of_float16": BOTH,
    "quantize_without_scale": BOTH,
    "transpose_of_a_scalar": BOTH,
    "log_softmax_of_a_scalar": BOTH,
    "l2_normalization_of_a_scalar": BOTH[:1],
    "reduce_prod_of_a_scalar": BOTH,
    "mean_without_elements": BOTH,
    "sum_without_elements": BOTH,
    "reduce_prod_without_elements": BOTH,
    "reduce_max_without_elements": BOTH,
    "reduce_min_without_elements": BOTH,
}
"""The cases of docs/findings/cpu/kernels.py, and the runtimes whose own kernels deviate."""
WITHOUT_BUFFER = {
    "softmax_without_elements",
    "log_softmax_without_elements",
    "depthwise_without_elements",
    "batch_matmul_without_elements",
}
"""What the C API of libLiteRt.so cannot carry out."""
LIBRARIES = {
    "tflite_runtime": "_pywrap_tensorflow_interpreter_wrapper.so",
    "ai_edge_litert": "libLiteRt.so",
}
"""Of the runtimes: what docs/findings/runtimes/run.c takes."""
PERSONALITIES = {"updated-weights": "binary-sections"}
"""Of the reference, where its default has not what a program is about."""


def built(folder: Path, name: str) -> Path:
    source = PROGRAMS / FOLDERS.get(name, "qnn") / f"{name}.c"
    program = folder / name
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-rdynamic"]
    command = ["gcc", *flags, "-o", str(program), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return program


def ended(folder: Path, name: str, library: Path, **environment: str) -> tuple[int, str]:
    """The exit status of a program, and what it printed."""
    command = [str(built(folder, name)), str(library)]
    variables = os.environ | environment
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


def pairs() -> list[object]:
    found = [(name, library) for name, libraries in FINDINGS.items() for library in libraries]
    return [pair if pair in SOON else later(*pair) for pair in found]


@pytest.mark.parametrize(("name", "library"), pairs())
def test_a_program_sees_its_finding_on_the_library(tmp_path: Path, name: str, library: str) -> None:
    status, told = ended(tmp_path, name, real_library(library))
    assert status == 1, told
    assert "expected: " in told
    assert "seen: " in told


@pytest.mark.parametrize("name", [name if name in dict(SOON) else later(name) for name in FINDINGS])
def test_a_program_sees_no_finding_on_the_reference(tmp_path: Path, name: str) -> None:
    if native.libpython() is None:
        pytest.skip("this Python has no shared library that a C program could load")
    libraries = native.build(tmp_path / "reference")
    personality = PERSONALITIES.get(name, "default")
    status, told = ended(tmp_path, name, libraries.backend, **libraries.environment(personality))
    assert status == 0, told


def test_a_program_that_cannot_load_the_library_ends_with_2(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_text("no library")
    status, told = ended(tmp_path, "equal-ids", broken)
    assert (status, told.split(":")[0]) == (2, "cannot run")


@pytest.mark.parametrize("name", first(ALLOCATIONS))
def test_a_program_whose_operator_new_the_library_does_not_take_says_so(tmp_path: Path, name: str) -> None:
    source, program = PROGRAMS / FOLDERS[name] / f"{name}.c", tmp_path / name
    subprocess.run(["gcc", "-o", str(program), str(source), "-ldl"], check=True, timeout=60)
    library = real_library(IR)
    command = [str(program), str(library)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "gcc -rdynamic" in done.stdout) == (2, True), done.stdout


@pytest.mark.full
@pytest.mark.parametrize("runtime", ["tflite_runtime", "ai_edge_litert"])
@pytest.mark.parametrize("name", XNNPACK)
def test_a_script_about_xnnpack(name: str, runtime: str) -> None:
    command = [sys.executable, str(PROGRAMS / "xnnpack" / f"{name}.py"), runtime]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == XNNPACK[name][runtime], done.stdout + done.stderr


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in C that carries out a model."""
    program = tmp_path_factory.mktemp("runner") / "run"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-rdynamic"]
    command = ["gcc", *flags, "-o", str(program), str(PROGRAMS / "runtimes" / "run.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return program


def library_of(runtime: str) -> Path:
    spec = importlib.util.find_spec(runtime)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{runtime} has no wheel for this Python")
    return Path(next(iter(spec.submodule_search_locations))) / LIBRARIES[runtime]


def written(folder: Path, name: str, *cases: str) -> list[list[str]]:
    """What a script says that the program in C takes for each of its models."""
    command = [sys.executable, str(PROGRAMS / f"{name}.py"), "--write", str(folder), *cases]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return [line.split() for line in done.stdout.splitlines()]


def carried_out(runner: Path, library: Path, words: list[str]) -> tuple[int, str]:
    command = [str(runner), str(library), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


ONCE = [("variable_read_twice", "ai_edge_litert"), ("conv_same", "tflite_runtime")]
"""Of each library one finding, for the fast run: a crash, and wrong values."""
EACH = [(name, runtime) for name in XNNPACK for runtime in LIBRARIES]


@pytest.mark.parametrize(("name", "runtime"), [pair if pair in ONCE else later(*pair) for pair in EACH])
def test_the_program_in_c_sees_what_a_script_about_xnnpack_sees(
    runner: Path, tmp_path: Path, name: str, runtime: str
) -> None:
    library, models = library_of(runtime), written(tmp_path, f"xnnpack/{name}")
    told = [carried_out(runner, library, words) for words in models]
    assert max(status for status, _ in told) == XNNPACK[name][runtime], told
    assert all("expected: " in text and "seen: " in text for _, text in told)


IN_PYTHON = [("reshape_of_a_reshape", "ai_edge_litert")]
IN_C = [
    ("reshape_without_shape", "ai_edge_litert"),
    ("sign_of_int8", "tflite_runtime"),
    ("reduce_max_without_elements", "ai_edge_litert"),  # an infinity, which only an infinity is
]
ALL_KERNELS = [(name, runtime) for name in KERNELS for runtime in BOTH]


@pytest.mark.parametrize(
    ("name", "runtime"), [pair if pair in IN_PYTHON else later(*pair) for pair in ALL_KERNELS]
)
def test_the_script_about_kernels_of_the_cpu(name: str, runtime: str) -> None:
    library_of(runtime)
    command = [sys.executable, str(PROGRAMS / "cpu" / "kernels.py"), runtime, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (runtime in KERNELS[name]), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "runtime"), [pair if pair in IN_C else later(*pair) for pair in ALL_KERNELS]
)
def test_the_program_in_c_about_kernels_of_the_cpu(
    runner: Path, tmp_path: Path, name: str, runtime: str
) -> None:
    (words,) = written(tmp_path, "cpu/kernels", name)
    status, told = carried_out(runner, library_of(runtime), words)
    if runtime == "ai_edge_litert" and name in WITHOUT_BUFFER:
        assert (status, "no buffer without bytes" in told) == (2, True), told
    else:
        assert status == (runtime in KERNELS[name]), told


def test_each_case_about_kernels_of_the_cpu_is_in_this_table(tmp_path: Path) -> None:
    assert {Path(words[0]).stem for words in written(tmp_path, "cpu/kernels")} == set(KERNELS)
    for name in KERNELS:
        assert f"`{name}`" in PAGE.read_text(), name


@pytest.mark.parametrize("runtime", first(LIBRARIES))
def test_nothing_that_a_right_model_needs_is_touched_where_memory_is_guarded(
    runner: Path, tmp_path: Path, runtime: str
) -> None:
    """What ends the process for `absent_operand` is the read before the array, not the guard."""
    path = written(tmp_path, "xnnpack/conv_same")[0][0]
    assert carried_out(runner, library_of(runtime), [path, "guarded"])[0] == 0


def test_the_program_in_c_says_what_it_cannot_load(runner: Path, tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_text("no library")
    path = written(tmp_path, "xnnpack/conv_same")[0][0]
    for words in ([path], [str(tmp_path / "none.tflite")]):
        status, told = carried_out(runner, broken, words)
        assert (status, told.split(":")[0]) == (2, "cannot run")


def test_every_program_is_on_the_page_and_in_this_table() -> None:
    page = PAGE.read_text()
    assert {path.stem for path in PROGRAMS.glob("*/*.c")} == {*FINDINGS, "run"}
    assert "(findings/runtimes/run.c)" in page
    assert {path.stem for path in (PROGRAMS / "xnnpack").glob("*.py")} == {*XNNPACK, "model"}
    for name in FINDINGS:
        assert f"(findings/{FOLDERS.get(name, 'qnn')}/{name}.c)" in page, name
    for name in XNNPACK:
        assert f"(findings/xnnpack/{name}.py)" in page, name

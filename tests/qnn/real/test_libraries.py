from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from pytest_qnn.qnn.cases.case import (
    BOGUS,
    NULL,
    Alloc,
    Binding,
    ContextCreate,
    ContextFree,
    Deregister,
    Descriptor,
    Execute,
    MemoryCase,
    Prepare,
    Providers,
    Register,
)
from pytest_qnn.qnn.cases.contents import contents
from pytest_qnn.qnn.cases.sizes import arity
from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.qnn.model.operators import DTYPES, OPERATORS, expected
from pytest_qnn.qnn.runner.client import UNTOUCHED
from pytest_qnn.qnn.trace import ExecuteCounts, MemoryTrace

CHILD = """
import sys
import msgspec
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.worker import learn
from pytest_qnn.qnn.runner.run import run_memory_case
from pytest_qnn.qnn.runner.library import open_library

library, answer = sys.argv[1:]
entry, rpcmem = open_library(library), EmulatedRpcmem()
case = msgspec.json.decode(sys.stdin.buffer.read(), type=MemoryCase)
seen = {"facts": learn(entry, rpcmem), "trace": run_memory_case(case, entry, rpcmem)}
with open(answer, "wb") as file:
    file.write(msgspec.msgpack.encode(seen))
"""
GRAPHS = tuple((op, dtype) for op in OPERATORS for dtype in DTYPES)
SHAPE = (1, 4, 8, 32)
ELEMENTS = 1024
CASE = MemoryCase(
    (
        Providers(),
        ContextCreate("c0"),
        Alloc("b0", 4096),
        Register(NULL, (Descriptor("b0", (4,)),), ("h0",)),
        Deregister((BOGUS,)),
        Register("c0", (Descriptor("b0", (4,)),), ("h0",)),
        Prepare("refused", "c0", preset=(True,)),
        *(
            step
            for op, dtype in GRAPHS
            for step in (
                Prepare(f"{op}_{dtype}", "c0", op, dtype, SHAPE),
                Execute(f"{op}_{dtype}", (*(Binding(seed=n) for n in range(1, arity(op) + 1)), Binding())),
            )
        ),
        ContextFree("c0"),
    )
)


class Seen(msgspec.Struct):
    facts: MemoryFacts
    trace: MemoryTrace


@functools.cache
def seen_of(name: str) -> Seen:
    """One child per library: it learns the facts and carries out the case, in an empty folder."""
    found = importlib.util.find_spec("onnxruntime_qnn")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package onnxruntime_qnn is not installed")
    library = Path(found.submodule_search_locations[0], name)
    if not library.is_file():
        pytest.skip(f"the package onnxruntime_qnn has no {name} on this platform")
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        command = [sys.executable, "-c", CHILD, str(library), str(answer)]
        done = subprocess.run(
            command, input=msgspec.json.encode(CASE), capture_output=True, cwd=folder, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return msgspec.msgpack.decode(answer.read_bytes(), type=Seen)


@pytest.mark.parametrize(
    ("name", "provider", "backend"),
    [
        ("libQnnHtp.so", "HTP_QTI_AISW", 6),
        ("libQnnSaver.so", "SAVER_QTI_AISW", 2),
        ("libQnnIr.so", "IR_QTI_AISW", 9),
        ("libQnnGpu.so", "GPU_QTI_AISW", 4),
    ],
)
def test_a_library_says_who_it_is(name: str, provider: str, backend: int) -> None:
    facts = seen_of(name).facts
    assert (facts.provider, facts.backend_id) == (provider, backend)
    assert facts.core_version[0] == 2
    assert seen_of(name).trace.steps[0].code == 0


@pytest.mark.parametrize("name", ["libQnnHtp.so", "libQnnSaver.so", "libQnnIr.so"])
def test_a_library_that_composes_accepts_every_operator(name: str) -> None:
    facts = seen_of(name).facts
    assert facts.session_failure is None
    assert facts.operators == GRAPHS


@pytest.mark.parametrize("name", ["libQnnHtp.so", "libQnnSaver.so", "libQnnIr.so"])
def test_a_session_is_closed_without_an_error(name: str) -> None:
    closing = seen_of(name).trace.closing
    assert closing[-1][0] == "logFree"
    assert {code for _, code in closing} == {0}


@pytest.mark.parametrize(("op", "dtype"), GRAPHS)
def test_htp_computes_what_the_oracle_says(op: str, dtype: str) -> None:
    seen = seen_of("libQnnHtp.so").trace
    position = next(
        index
        for index, step in enumerate(CASE.steps)
        if isinstance(step, Execute) and step.graph == f"{op}_{dtype}"
    )
    step = CASE.steps[position - 1]
    assert isinstance(step, Prepare)
    nbytes = ELEMENTS * (1 if dtype == "UFIXED_POINT_8" else 4)
    inputs = [contents(step.dtype, seed, nbytes) for seed in range(1, arity(step.op) + 1)]
    executed = seen.steps[position]
    assert (executed.code, executed.counts) == (0, ExecuteCounts())
    assert executed.data == (expected(step.op, step.dtype, *inputs),)


def test_htp_refuses_a_preset_pointer() -> None:
    trace = seen_of("libQnnHtp.so").trace
    assert trace.steps[6].calls == (("graphCreate", 0), ("tensorCreateGraphTensor", 7004))


def test_htp_says_it_registers_memory_and_does_not() -> None:
    seen = seen_of("libQnnHtp.so")
    assert seen.facts.supports(1101)
    assert seen.facts.supports(1102)
    assert seen.trace.steps[5].code == 1000
    assert seen.trace.steps[5].values == (UNTOUCHED,)


def test_gpu_has_no_session_here_but_its_arguments_are_checked() -> None:
    seen = seen_of("libQnnGpu.so")
    assert seen.facts.session_failure == ("backendCreate", 4000)
    assert seen.facts.operators == ()
    assert [step.code for step in seen.trace.steps[3:5]] == [8001, 8001]
    assert seen.trace.steps[5].skipped == "context c0 was never made: backendCreate gave 4000"


def test_ir_does_without_a_device() -> None:
    facts = seen_of("libQnnIr.so").facts
    assert facts.session[-1] == ("deviceCreate", 1000)
    assert facts.session_failure is None

"""A C file can be written of every call with a bad argument, but of those that notify or provide pieces."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing

import msgspec
import pytest
from fast_run import turn

from pytest_qnn.qnn import reproduce
from pytest_qnn.qnn.cases.arguments import ARGUMENTS, OF_SECTIONS, Argument, PointedCall
from pytest_qnn.qnn.cases.case import BadArgument, ContextCreate, GetBinary, MemoryCase, Prepare
from pytest_qnn.qnn.reproduce.text import NotWritten
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import StepSeen

SAID = reproduce.Finding("IF-15", "Sentence.", "source", "a target", "this", "that", "step 3")
NOT_WRITTEN = frozenset({"contextCreateFromBinaryListAsync", "contextCreateFromBinaryWithCallback"})
ALL = [
    pytest.param(call, argument, marks=[pytest.mark.full] * (turn(f"{call} {argument}") % 8 != 0))
    for call, arguments in ARGUMENTS.items()
    for argument in arguments
]
UPDATABLE = Prepare("g0", "c0", weights=1, weights_as="updatable")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
@pytest.mark.parametrize(("call", "argument"), ALL)
def test_the_call_is_written_as_c(call: PointedCall, argument: Argument) -> None:
    updates = call in OF_SECTIONS or call == "tensorUpdateGraphTensors"
    made = UPDATABLE if updates else Prepare("g0", "c0")
    steps = (ContextCreate("c0"), made, GetBinary("c0", "f0"))
    case = MemoryCase((*steps, BadArgument(call, argument, "c0", "g0")))
    with closing(open_memory_target("reference:binary-sections", "emulated", "off", 10.0)) as target:
        trace = target.run(case)
    other = StepSeen(code=0 if trace.steps[-1].code else 1100)
    differs = msgspec.structs.replace(trace, steps=(*trace.steps[:-1], other))
    if call in NOT_WRITTEN:
        with pytest.raises(NotWritten):
            reproduce.program(case, differs, SAID)
        return
    text = reproduce.program(case, differs, SAID)
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"]
    subprocess.run(command, input=text, text=True, check=True)

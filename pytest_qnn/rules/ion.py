"""ION: graphs whose tensors lie in QNN_MEM_TYPE_ION buffers of their own."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import MemType
from pytest_qnn.cases import memory_graph_strategies as strategies
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, Level
from pytest_qnn.rules.memory_graph_support import judge_run, require_executed_memory, require_type
from pytest_qnn.trace import MemoryTrace

_GATE = ("1101", "1102")


def _judge(case: MemoryCase, trace: MemoryTrace, because: str) -> Examined:
    require_executed_memory(case, trace)
    require_type(trace, MemType.ION)
    return judge_run(case, trace, "outputs and buffers", because)


@rule(
    "ION-03",
    Level.MUST,
    "Each tensor has an ION buffer, pointer, fd and handle of its own; all inputs and outputs can be ION.",
    source="seed 002, Using QNN_MEM_TYPE_ION",
    subject="memory",
    cases=strategies.ion_tensors,
    gate=_GATE,
)
def ion_03(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """All registers and executes answer 0, and each tensor is found in its own buffer."""
    return _judge(case, trace, "each tensor has an ION buffer of its own")


@rule(
    "ION-04",
    Level.MUST,
    "The bytes of an input are read from its ION buffer at the time of execute.",
    source="seed 002, Using QNN_MEM_TYPE_ION, load the input, then execute",
    subject="memory",
    cases=strategies.ion_rewritten,
    gate=_GATE,
)
def ion_04(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The output follows what the client wrote last before each execute."""
    return _judge(case, trace, "inputs are read at execute")


@rule(
    "ION-05",
    Level.MUST,
    "The bytes of an output are visible through the client's pointer when execute returns.",
    source="seed 002, Using QNN_MEM_TYPE_ION, execute, then get the output",
    subject="memory",
    cases=strategies.ion_read_at_once,
    gate=_GATE,
)
def ion_05(case: MemoryCase, trace: MemoryTrace) -> Examined:
    """The client's first look after the execute finds the output."""
    return _judge(case, trace, "the output is there when execute returns")

"""Memory sequences on the reference: the whole way against the same calls made by hand."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from benchmarks.timing import Effort, Row, drawn, each, repeated
from pytest_qnn.qnn.abi.codes import MemType, TensorMemType
from pytest_qnn.qnn.abi.layouts import MemDescriptor, Tensor
from pytest_qnn.qnn.cases.case import (
    Alloc,
    AnyStep,
    Binding,
    ContextCreate,
    Deregister,
    Descriptor,
    Execute,
    MemoryCase,
    Prepare,
    Register,
)
from pytest_qnn.qnn.reference.backend import ReferenceBackend
from pytest_qnn.qnn.reference.rpcmem import EmulatedRpcmem
from pytest_qnn.qnn.runner.client import Operator, QnnClient, data_type
from pytest_qnn.qnn.runner.library import QnnEntry
from pytest_qnn.qnn.strategies.sequences import memory_sequences
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue

STEPS = (10, 50, 200)
SHAPE = (1, 2, 2, 2)
RULE = "DRG-11"
"""The rule that is judged; its check walks every step through the state model."""
_ROUND = 3
"""Steps of one round: register, execute, deregister."""
_STEPS_PER_REPETITION = 1000


def rows(effort: Effort) -> Iterator[Row]:
    """Microseconds per sequence."""
    with contextlib.closing(open_memory_target("reference", "emulated", "off", 60.0)) as target:
        for steps in STEPS:
            yield from _rows(target, steps, effort)


def sequence(steps: int) -> MemoryCase:
    """A context, a buffer and a graph; then rounds of register, execute through the handle, deregister."""
    done: list[AnyStep] = [ContextCreate("c"), Alloc("b", 8), Prepare("g", "c", shape=SHAPE)]
    rounds = (steps - len(done)) // _ROUND
    for number in range(rounds):
        handle = f"h{number}"
        done += [
            Register("c", (Descriptor("b", SHAPE),), (handle,)),
            Execute("g", (Binding("handle", handle), Binding(), Binding())),
            Deregister((handle,)),
        ]
    return MemoryCase(tuple(done))


def _rows(target: MemoryTarget, steps: int, effort: Effort) -> Iterator[Row]:
    subject = f"{steps} steps"
    count = max(1, _STEPS_PER_REPETITION // steps)
    strategy = memory_sequences(target.facts, steps)
    draw = repeated(lambda number: drawn(strategy, count, number), effort, count)
    yield Row(subject, "draw", "us", draw.times(1e6))
    case = sequence(steps)
    run = each(target.run, [case] * count, effort)
    yield Row(subject, "run", "us", run.times(1e6))
    check, trace = catalogue()[RULE].check, target.run(case)
    judged = each(lambda pair: check(*pair), [(case, trace)] * count, effort)
    yield Row(subject, f"check of {RULE}", "us", judged.times(1e6))
    bare = each(_bare, [(steps - 3) // _ROUND] * count, effort)
    yield Row(subject, "bare", "us", bare.times(1e6))
    whole = draw.plus(run).plus(judged)
    yield Row(subject, "whole", "us", whole.times(1e6))
    yield Row(subject, "run/bare", "ratio", run.over(bare))
    yield Row(subject, "whole/bare", "ratio", whole.over(bare))


def _bare(rounds: int) -> None:
    """The calls of `sequence`, made by hand on a fresh backend with prepared structures."""
    with contextlib.closing(ReferenceBackend()) as backend, contextlib.closing(EmulatedRpcmem()) as rpcmem:
        client = QnnClient(QnnEntry(backend.get_providers, backend))
        table_ = client.interface.implementation
        log, backend_handle, device, context, graph = (ctypes.c_void_p() for _ in range(5))
        table_.logCreate(None, 1, ctypes.byref(log))
        table_.backendCreate(log, None, ctypes.byref(backend_handle))
        table_.deviceCreate(log, None, ctypes.byref(device))
        table_.contextCreate(backend_handle, device, None, ctypes.byref(context))
        pointer = rpcmem.alloc(25, 1, 8)
        operator = Operator("ElementWiseAdd", "UFIXED_POINT_8", SHAPE)
        table_.graphCreate(context, b"g", None, ctypes.byref(graph))
        for tensor in operator.tensors:
            table_.tensorCreateGraphTensor(graph, ctypes.byref(tensor))
        table_.graphAddNode(graph, operator.config())
        table_.graphFinalize(graph, None, None)
        _bare_rounds(table_, context, graph, operator, rpcmem.to_fd(pointer), rounds)
        table_.contextFree(context, None)
        table_.deviceFree(device)
        table_.backendFree(backend_handle)
        table_.logFree(log)
        rpcmem.free(pointer)


def _bare_rounds(table_: Any, context: Any, graph: Any, operator: Operator, fd: int, rounds: int) -> None:
    dimensions = (ctypes.c_uint32 * len(SHAPE))(*SHAPE)
    descriptor = MemDescriptor(dataType=data_type("UFIXED_POINT_8"), memType=MemType.ION)
    descriptor.memShape.numDim = len(SHAPE)
    descriptor.memShape.dimSize = dimensions
    descriptor.ionInfo.fd = fd
    handle = ctypes.c_void_p()
    raw = [ctypes.create_string_buffer(8) for _ in range(2)]
    inputs = (Tensor * 2)(*operator.inputs)
    outputs = (Tensor * 1)(*operator.outputs)
    for tensor, memory in ((inputs[1], raw[0]), (outputs[0], raw[1])):
        tensor.v1.clientBuf.data = ctypes.addressof(memory)
        tensor.v1.clientBuf.dataSize = 8
    inputs[0].v1.memType = TensorMemType.MEMHANDLE
    for _ in range(rounds):
        assert table_.memRegister(context, ctypes.byref(descriptor), 1, ctypes.byref(handle)) == 0
        inputs[0].v1.memHandle = handle
        assert table_.graphExecute(graph, inputs, 2, outputs, 1, None, None) == 0
        assert table_.memDeRegister(ctypes.byref(handle), 1) == 0

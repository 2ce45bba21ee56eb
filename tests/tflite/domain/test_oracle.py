"""The oracle, held against both runtimes' own kernels, in children: some kernels end the process."""

from __future__ import annotations

import faulthandler
import os
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from pytest_qnn.mutants import RUNTIMES
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.domain.cell import ACTIVATIONS, DTYPES, Cell
from pytest_qnn.tflite.domain.coverage import state_of
from pytest_qnn.tflite.domain.judging import wrong
from pytest_qnn.tflite.domain.node import NoSuchCellError
from pytest_qnn.tflite.domain.table import OPERATORS, cells, cells_of, is_plain, made
from pytest_qnn.tflite.runner.domain import cpu_outputs
from pytest_qnn.tflite.runtime.runtime import Runtime, load_runtime
from pytest_qnn.tflite.trace import CellSeen

FAST = ("ADD", "MUL", "CONCATENATION", "MEAN", "FULLY_CONNECTED", "RELU", "TRANSPOSE", "LOGISTIC", "GATHER")
"""Operators of every family."""
_BOTH = {
    "ATAN2": "does not broadcast, and says nothing",
    "EXP": "int16: 2 of 30,000 steps off",
    "FULLY_CONNECTED": "a depth of 0: no bias, or unwritten memory; int16 per channel: written over",
    "LOG_SOFTMAX": "rank 0 and size 0: unwritten memory, or the process ends",
    "MATRIX_DIAG": "float16, bool, int8: unwritten memory; high ranks write over memory",
    "MEAN": "uint8 of size 0: 0, not the zero point",
    "QUANTIZE": "int32 without scales: 0",
    "REDUCE_MAX": "size 0: the lowest number, not minus infinity",
    "REDUCE_MIN": "size 0: the highest number, not infinity",
    "REDUCE_PROD": "int8, int16: rounded after each product",
    "RESIZE_BILINEAR": "int16: 3 of 30,000 steps off",
    "SOFTMAX": "rank 1, size 0: the process ends",
    "SUM": "int8, uint8, int16 of size 0: unwritten memory",
    "TRANSPOSE": "rank 0: unwritten memory",
}
RUNTIME_DEFECTS = {
    "tflite_runtime": _BOTH
    | {
        "ARG_MAX": "size 0: the process ends",
        "ARG_MIN": "size 0: the process ends",
        "BATCH_MATMUL": "int16 of size 0: the process ends",
        "DEPTHWISE_CONV_2D": "int8 of size 0: the process ends",
        "DYNAMIC_UPDATE_SLICE": "rank 0: the process ends",
        "L2_NORMALIZATION": "rank 0: unwritten memory",
        "MIRROR_PAD": "size 0: the dimensions are not those of the padding",
        "PRELU": "int8, uint8 of rank 5 and more: the process ends",
        "SIGN": "computes float32 and int32 whatever the type is",
        "WHERE": "float16, int16: reads bytes",
    },
    "ai_edge_litert": _BOTH
    | {
        "GELU": "int16: beyond the range at its end",
        "LOG": "int16: 2 to 11 of 30,000 steps off",
        "PRELU": "int16: reads the slopes as int8",
        "RSQRT": "int16: 11 of 30,000 steps off",
    },
}
"""Of each runtime: operators whose own kernel does not give what they compute, and what is wrong."""
ENDS = "the process ends"
LEFT_OUT = ("TANH", "SIGN_BIT")
"""Fused activations that kernels of the runtimes take and leave out."""


def said_of(cell: Cell, runtime: Runtime) -> str:
    """What the CPU gives for a cell: ``refused``, ``right``, or what is wrong."""
    try:
        model = made(cell)
    except NoSuchCellError:
        return "refused"
    outputs = cpu_outputs(model, runtime)
    if isinstance(outputs, str):
        return "refused"
    return next(filter(None, map(wrong, model.node.results, outputs)), "right")


def in_children(runtime: str, chosen: Sequence[Cell]) -> dict[Cell, str]:
    """What the CPU gives for each cell, in forked children: `ENDS` of one that a child does not survive."""
    loaded = load_runtime(runtime)
    found: dict[Cell, str] = {}
    while len(found) < len(chosen):
        read_fd, write_fd = os.pipe()
        child = os.fork()
        if not child:
            faulthandler.disable()  # some kernels end the process: it is not told each time
            try:
                with os.fdopen(write_fd, "w") as answers:
                    for cell in chosen[len(found) :]:
                        print(said_of(cell, loaded), file=answers, flush=True)
            finally:
                os._exit(0)
        os.close(write_fd)
        with os.fdopen(read_fd) as answers:
            lines = answers.read().splitlines()
        os.waitpid(child, 0)
        found.update(zip(chosen[len(found) :], lines, strict=False))
        if len(found) < len(chosen):
            found[chosen[len(found)]] = ENDS
    return found


def differing(found: Mapping[Cell, str]) -> dict[str, str]:
    """By operator: the first cell of which the CPU gives another result."""
    told: dict[str, str] = {}
    for cell, said in found.items():
        if said not in ("refused", "right") and cell.activation not in LEFT_OUT:
            told.setdefault(cell.op, f"{cell}: {said}")
    return told


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_cpu_gives_what_the_oracle_expects_of_frequent_operators(runtime: str) -> None:
    chosen = [
        cell
        for name in FAST
        for cell in cells_of(name)
        if cell.dtype in ("float32", "int8", "int32") and is_plain(cell)
    ]
    found = in_children(runtime, chosen)
    # Of the defects these cells show one, and no other of that operator.
    wrongs = {str(cell) for cell, said in found.items() if said not in ("refused", "right")}
    assert wrongs <= {f"TRANSPOSE {dtype} rank 0" for dtype in ("float32", "int8", "int32")}
    assert list(found.values()).count("right") > 150


@pytest.mark.full
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_cpu_gives_what_the_oracle_expects(runtime: str, name: str) -> None:
    """Thousands of cells. What differs stands in `RUNTIME_DEFECTS`."""
    told = differing(in_children(runtime, cells_of(name)))
    unknown = {key: text for key, text in told.items() if key not in RUNTIME_DEFECTS[runtime]}
    assert unknown == {}


def test_the_domain_has_the_operators_types_and_ranks_that_it_says() -> None:
    assert len(OPERATORS) >= 60
    plain = {(cell.op, cell.dtype, cell.rank) for cell in cells() if is_plain(cell)}
    assert len(plain) == len(OPERATORS) * len(DTYPES) * 9
    counts = Counter(cell.activation for cell in cells_of("ADD"))
    assert set(counts) == set(ACTIVATIONS)
    assert {cell.size for cell in cells()} == {"", "ones", "zero", "odd"}


def test_cells_are_named_as_a_reader_would() -> None:
    assert str(Cell("CONCATENATION", "float32", 7)) == "CONCATENATION float32 rank 7"
    assert str(Cell("CONV_2D", "int8", 4, quantisation="channel")) == "CONV_2D int8 rank 4 per channel"
    assert len({str(cell) for cell in cells()}) == len(cells())


def test_every_model_names_its_operator_and_its_tensors() -> None:
    schema = pytest.importorskip("tflite")
    for name in OPERATORS:
        model = made(Cell(name, "float32", 4))
        read = schema.Model.GetRootAs(model.model)
        code = read.OperatorCodes(0)
        assert code.BuiltinCode() == OPERATORS[name].code
        graph = read.Subgraphs(0)
        assert graph.OperatorsLength() == 1
        node = graph.Operators(0)
        assert node.OutputsLength() == len(model.node.results)
        assert node.BuiltinOptionsType() == model.node.tag
        shape, tensor = model.node.results[0].values.shape, graph.Tensors(node.Outputs(0))
        assert tuple(tensor.Shape(at) for at in range(tensor.ShapeLength())) == shape


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operators_name_and_code_are_those_of_the_schema(name: str) -> None:
    schema = pytest.importorskip("tflite")
    assert getattr(schema.BuiltinOperator, name) == OPERATORS[name].code


def test_a_case_of_an_operator_is_no_larger_than_a_case_may_be() -> None:
    for name in OPERATORS:
        DomainCase(cells_of(name))
        assert len(cells_of(name)) <= 600


def test_what_nobody_computes_has_no_state_but_its_outcome() -> None:
    assert state_of(Cell("ADD", "float32", 1), CellSeen("left")) == ("left", "")

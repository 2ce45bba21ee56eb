"""The oracle, held against both runtimes' own kernels, in children: some kernels end the process."""

from __future__ import annotations

import faulthandler
import functools
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

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
DEVIATIONS = Path(__file__).parents[2] / "data" / "cpu_deviations.txt"
RELEASES = {"tflite_runtime": "2.14", "ai_edge_litert": "2.3"}
ENDS = "the process ends"


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


def way_of(said: str) -> str:
    """How a result differs, as `DEVIATIONS` has it; empty: it does not."""
    if said in ("refused", "right"):
        return ""
    return "ends" if said == ENDS else "shape" if said.startswith(("shape", "type")) else "values"


@functools.cache
def deviations(runtime: str) -> dict[str, str]:
    """By cell, in words: how the runtime's own kernel differs from the oracle."""
    found = {}
    for line in DEVIATIONS.read_text().splitlines():
        if not line.startswith("#"):
            head, _, cells = line.partition(": ")
            op, release, way, dtype = head.split()
            if release in ("both", RELEASES[runtime]):
                found.update({f"{op} {dtype} {cell}": way for cell in cells.split(", ")})
    return found


def differing(runtime: str, chosen: Sequence[Cell]) -> dict[str, str]:
    """How the CPU differs in each of these cells, also as the first one that a process carries out.

    A kernel may have written over memory in an earlier cell.
    """
    found = {cell: said for cell, said in in_children(runtime, chosen).items() if way_of(said)}
    again = {cell: in_children(runtime, (cell,))[cell] for cell in found}
    return {str(cell): said for cell, said in again.items() if way_of(said)}


def unexpected(runtime: str, chosen: Sequence[Cell]) -> dict[str, str]:
    """Of these cells: those that differ otherwise than is known, or no longer."""
    known = {cell: way for cell, way in deviations(runtime).items() if cell in set(map(str, chosen))}
    found = differing(runtime, chosen)
    told = {cell: said for cell, said in found.items() if known.get(cell) not in ("any", way_of(said))}
    gone = (cell for cell, way in known.items() if way != "any" and cell not in found)
    return told | dict.fromkeys(gone, "right")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_cpu_gives_what_the_oracle_expects_of_frequent_operators(runtime: str) -> None:
    chosen = [
        cell
        for name in FAST
        for cell in cells_of(name)
        if cell.dtype in ("float32", "int8", "int32") and is_plain(cell)
    ]
    assert unexpected(runtime, chosen) == {}
    assert list(in_children(runtime, chosen).values()).count("right") > 150


@pytest.mark.full
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_cpu_gives_what_the_oracle_expects(runtime: str, name: str) -> None:
    """Thousands of cells. Those that differ stand in `DEVIATIONS`, and no other does."""
    assert unexpected(runtime, cells_of(name)) == {}


def test_what_is_known_to_differ_are_cells_of_the_domain() -> None:
    named = {str(cell) for cell in cells()}
    for runtime in RUNTIMES:
        assert deviations(runtime).keys() <= named
        assert set(deviations(runtime).values()) <= {"values", "shape", "ends", "any"}


def test_the_domain_has_the_operators_types_and_ranks_that_it_says() -> None:
    assert len(OPERATORS) >= 60
    plain = {(cell.op, cell.dtype, cell.rank) for cell in cells() if is_plain(cell)}
    assert len(plain) == len(OPERATORS) * len(DTYPES) * 9
    counts = Counter(cell.activation for cell in cells_of("ADD"))
    assert set(counts) == set(ACTIVATIONS)
    assert {cell.size for cell in cells()} == {"", "ones", "zero", "odd"}


def test_the_other_dimensions_of_a_batch_of_0_are_mirrored() -> None:
    cell = Cell("MIRROR_PAD", "float32", 4, "zero")
    assert made(cell).node.results[0].values.shape == (0, 4, 4, 5)  # of 0, 2, 2, 3
    assert in_children("tflite_runtime", (cell,)) == {cell: "right"}


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

"""Of each wrong cell: which drawn cell is most like it, and whether it goes wrong alike."""

from __future__ import annotations

import pytest

from pytest_qnn.tflite.cases.drawn_cells import Went, drawn_as, showing, unlike, witnesses
from pytest_qnn.tflite.domain.cell import Cell
from pytest_qnn.tflite.domain.table import OPERATORS, cells_of
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.graph.kinds import OPS

RIGHT, WRONG, FAILED = (
    Went("covered", ""),
    Went("wrong", "1, not 2"),
    Went("failed", "failed to delegate ADD; node number 1 (Delegate) failed to prepare."),
)
PLAIN = Cell("ADD", "float32", 4)


def test_what_strategies_draw_is_in_the_domain() -> None:
    """All operators and types, each at the ranks and in the forms that the domain has too."""
    drawn = {cell: drawn_as(cell) for name in OPERATORS for cell in cells_of(name) if drawn_as(cell)}
    assert {(kind.op, kind.dtype) for kind in drawn.values() if kind} == {
        (op, dtype) for dtype, ops in OPS.items() for op in ops
    }
    plain = [kind for kind in GRID if (kind.activation, kind.form, kind.zero_points) == ("NONE", "", False)]
    assert {kind for kind in plain if kind.quantisation != "channel"} <= set(drawn.values())
    assert {cell.activation for cell in drawn} == {"NONE", "RELU", "RELU6"}
    assert {cell.quantisation for cell in drawn} == {"", "shifted", "channel"}
    forms = {kind.form.replace("broadcast", "broadcast second") for kind in GRID}
    assert {cell.form for cell in drawn} == forms


@pytest.mark.parametrize(
    ("cell", "nearest"),
    [
        (PLAIN, PLAIN),
        (Cell("ADD", "float32", 7), PLAIN),
        (Cell("ADD", "float32", 0), Cell("ADD", "float32", 1)),
        (Cell("ADD", "float16", 8), PLAIN),
        (Cell("ADD", "int16", 2), Cell("ADD", "int8", 2)),
        (Cell("ADD", "float32", 1, "zero"), Cell("ADD", "float32", 1)),
        (Cell("ADD", "float32", 4, activation="TANH"), Cell("ADD", "float32", 4, activation="RELU")),
        (Cell("ADD", "int64", 4, activation="RELU6"), Cell("ADD", "int8", 4, activation="RELU6")),
        (Cell("ADD", "uint8", 4, quantisation="shifted"), Cell("ADD", "int8", 4, quantisation="shifted")),
        (Cell("ADD", "float32", 4, form="constant first"), Cell("ADD", "float32", 4, form="constant")),
        (Cell("CONCATENATION", "float32", 4, form="four"), Cell("CONCATENATION", "float32", 4)),
        (
            Cell("CONV_2D", "int16", 4, quantisation="channel"),
            Cell("CONV_2D", "int8", 4, quantisation="channel"),
        ),
    ],
    ids=str,
)
def test_a_cell_is_held_against_the_drawn_one_that_is_most_like_it(cell: Cell, nearest: Cell) -> None:
    known = dict.fromkeys(witnesses(cell.op), RIGHT) | {cell: WRONG, nearest: WRONG}
    assert showing(cell, known) == (nearest,)
    assert unlike([cell], known) == ()
    if cell != nearest:
        assert unlike([cell], known | {nearest: RIGHT}) == (cell,)
        assert unlike([cell], known | {nearest: FAILED}) == (cell,)


def test_what_the_delegate_does_not_take_says_nothing() -> None:
    """Then it is the next that is like the cell; and where it takes none, the cell is by itself."""
    cell, int8 = Cell("ADD", "float32", 7), Cell("ADD", "int8", 4)
    assert showing(cell, {cell: WRONG, Cell("ADD", "float32", 2): WRONG, int8: RIGHT}) == (
        Cell("ADD", "float32", 2),
    )
    assert showing(cell, {cell: WRONG, int8: WRONG}) == (int8,)
    assert unlike([cell], {cell: WRONG}) == (cell,)


def test_of_an_operator_that_is_not_drawn_all_that_are_must_go_wrong() -> None:
    cell = Cell("DIV", "float32", 7)
    all_wrong = dict.fromkeys(witnesses("DIV"), WRONG) | {cell: WRONG}
    assert {each.op for each in showing(cell, all_wrong)} == {kind.op for kind in GRID}
    assert {each.rank for each in showing(cell, all_wrong)} == {4}
    right = dict.fromkeys((Cell("ABS", "float32", rank) for rank in (2, 3, 4)), RIGHT)
    assert unlike([cell], all_wrong | right) == (cell,)


def test_how_a_cell_goes_wrong_has_no_number_in_it() -> None:
    ways = {
        "failed to prepare": FAILED,
        "failed": Went("failed", "no words"),
        "values": WRONG,
        "shape": Went("wrong", "shape [1], not [2]"),
        "died": Went("died", "SIGABRT in invoke"),
        "": RIGHT,
    }
    assert {went.way: went for went in ways.values()} == ways
    assert Went("wrong", "type int8, not float32").way == Went("wrong", "2 outputs, not 1").way == "shape"


def test_a_form_at_a_rank_at_which_it_is_not_drawn_is_like_the_plain_one_there_too() -> None:
    cell, at_its_rank, formed = (
        Cell("MEAN", "float32", 2, form="plane"),
        Cell("MEAN", "float32", 2),
        Cell("MEAN", "float32", 4, form="plane"),
    )
    right = dict.fromkeys(witnesses("MEAN"), RIGHT) | {cell: WRONG}
    assert showing(cell, right | {at_its_rank: WRONG}) == (at_its_rank,)
    assert showing(cell, right | {formed: WRONG}) == (formed,)
    assert unlike([cell], right) == (cell,)


def test_where_most_drawn_cells_of_a_type_go_wrong_one_may_be_right_by_chance() -> None:
    cell, *drawn = (Cell("ABS", "int8", rank) for rank in (7, 1, 2, 3, 4))
    known = {cell: WRONG, **dict.fromkeys(drawn, WRONG), drawn[-1]: RIGHT, Cell("ABS", "float32", 4): RIGHT}
    assert showing(cell, known) == (drawn[0],)
    assert unlike([cell], known | {drawn[0]: RIGHT}) == (cell,)

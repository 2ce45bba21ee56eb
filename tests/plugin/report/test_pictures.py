"""What the page draws: partitions from the table that a violation carries; names of all areas."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

from pytest_qnn import rules
from pytest_qnn.core.engine import judge
from pytest_qnn.effort import profile
from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.report.html import areas, partition
from pytest_qnn.report.html.timeline import MOST_LANES, timeline
from pytest_qnn.rules import catalogue


def test_every_area_has_a_name() -> None:
    assert areas.NAMES.keys() == {rule.area for rule in rules.listed().values()}


def test_the_table_of_a_violation_is_drawn_with_every_node_of_its_case() -> None:
    """Parsed from text: were the table written otherwise, no page would have a picture."""
    with closing(opened(table()["claims-twice"], PLACES["delegate"][0])) as target:
        finding = judge(catalogue()["PART-01"], target, profile("default"), 1).finding
    assert finding is not None
    case = json.loads(finding.case)
    drawn = partition.picture(finding.picture, case)
    assert drawn is not None, finding.picture
    heads = [box.head for box in drawn.boxes if box.kind != "expected"]
    assert heads == [f"{number} {node['op']}" for number, node in enumerate(case["graph"]["nodes"])]
    assert {lane.name for lane in drawn.lanes} >= {"CPU"} or drawn.boundaries


TABLE = """\
node  operator  reads  writes  claimed by  expected  seen
0     ADD       t0 t1  t2      d0          kernel 0  kernel 0
1     RELU      t2     t3      d0          kernel 0  CPU       <-- wrong
...   3 more like these
5     ABS       t2     t4      -           CPU       CPU
plan: 7=kernel0 1 5
1 partition
"""


def test_a_table_is_rows_gaps_and_captions() -> None:
    table = partition.parse(TABLE)
    assert table is not None
    add, relu, gap, last = table.rows
    assert add == partition.Row(0, "ADD", ("t0", "t1"), ("t2",), "d0", "kernel 0", "kernel 0", False, False)
    assert isinstance(relu, partition.Row)
    assert (relu.seen, relu.wrong, relu.differs) == ("CPU", True, True)
    assert gap == partition.Gap("3 more like these")
    assert isinstance(last, partition.Row)
    assert table.captions == ["plan: 7=kernel0 1 5", "1 partition"]


def test_the_wrong_node_and_where_it_was_expected_are_drawn_on_one_row() -> None:
    drawn = partition.picture(TABLE, None)
    assert drawn is not None
    assert [lane.name for lane in drawn.lanes] == ["CPU", "kernel 0"]
    boxes = {(box.head, box.kind): box for box in drawn.boxes}
    assert {kind for _, kind in boxes} == {"node", "wrong", "expected"} == drawn.kinds
    wrong, expected = boxes["1 RELU", "wrong"], boxes["1 RELU", "expected"]
    assert wrong.top == expected.top
    assert wrong.left < expected.left
    assert len(drawn.edges) == 2  # t2 from node 0 to 1 and to 5
    assert len(drawn.boundaries) == 1
    assert "node 1 is the one that is wrong" in drawn.text


def test_boxes_are_within_the_picture_and_do_not_overlap() -> None:
    drawn = partition.picture(TABLE, None)
    assert drawn is not None
    places = [(box.left, box.top) for box in drawn.boxes]
    assert len(set(places)) == len(places)
    assert all(0 <= left <= drawn.width - partition.BOX for left, _ in places)
    assert all(0 <= top <= drawn.height - partition.TALL for _, top in places)


@pytest.mark.parametrize("text", ["", "no table", "node  operator", TABLE.splitlines()[0]])
def test_what_is_no_table_has_no_picture(text: str) -> None:
    assert partition.picture(text, None) is None


def memory_case(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"steps": [{"do": "context-create", "context": "c0"}, *steps]}


ALLOC = {"do": "alloc", "buffer": "b0", "size": 8}
REGISTER = {
    "do": "register",
    "context": "c0",
    "descriptors": [{"buffer": "b0", "shape": [8]}],
    "handles": ["h0"],
}
DEREGISTER = {"do": "deregister", "handles": ["h0"]}


def test_an_object_is_drawn_from_the_step_that_makes_it_to_the_one_that_ends_it() -> None:
    drawn = timeline(memory_case(ALLOC, REGISTER, DEREGISTER), "step 3, deregister handles [h0]")
    assert drawn is not None
    lanes = {lane.name: lane for lane in drawn.lanes}
    assert [(lane.kind, lane.name) for lane in drawn.lanes] == [
        ("context", "c0"),
        ("buffer", "b0"),
        ("handle", "h0"),
    ]
    ends = {name: [bar.width / drawn.column for bar in lane.bars] for name, lane in lanes.items()}
    assert ends == {"c0": [4], "b0": [3], "h0": [1]}
    assert [(mark.kind, mark.title.split(":")[0]) for mark in lanes["b0"].marks] == [("used", "step 2")]
    assert [column.failed for column in drawn.columns] == [False, False, False, True]
    assert [step.failed for step in drawn.steps] == [False, False, False, True]
    assert drawn.steps[2].text == "context c0, descriptors (buffer b0, shape [8]), handles [h0]"


def test_what_is_used_after_its_end_is_marked() -> None:
    drawn = timeline(memory_case(ALLOC, REGISTER, DEREGISTER, DEREGISTER), "")
    assert drawn is not None
    handle = next(lane for lane in drawn.lanes if lane.name == "h0")
    assert [mark.kind for mark in handle.marks] == ["used", "dead"]
    assert not any(step.failed for step in drawn.steps)


def test_of_many_objects_some_are_drawn_and_the_others_counted() -> None:
    many = [ALLOC | {"buffer": f"b{number}"} for number in range(MOST_LANES + 4)]
    drawn = timeline(memory_case(*many), "")
    assert drawn is not None
    assert (len(drawn.lanes), drawn.more) == (MOST_LANES, 5)
    assert all(lane.top < drawn.height for lane in drawn.lanes)


@pytest.mark.parametrize(
    "case", [None, {}, {"steps": [{"do": "no such step"}]}, {"steps": [DEREGISTER | {"handles": 3}]}]
)
def test_what_is_no_memory_case_has_no_time_line(case: Any) -> None:
    assert timeline(case, "step 0") is None

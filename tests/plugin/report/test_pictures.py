"""What the page draws: partitions from the table that a violation carries; names of all areas."""

from __future__ import annotations

import json
from contextlib import closing

from pytest_qnn import rules
from pytest_qnn.core.engine import judge
from pytest_qnn.effort import profile
from pytest_qnn.mutants import PLACES, opened, table
from pytest_qnn.report.html import areas, partition
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

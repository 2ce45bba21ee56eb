from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_qnn.qnn.facts import MemoryFacts
from pytest_qnn.report.claims import lines
from pytest_qnn.tflite.facts import Claim, DelegateFacts, Sample
from pytest_qnn.tflite.graph.combinations import GRID
from pytest_qnn.tflite.learned import learned
from pytest_qnn.tflite.target import open_delegate_target

SUITE = """
from pytest_qnn.plugin import Judge

def test_part_16(judge: Judge) -> None:
    judge("PART-16")
"""


def _found(spec: str) -> dict[str, Any]:
    target = open_delegate_target([(spec, {})], "auto", "off", 10.0)
    target.close()
    return learned(target.facts)


def test_what_is_claimed_in_full_in_part_and_not_at_all_is_told_apart() -> None:
    others = "SUB, MUL, MAXIMUM, RESHAPE, PRELU, MEAN, CONCATENATION, FULLY_CONNECTED, CONV_2D"
    part, rest, int8 = lines(_found("reference:one-operator"))[:3]
    claims, leaves = part.removeprefix("float32: claims in part ADD ").split("; leaves ")
    assert claims == "claims (ranks 1, 2, 3, 4; NONE; plain constant)"
    assert leaves == "(ranks 1, 2, 3, 4; RELU RELU6 NONE; plain broadcast)"
    assert rest == f"float32: leaves RELU, ABS, NEG, {others}"
    assert int8 == f"int8: leaves RELU, ABS, ADD, {others}"


def test_many_partitions_show_in_kernels_and_switches() -> None:
    whole, cut = (_found(spec)["partitioning"] for spec in ("reference", "reference:many-partitions"))
    assert (whole["kernels"], whole["switches"], whole["left"]) == (whole["graphs"], 0, {})
    assert cut["kernels"] > 2 * whole["kernels"]
    assert cut["switches"] > cut["kernels"]
    assert sum(cut["left"].values()) == cut["nodes"] // 2


def test_kinds_that_fail_or_kill_are_named() -> None:
    claims = tuple(Claim(kind, "died" if kind.op == "MUL" else "failed") for kind in GRID)
    text = lines(learned(DelegateFacts(claims=claims)))
    assert "MUL (dies of)" in text[0]
    assert "RELU (fails)" in text[0]


def test_the_number_of_switches_counts_from_kernel_to_kernel_too() -> None:
    facts = DelegateFacts(claims=(Claim(GRID[0], "claimed"),), samples=(Sample(4, 2, 3, ("ABS",)),))
    assert learned(facts)["partitioning"] == {
        "graphs": 1,
        "nodes": 4,
        "kernels": 2,
        "switches": 3,
        "left": {"ABS": 1},
        "samples": [{"nodes": 4, "kernels": 2, "switches": 3, "left": {"ABS": 1}}],
    }


def test_each_sample_graph_is_told_apart_and_the_sums_are_theirs() -> None:
    found = _found("reference:many-partitions")
    sums = found["partitioning"]
    assert len(sums["samples"]) == sums["graphs"]
    for key in ("nodes", "kernels", "switches"):
        assert sum(sample[key] for sample in sums["samples"]) == sums[key]
    assert len({sample["switches"] for sample in sums["samples"]}) > 1


def test_of_a_backend_and_where_nothing_was_learned_nothing_is_said() -> None:
    assert learned(MemoryFacts()) == learned(DelegateFacts()) == {}
    assert lines({}) == []


def test_terminal_json_and_html_show_what_was_learned(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    reports = [f"--qnn-report=out.{kind}" for kind in ("json", "html")]
    result = pytester.runpytest_subprocess(
        "--tflite-delegate=reference:int8-only", "--qnn-profile=quick", *reports
    )
    result.stdout.fnmatch_lines(
        ["float32: leaves RELU*", "int8: claims RELU*", "16 sample graphs of 192 nodes*"]
    )
    document = json.loads(Path("out.json").read_text())
    schema = json.loads(resources.files("pytest_qnn.report").joinpath("schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    (target,) = document["targets"]
    assert {claim["op"] for claim in target["claims"] if claim["dtype"] == "int8"} >= {"ADD", "CONV_2D"}
    assert len(target["partitioning"]["samples"]) == 16
    page = Path("out.html").read_text()
    relu = re.search(
        r'<th scope="row">RELU</th>\s*<td class="none">.*</td>\s*<td class="all">(.*)</td>', page
    )
    assert relu
    assert relu[1].endswith(" claimed")
    assert '<th scope="row">16</th><td class="number">12</td>' in page

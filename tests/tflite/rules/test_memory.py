"""MEM: what a rule leaves to another one, and a tensor without elements."""

from __future__ import annotations

from contextlib import closing

import pytest

from pytest_qnn.core.engine import first_failure
from pytest_qnn.core.search import Search
from pytest_qnn.effort import profile
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.script import Read
from pytest_qnn.tflite.target import open_delegate_target

RUNTIMES = ("tflite_runtime", "ai_edge_litert")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("mutant", ["reads-tail", "writes-tail", "reads-before"])
def test_what_is_touched_farther_than_16_bytes_or_written_or_before_is_not_mem_17s(
    mutant: str, runtime: str
) -> None:
    rules = catalogue()
    with closing(open_delegate_target([(f"mutant:{mutant}", {})], runtime, "off", 10.0)) as target:
        for rule_id, is_found in (("MEM-03", True), ("MEM-17", False)):
            found = first_failure(rules[rule_id], target, profile("default"), 1, rules.__getitem__)
            assert (found is not None) is is_found, rule_id


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_output_without_elements_is_read_and_the_one_behind_it_has_elements(runtime: str) -> None:
    with closing(open_delegate_target([("reference", {})], runtime, "off", 10.0)) as target:
        (case,) = Search(catalogue()["MEM-09"].cases(target.facts), 1, 1)
        trace = target.run(case)
    reads = [seen for step, seen in zip(case.steps, trace.steps, strict=True) if isinstance(step, Read)]
    assert [0 in output.shape for seen in reads for output in seen.outputs] == [False, False, True, False]
    assert all(seen.ok and seen.outputs == seen.cpu for seen in reads)

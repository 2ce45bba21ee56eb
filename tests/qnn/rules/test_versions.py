"""PRE-08: a backend of an older API may have no tensors of version 2."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from pytest_qnn.core.verdict import Unsupported, Violation
from pytest_qnn.qnn.abi.codes import API_VERSION
from pytest_qnn.qnn.cases.case import ContextCreate, MemoryCase, Prepare
from pytest_qnn.qnn.rules.pre.rules import pre_08
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.qnn.trace import MemoryTrace

CASE = MemoryCase((ContextCreate("c0"), Prepare("g0", "c0"), Prepare("g1", "c0", version=2)))
PRESET = MemoryCase(
    (
        ContextCreate("c0"),
        Prepare("g0", "c0", preset=(True, False, False)),
        Prepare("g1", "c0", preset=(True, False, False), version=2),
    )
)


def traced(case: MemoryCase, backend: str, version: tuple[int, int, int]) -> MemoryTrace:
    with contextlib.closing(open_memory_target(backend, "emulated", "off", 5.0)) as target:
        trace = target.run(case)
    assert trace.facts is not None
    return msgspec.structs.replace(trace, facts=msgspec.structs.replace(trace.facts, core_version=version))


def test_of_an_older_api_version_2_may_be_refused() -> None:
    with pytest.raises(Unsupported, match=r"of API 2\.10\.0: tensorCreateGraphTensor answers 7005"):
        pre_08(CASE, traced(CASE, "mutant:create-version-one", (2, 10, 0)))


@pytest.mark.parametrize("version", [API_VERSION, (2, 40, 0), (0, 0, 0)])
def test_of_this_api_and_of_one_that_is_not_known_it_may_not(version: tuple[int, int, int]) -> None:
    with pytest.raises(Violation, match="as with version 1"):
        pre_08(CASE, traced(CASE, "mutant:create-version-one", version))


def test_what_an_older_api_takes_is_judged() -> None:
    assert pre_08(CASE, traced(CASE, "reference", (2, 10, 0))).count == 1
    with pytest.raises(Violation, match="as with version 1"):
        pre_08(PRESET, traced(PRESET, "mutant:create-version-two-free", (2, 10, 0)))

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_qnn.qnn.abi.codes import TensorMemType
from pytest_qnn.qnn.cases.case import (
    Binding,
    Carried,
    Carry,
    ContextCreate,
    ContextFromBinary,
    Execute,
    GetBinary,
    Inspect,
    MemoryCase,
    Observe,
    Prepare,
    Retrieve,
)
from pytest_qnn.qnn.reference.binaries import input_output_tensor_mem_type
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.qnn.trace import ProcessCounts, StepSeen

PLAIN = Prepare("g", "c", shape=(1, 3, 251, 201))
WITH_WEIGHTS = Prepare("g", "c", weights=3, relay=True)
HINTED = Prepare("g", "c", weights=3, relay=True, mem_types=(1, 1))


@pytest.fixture(scope="module")
def reference() -> Iterator[MemoryTarget]:
    target = open_memory_target("reference", "emulated", "off", 10.0)
    yield target
    target.close()


def written(target: MemoryTarget, made: Prepare) -> tuple[bytes, tuple[int, ...]]:
    steps = target.run(MemoryCase((ContextCreate("c"), made, GetBinary("c", "b", keep=True)))).steps
    return steps[2].data[0], steps[1].values[1:]


def loaded(target: MemoryTarget, binary: bytes, ids: tuple[int, ...]) -> tuple[StepSeen, ...]:
    look = Observe(3 * 251 * 201)
    carry = Carry("b", binary, (Carried(PLAIN, ids),))
    load = (ContextFromBinary("d", "b"), look, Retrieve("h", "d", "g"))
    return target.run(
        MemoryCase((carry, Inspect("b"), look, *load, Execute("h", (Binding(), Binding()))))
    ).steps


def test_the_option_is_the_same_as_composing_with_memory_handles(reference: MemoryTarget) -> None:
    plain, _ = written(reference, WITH_WEIGHTS)
    hinted, _ = written(reference, HINTED)
    assert input_output_tensor_mem_type(plain, TensorMemType.MEMHANDLE) == hinted
    assert input_output_tensor_mem_type(hinted, TensorMemType.RAW) == plain


def test_with_the_option_loading_allocates_nothing_and_numbers_stay(reference: MemoryTarget) -> None:
    plain, ids = written(reference, PLAIN)
    usual = loaded(reference, plain, ids)
    changed = loaded(reference, input_output_tensor_mem_type(plain, TensorMemType.MEMHANDLE), ids)
    new = [
        s[4].counted(ProcessCounts).regions - s[2].counted(ProcessCounts).regions for s in (usual, changed)
    ]
    assert new == [3, 0]
    assert (usual[1].values, changed[1].values) == ((0, 0, 0), (1, 1, 1))
    assert usual[-1].code == 0
    assert usual[-1].data == changed[-1].data


def test_what_is_no_binary_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        input_output_tensor_mem_type(b"", TensorMemType.MEMHANDLE)

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import left
import pytest
from fast_run import first, later, part
from hostile import DEEDS, LIMIT, THIRD_CALL, THROWN, Deed, relatives, resident, state, third_process
from native import delegate_library

from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.graph.graph import Graph, Node, Op, Tensor
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

pytestmark = pytest.mark.usefixtures("temporary")

Where = Literal["prepare", "invoke"]
STEPS: dict[Where, int] = {"prepare": 0, "invoke": 2}
"""The phase of each: apply, allocate, invoke."""
PREPARED = [
    "segv",
    "close-descriptors",
    "abort",
    "deaf-loop",
    "exit-0",
    "stack-overflow",
    "garbage-everywhere",
    "float-environment",
    "remove-folder",
    "grandchild",
    "kill-supervisor",
]


def graph(op: Op) -> Graph:
    tensors = (Tensor((4,)), Tensor((4,)), Tensor((4,)))
    return Graph(tensors, (Node(op, (0, 1), (2,)),), inputs=(0, 1), outputs=(2,))


CASE = DelegateCase(graph("MUL"))
HARMLESS = DelegateCase(graph("ADD"))


@contextlib.contextmanager
def opened(
    folder: Path,
    deed: Deed,
    where: Where = "invoke",
    mode: str = "fork",
    limit: float = LIMIT,
    compute: str = "a[i]",
) -> Iterator[DelegateTarget]:
    prepare, invoke = ("deed()", "") if where == "prepare" else ("", "deed()")
    library = delegate_library(
        folder,
        on_prepare=prepare,
        on_invoke=invoke,
        compute=compute,
        before=deed.source(),
        beside=deed.beside,
    )
    target = open_delegate_target([(str(library), {})], "tflite_runtime", mode, limit)
    try:
        yield target
    finally:
        target.close()


def check(target: DelegateTarget, deed: Deed, where: Where) -> None:
    """The deed ends the case as it must, and the harmless case after it ends well."""
    trace = target.run(CASE)
    if deed.kind:
        assert trace.death is not None
        step = -1 if "watched" in trace.death.detail else STEPS[where]
        assert (trace.death.kind, trace.death.step) == (deed.kind, step)
        assert deed.detail in trace.death.detail
    else:
        assert trace.death is None
        assert trace.invoke_errors == ("",)
    after = target.run(HARMLESS)
    assert after.death is None
    assert after.outputs == ((after.inputs[0],),)


def check_all(folder: Path, name: str, where: Where) -> None:
    before, memory = state(), resident()
    with opened(folder, DEEDS[name], where, limit=LIMITS.get(name, LIMIT)) as target:
        started = time.monotonic()
        check(target, DEEDS[name], where)
        assert len(relatives(tempfile.gettempdir())) == 3, "beside guardian, supervisor, waiting child"
    assert time.monotonic() - started < 5 * LIMIT + 3.0
    assert state() == before
    assert resident() - memory < 64 << 20
    assert left.children() == []


LATER = ("kill-supervisor", "fpe", "file-limit", "corruption-seen-at-exit-only")
"""They end as `bus`, or as deeds that test_memory.py has."""
LIMITS = {"loop-with-the-gil": LIMIT / 2}
"""It hangs five times as long."""


@pytest.mark.parametrize(
    "name",
    # Part 2 of four: in test_memory.py, and with it the other way to kill a supervisor.
    [later(name) if name in LATER else name for name in part(DEEDS, 1, 4)],
)
def test_a_deed_of_a_kernel_costs_its_case_and_nothing_else(tmp_path: Path, name: str) -> None:
    check_all(tmp_path, name, "invoke")


@pytest.mark.parametrize("name", first(PREPARED, 3))
def test_a_deed_of_prepare_costs_its_case_and_nothing_else(tmp_path: Path, name: str) -> None:
    check_all(tmp_path, name, "prepare")


@pytest.mark.parametrize("name", first(["segv", "grandchild", "litter", "close-descriptors"]))
def test_the_same_in_a_fresh_interpreter(tmp_path: Path, name: str) -> None:
    before = state()
    with opened(tmp_path, DEEDS[name], mode="spawn", limit=8.0) as target:
        check(target, DEEDS[name], "invoke")
        assert len(relatives(tempfile.gettempdir())) == 2, "processes beside guardian and supervisor"
    assert state() == before


@pytest.mark.parametrize("where", STEPS)
@pytest.mark.parametrize("name", first(THROWN))
def test_an_exception_through_the_c_interface_ends_the_process(
    tmp_path: Path, name: str, where: Where
) -> None:
    # Not SIGABRT: the runtime's Python wrapper would catch it, but on its way it skips frames of the
    # interpreter, which dies of that.
    deed = THROWN[name]._replace(kind="signal", detail="SIGSEGV")
    with opened(tmp_path, deed, where) as target:
        check(target, deed, where)


def test_a_crash_on_the_third_invoke_is_a_death_at_that_invoke(tmp_path: Path) -> None:
    with opened(tmp_path, THIRD_CALL) as target:
        for _ in range(2):  # the count begins anew with every case
            death = target.run(DelegateCase(graph("MUL"), invokes=4)).death
            assert death is not None
            assert (death.kind, death.step) == ("signal", STEPS["invoke"] + 2)
            assert target.run(DelegateCase(graph("MUL"), invokes=2)).death is None


def test_a_crash_in_every_third_process_is_a_death_in_every_third_case(tmp_path: Path) -> None:
    with opened(tmp_path, third_process(tmp_path / "note")) as target:
        died = [target.run(CASE).death is not None for _ in range(6)]
    assert died == [False, False, True] * 2


@pytest.mark.parametrize("mode", ["fork", later("spawn")])
def test_a_changed_float_environment_is_told_of_and_put_back(tmp_path: Path, mode: str) -> None:
    compute = "i ? (_mm_getcsr() >> 15 & 1) : fegetround()"
    clean = [0.0, 0.0, 0.0, 0.0]
    with opened(tmp_path, DEEDS["float-environment"], mode=mode, limit=8.0, compute=compute) as target:
        for _ in range(2):
            trace = target.run(DelegateCase(graph("MUL"), invokes=2))
            assert [outputs[0].numpy().tolist() for outputs in trace.outputs] == [clean, clean]
            assert trace.control_words is not None
            assert [(each.where, each.after.mxcsr) for each in trace.control_words] == [
                ("invoke 0", 0xDFC0),
                ("invoke 1", 0xDFC0),
            ]
            (harmless,) = target.run(HARMLESS).outputs
            assert harmless[0].numpy().tolist() == clean

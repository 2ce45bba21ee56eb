from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import case_mutations
import msgspec
import pytest
from case_mutations import check
from fast_run import later
from reducing import smaller

from pytest_qnn import case_file
from pytest_qnn.core.bounds import BadCase
from pytest_qnn.core.case_file import CaseFile
from pytest_qnn.core.forms import BadOption
from pytest_qnn.qnn.cases.case import (
    Alloc,
    ContextCreate,
    Deregister,
    Descriptor,
    Execute,
    Fill,
    MemoryCase,
    Prepare,
    Read,
    Register,
    Write,
)
from pytest_qnn.qnn.cases.file import MemoryCaseFile
from pytest_qnn.qnn.target import MemoryTarget, open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase
from pytest_qnn.tflite.cases.edits import Copies, StatedEdges
from pytest_qnn.tflite.cases.file import DelegateCaseFile, PluginCaseFile, ScriptCaseFile
from pytest_qnn.tflite.cases.script import ScriptCase, flat
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.target import DelegateTarget, open_delegate_target

RUN = 50
"""Mutated cases of each kind that are carried out."""
LONGEST_READ = 0.5
"""Seconds; the usual file takes a tenth of a millisecond."""
MOST_TAKEN = 32 << 20
"""Bytes by which this process may grow while one file is read. No file of more than 2 MiB is."""


@pytest.fixture(scope="module")
def memory() -> Iterator[MemoryTarget]:
    target = open_memory_target("reference", "emulated", "fork", 10.0)
    yield target
    target.close()


@pytest.fixture(scope="module")
def delegate() -> Iterator[DelegateTarget]:
    target = open_delegate_target([("reference", {})], "auto", "fork", 10.0)
    yield target
    target.close()


@pytest.fixture(scope="module")
def contents(memory: MemoryTarget, delegate: DelegateTarget) -> list[dict[str, Any]]:
    return case_mutations.case_files(memory.facts, delegate.facts)


def tree(folder: Path) -> set[tuple[str, int]]:
    return {(str(path), path.stat().st_size) for path in folder.rglob("*")}


def timed_read(path: Path) -> tuple[float, case_file.AnyCaseFile | str]:
    """Seconds of wall time, and the content or the refusal."""
    before = time.perf_counter()
    try:
        content: case_file.AnyCaseFile | str = case_file.read(path)
    except BadOption as refusal:
        content = str(refusal)
    return time.perf_counter() - before, content


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def read_all(
    contents: list[dict[str, Any]], folder: Path, files: int
) -> tuple[list[case_file.AnyCaseFile], list[str], float, int]:
    """What is read of all fuzzed files: contents, refusals, the longest time, and the most bytes taken.

    A file that took too long is read again: if the file is the reason, and not a busy machine, it does again.
    """
    chance = random.Random(20)
    inside = folder / "inside"
    inside.mkdir()
    (folder / "beside").touch()
    good: list[case_file.AnyCaseFile] = []
    refusals: list[str] = []
    longest, most = 0.0, 0
    for number in range(files):
        path = inside / str(number)  # writing over a file again and again is slow on ext4
        path.write_bytes(case_mutations.spoiled(chance, contents))
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): VmHWM begins anew
        before = resident("VmRSS")
        seconds, content = timed_read(path)
        most = max(most, resident("VmHWM") - before)
        if seconds >= LONGEST_READ:
            seconds, content = timed_read(path)
        if isinstance(content, str):
            refusals.append(content)
        else:
            good.append(content)
        longest = max(longest, seconds)
        path.unlink()
    return good, refusals, longest, most


@pytest.fixture(scope="module", params=[6_000, later(50_000)])
def outcome(
    request: pytest.FixtureRequest, contents: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[case_file.AnyCaseFile], list[str], float, int, set[tuple[str, int]]]:
    folder = tmp_path_factory.mktemp("fuzz")
    here = Path.cwd()
    os.chdir(folder)
    try:
        return (*read_all(contents, folder, request.param), tree(folder))
    finally:
        os.chdir(here)


Outcome = tuple[list[CaseFile], list[str], float, int, set[tuple[str, int]]]


def test_each_fuzzed_file_gives_a_case_or_one_sentence(outcome: Outcome) -> None:
    good, refusals, *_ = outcome
    files = len(good) + len(refusals)
    assert len(good) > files / 10  # the mutations reach beyond the decoder
    assert len(refusals) > files / 2
    assert {type(content) for content in good} == {
        MemoryCaseFile,
        DelegateCaseFile,
        ScriptCaseFile,
        PluginCaseFile,
    }
    for sentence in refusals:
        assert sentence.startswith("--qnn-replay: ")
        assert sentence.isprintable()
        assert len(sentence) < 600


def test_the_refusals_are_of_many_kinds(outcome: Outcome) -> None:
    refusals = "\n".join(outcome[1])
    for said in (
        "JSON is malformed",
        "was truncated",
        "recursion depth",
        "has schema 99,",
        "has more than 2097152 bytes",
        "is no name",
        "before it is written",
        "of contents, and needs",
        "unknown field",
        "not within",
    ):
        assert said in refusals
    # msgspec says it in its own words since 0.23, and let Python say it before.
    assert any(said in refusals for said in ("codec can't decode", "Invalid UTF-8"))


def test_reading_takes_little_time_and_memory_and_writes_nothing(outcome: Outcome) -> None:
    _, _, longest, most, found = outcome
    assert longest < LONGEST_READ
    assert most < MOST_TAKEN
    assert {Path(path).name for path, _ in found} == {"inside", "beside"}


def sample(outcome: Outcome, contents: list[dict[str, Any]], subject: str, kind: Any = object) -> list[Any]:
    """Readable cases that no strategy has made."""
    known = {json.dumps(content["case"], sort_keys=True) for content in contents}
    found = {
        text: content.case
        for content in outcome[0]
        if content.subject == subject
        and isinstance(content.case, kind)
        and (text := json.dumps(msgspec.to_builtins(content.case), sort_keys=True)) not in known
    }
    return list(found.values())[:RUN]


def test_readable_memory_cases_harm_nobody(
    outcome: Outcome, contents: list[dict[str, Any]], memory: MemoryTarget
) -> None:
    cases = sample(outcome, contents, "memory")
    assert len(cases) == RUN
    for case in cases:
        trace = memory.run(case)
        if trace.death is not None and trace.death.kind == "large":
            continue  # a file may ask for more bytes than can be judged
        assert trace.death is None, case
        assert len(trace.steps) == len(case.steps)


def test_readable_delegate_cases_run(
    outcome: Outcome, contents: list[dict[str, Any]], delegate: DelegateTarget
) -> None:
    cases = sample(outcome, contents, "delegate", DelegateCase)
    assert len(cases) > RUN / 2
    for case in cases:
        trace = delegate.run(case)
        assert trace.death is None, case
        assert trace.plan_before, case


def test_readable_script_cases_run(
    outcome: Outcome, contents: list[dict[str, Any]], delegate: DelegateTarget
) -> None:
    cases = sample(outcome, contents, "delegate", ScriptCase)
    assert len(cases) > RUN / 4
    for case in cases:
        trace = delegate.run(case)
        copies = max((edit.times for edit in case.edits if isinstance(edit, Copies)), default=1)
        if trace.death is not None and copies > 1000:
            assert trace.death.kind == "large"  # a file may ask for more nodes than can be judged
            continue
        if trace.death is not None and any(isinstance(edit, StatedEdges) for edit in case.edits):
            assert trace.death.kind == "signal"  # RT-06: 2.14 dies of nodes that it cannot schedule
            continue
        assert trace.death is None, case
        assert len(trace.steps) == len(flat(case.steps))


@pytest.mark.parametrize("each", [4, later(20)])
def test_every_case_that_the_strategies_make_can_be_read_back(
    memory: MemoryTarget, delegate: DelegateTarget, each: int
) -> None:
    for target in (memory, delegate):
        for case in case_mutations.examples(target.subject, target.facts, each=each):
            case_mutations.read_back(case)


def test_large_batches_beside_a_graphs_tensors_can_be_read_back(memory: MemoryTarget) -> None:
    """They are one case in thirty-two: too rare for the test above."""
    case_mutations.draw(catalogue()["REG-02"].cases(memory.facts), 300, case_mutations.read_back)


@pytest.mark.parametrize("most", [8, later(100)])
def test_every_case_that_the_engine_reduces_to_can_be_read_back(
    memory: MemoryTarget, delegate: DelegateTarget, most: int
) -> None:
    for target in (memory, delegate):
        for case in case_mutations.examples(target.subject, target.facts):
            # Of cells those are left that were wrong: there are none.
            reduced = iter(()) if isinstance(case, DomainCase) else smaller(case)
            for candidate in itertools.islice(reduced, most):
                case_mutations.read_back(candidate)


def alloc(size: int) -> MemoryCase:
    return MemoryCase((Alloc("b0", size),))


def test_an_allocation_that_no_machine_can_give_is_left_to_the_target() -> None:
    check(alloc(1 << 60))  # rpcmem's int cannot even carry it, and it must say so by NULL
    check(alloc((1 << 31) - 1))


def described(**changes: Any) -> MemoryCase:
    descriptor = msgspec.structs.replace(Descriptor("b0", (8,)), **changes)
    return MemoryCase((ContextCreate("c0"), Alloc("b0", 8), Register("c0", (descriptor,), ("h0",))))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (alloc(1 << 64), "step 0: size is a number of 65 bits, not within "),
        (
            MemoryCase((Alloc("b0", 1 << 38, wide=True),) * 5),
            "the steps reserve more than 1099511627776 bytes",
        ),
        (MemoryCase((Alloc("b0", 1 << 30), Fill("b0"))), "the steps touch more than 268435456 bytes"),
        (MemoryCase((Alloc("b0", 1 << 25), *((Read("b0"),) * 9))), "the steps touch more than 268435456"),
        (MemoryCase((Write("b0", (1 << 31) - 1),)), "the steps touch more than "),
        (MemoryCase((Write("b0", -1),)), "Expected `int` >= 0 - at `$.steps[0].size`"),
        (MemoryCase((Fill("b0", 256),)), "Expected `int` <= 255 - at `$.steps[0].byte`"),
        (MemoryCase((Prepare("g0", "c0", shape=(1 << 20, 1 << 20)),)), "the steps touch more than "),
        (
            MemoryCase((Prepare("g0", "c0", shape=(1 << 60,)),)),
            "Expected `int` <= 268435456 - at `$.steps[0].shape[0]`",
        ),
        (
            MemoryCase((Prepare("g0", "c0", shape=()),)),
            "Expected `array` of length >= 1 - at `$.steps[0].shape`",
        ),
        (
            MemoryCase((Prepare("g0", "c0", shape=(1 << 22,)), *((Execute("g0", ()),) * 9))),
            "the steps touch more than ",
        ),
        (MemoryCase((ContextCreate("c0"),) * 401), "Expected `array` of length <= 400 - at `$.steps`"),
        (MemoryCase((ContextCreate("../../x"),)), "'../../x' is no name"),
        (MemoryCase((Deregister(("h0",), count=1 << 40),)), "Expected `int` <= 64 - at `$.steps[0].count`"),
        (MemoryCase((Deregister(("h0",), count=-1),)), "Expected `int` >= 0 - at `$.steps[0].count`"),
        (
            MemoryCase((Deregister(("h0",) * 65),)),
            "Expected `array` of length <= 64 - at `$.steps[0].handles`",
        ),
        (described(offset=1 << 64), "step 2: offset is a number of 65 bits"),
        (described(mem_type=-1), "Expected `int` >= 0 - at `$.steps[2].descriptors[0].mem_type`"),
        (
            described(shape=(1,) * 65),
            "Expected `array` of length <= 64 - at `$.steps[2].descriptors[0].shape`",
        ),
    ],
)
def test_a_memory_case_beyond_the_limits(case: MemoryCase, said: str) -> None:
    try:
        found = case_mutations.refusal(case)
    except OverflowError:  # msgspec writes no number of more than 64 bits
        with pytest.raises(BadCase) as raised:
            check(case)
        found = str(raised.value)
    assert found.startswith(said)


GRAPH = Graph(
    (
        Tensor((1, 2)),
        Tensor((1, 2), data=bytes(8)),
        Tensor((1, 2)),
        Tensor((1, 2)),
        Tensor((2,), "int32", data=b"\x02\0\0\0\x01\0\0\0"),
        Tensor((2, 1)),
    ),
    (Node("ADD", (0, 1), (2,)), Node("ABS", (2,), (3,)), Node("RESHAPE", (3, 4), (5,))),
    (0,),
    (5,),
)


def with_tensor(index: int, **changes: Any) -> Callable[[], Graph]:
    tensors = list(GRAPH.tensors)
    tensors[index] = msgspec.structs.replace(tensors[index], **changes)
    return lambda: msgspec.structs.replace(GRAPH, tensors=tuple(tensors))


def with_node(index: int, **changes: Any) -> Callable[[], Graph]:
    nodes = list(GRAPH.nodes)
    nodes[index] = msgspec.structs.replace(nodes[index], **changes)
    return lambda: msgspec.structs.replace(GRAPH, nodes=tuple(nodes))


def with_graph(**changes: Any) -> Callable[[], Graph]:
    return lambda: msgspec.structs.replace(GRAPH, **changes)


def test_the_graph_that_is_spoiled_below_is_valid(delegate: DelegateTarget) -> None:
    case = DelegateCase(GRAPH)
    check(case)
    assert delegate.run(case).invoke_errors == ("",)


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (with_node(0, inputs=(0, 6)), "node 0 (ADD) reads tensor 6, which there is not"),
        (with_node(0, inputs=(0, -2)), "node 0 (ADD) reads tensor -2, which there is not"),
        (with_node(0, inputs=(0, -1)), "node 0 (ADD) lacks an operand"),
        (with_node(0, inputs=(0, 3)), "node 0 (ADD) reads tensor 3 before it is written"),  # a cycle
        (with_node(0, inputs=(0,)), "node 0 (ADD) has 1 operands"),
        (with_node(0, outputs=(6,)), "node 0 (ADD) writes to tensor 6, which there is not"),
        (with_node(0, outputs=(1,)), "node 0 (ADD) writes to tensor 1, which has its contents already"),
        (with_node(1, outputs=(2,)), "node 1 (ABS) writes to tensor 2, which has its contents already"),
        (with_node(0, outputs=()), "node 0 (ADD) has 0 results, not one"),
        (with_node(1, activation="RELU"), "node 1 (ABS) cannot have an activation"),
        (with_node(1, axis=1 << 40), "Expected `int` <= 4 - at `$.graph.nodes[1].axis`"),
        (with_node(1, op="CONV_2D", inputs=(2, 1)), "node 1 (CONV_2D) has weights that do not match"),
        (with_node(2, inputs=(3, 0)), "node 2 (RESHAPE) needs an int32 vector"),
        (with_tensor(1, data=bytes(7)), "tensor 1 has 7 bytes of contents, and needs 8"),
        (with_tensor(1, shape=(1, 3), data=bytes(12)), "node 0 (ADD) has operands that do not match"),
        (with_tensor(1, data=None), "node 0 (ADD) reads tensor 1 before it is written"),
        (with_tensor(2, shape=(2, 2)), "node 0 (ADD) gives [1, 2], and its result has [2, 2]"),
        (with_tensor(2, dtype="int32"), "node 0 (ADD) has operands of different types"),
        (with_tensor(2, dtype="int8"), "tensor 2 is int8 without a scale"),
        (with_tensor(2, scales=(0.5,), zero_points=(0,)), "tensor 2 is float32 with a scale"),
        (with_tensor(2, scales=(0.5,)), "tensor 2 has scales and zero points of different number"),
        (with_tensor(4, data=bytes(8)), "node 2 (RESHAPE) has no positive shape"),
        (with_tensor(0, shape=()), "tensor 0: the number of dimensions is 0"),
        (with_tensor(0, shape=(0, 2)), "tensor 0: a dimension is 0"),
        (with_tensor(0, shape=(1 << 16, 1 << 16)), "tensor 0 has 4294967296 elements"),
        (with_tensor(0, shape=(1 << 60,)), "tensor 0: a dimension is 1152921504606846976"),
        (with_graph(inputs=(0, 1)), "an input of the graph is a constant"),
        (with_graph(inputs=(0, 0)), "an input of the graph is named twice"),
        (with_graph(inputs=(0, 9)), "an input or output of the graph is 9"),
        (with_graph(outputs=()), "the number of outputs is 0"),
        (with_graph(nodes=GRAPH.nodes[:2]), "nothing writes to tensor 5"),
    ],
)
def test_a_graph_that_no_runtime_may_be_given(graph: Callable[[], Graph], said: str) -> None:
    assert case_mutations.refusal(DelegateCase(graph())).startswith(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"invokes": 1 << 30}, "Expected `int` <= 16 - at `$.invokes`"),
        ({"data_seed": 1 << 60}, "Expected `int` <= 4294967295 - at `$.data_seed`"),
        ({"poison": (256,)}, "Expected `int` <= 255 - at `$.poison[0]`"),
        ({"poison": (1, 2)}, "2 poisons for 1 invokes"),
        ({"applications": (Application(),) * 9}, "Expected `array` of length <= 8"),
        ({"applications": (Application(claim=(3,)),)}, "a claimed node is 3"),
        ({"applications": (Application(claim=(1, 1)),)}, "a claim names a node twice"),
        (
            {"applications": (Application(flags=1 << 40),)},
            "Expected `int` <= 7 - at `$.applic",
        ),
    ],
)
def test_a_delegate_case_beyond_the_limits(changes: dict[str, Any], said: str) -> None:
    assert case_mutations.refusal(msgspec.structs.replace(DelegateCase(GRAPH), **changes)).startswith(said)


def test_weights_of_int8_layers_are_symmetric_and_convolutions_have_a_bias() -> None:
    one = {"dtype": "int8", "scales": (0.5,), "zero_points": (0,)}
    weights = Tensor((1, 1, 1, 2), data=bytes(2), **one)
    bias = Tensor((1,), "int32", (0.25,), (0,), data=bytes(4))
    tensors = (Tensor((1, 1, 1, 2), **one), weights, bias, Tensor((1, 1, 1, 1), **one))
    good = Graph(tensors, (Node("CONV_2D", (0, 1, 2), (3,)),), (0,), (3,))
    check(DelegateCase(good))
    skewed = msgspec.structs.replace(weights, zero_points=(1,))
    with pytest.raises(BadCase, match="weights with a zero point"):
        check(DelegateCase(msgspec.structs.replace(good, tensors=(tensors[0], skewed, bias, tensors[3]))))
    with pytest.raises(BadCase, match="has no bias"):
        check(DelegateCase(msgspec.structs.replace(good, nodes=(Node("CONV_2D", (0, 1), (3,)),))))

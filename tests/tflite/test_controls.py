"""Controls of delegate cases: plain, of all that a case uses, each once, and owned by rules that exist."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings
from native import build

from pytest_qnn.core.engine.attribution import MOST_CONTROLS, Attribution
from pytest_qnn.core.engine.checking import checked
from pytest_qnn.core.evidence import Evidence
from pytest_qnn.core.target import Control, Death
from pytest_qnn.core.verdict import Crashed, WrongShape
from pytest_qnn.rules import catalogue, listed, named
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.cases.inputs import inputs_of
from pytest_qnn.tflite.cases.plugin import Apply, Create, PluginCase
from pytest_qnn.tflite.cases.script import (
    AllocCustom,
    AssignCustom,
    Close,
    FreeBuffer,
    Invoke,
    Open,
    Place,
    Resize,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.controls import around, controls
from pytest_qnn.tflite.controls.graphs import body_of_addition, chained, many_kernels, with_small_tensors
from pytest_qnn.tflite.facts import Claim, DelegateFacts
from pytest_qnn.tflite.graph.combinations import GRID, Combination
from pytest_qnn.tflite.graph.control import loop_around
from pytest_qnn.tflite.graph.graph import DType, Graph, Node, Tensor
from pytest_qnn.tflite.graph.kinds import graph_of
from pytest_qnn.tflite.graph.valid import check_node
from pytest_qnn.tflite.target import open_delegate_target
from pytest_qnn.tflite.target.histories import of_histories

EXAMPLE = Path(__file__).parents[2] / "examples" / "delegate_repo" / "src"

SHAPE = (1, 2, 3)
CHAIN = Graph(
    tensors=tuple(Tensor(SHAPE) for _ in range(4)),
    nodes=(Node("SUB", (0, 1), (2,), activation="RELU"), Node("NEG", (2,), (3,))),
    inputs=(0, 1),
    outputs=(3,),
)
SUB = Combination("SUB", "float32", 3, "RELU")


def of_plain_memory(case: Any) -> list[Control]:
    """Plain runs of a wrong output: neither buffers nor scripts, and nothing looked at besides numbers."""
    found = [control for control in controls(case, died=False) if isinstance(control.case, DelegateCase)]
    return [each for each in found if not (each.case.look or each.spoils or each.owners == ("PART-16",))]


def of_owner(case: Any, owner: str, *, died: bool = False) -> list[Any]:
    """Cases of the controls that this rule is the first owner of."""
    return [each.case for each in controls(case, died=died) if each.owners[:1] == (owner,)]


def test_bytes_beside_tensors_then_buffers_and_custom_memory_are_looked_at_first() -> None:
    def owners(case: Any) -> list[str]:
        seen = (each for each in controls(case, died=False) if each.owners != ("MEM-15",))
        found = itertools.takewhile(lambda each: isinstance(each.case, ScriptCase), seen)
        return list(dict.fromkeys(each.owners[0] for each in found))

    assert owners(DelegateCase(CHAIN)) == ["MEM-03", "BUF-01", "BUF-02", "BUF-03", "BUF-04"]
    custom = ScriptCase((CHAIN,), (AllocCustom("c0", 24, position=1), Open("i0")))
    assert owners(custom)[5:] == ["TFL-10", "TFL-13", "TFL-17", "TFL-18"]
    (whole,) = of_owner(custom, "TFL-18")
    assert {step.position for step in whole.steps if isinstance(step, AllocCustom)} == {1}
    assert {step.tensor for step in whole.steps if isinstance(step, AssignCustom)} == {
        *CHAIN.inputs,
        *CHAIN.outputs,
    }
    assert {
        sum(isinstance(step, AssignCustom) for step in each.steps) for each in of_owner(custom, "TFL-13")
    } == {1}


def test_what_is_seen_itself_comes_before_any_number_and_behind_any_death() -> None:
    def owners(*, died: bool) -> list[str]:
        found = controls(DelegateCase(CHAIN), died=died)
        return [each.owners[0] for each in found if each.owners and isinstance(each.case, DelegateCase)]

    output, death = owners(died=False), owners(died=True)
    deeds = {"LIFE-10", "MEM-02"}
    blocks = [each for each in death if each == "MEM-15"]
    assert output[: len(blocks)] == death[: len(blocks)] == blocks
    output, death = output[len(blocks) :], death[len(blocks) :]
    assert set(output[:6]) == deeds
    assert death[:7] == [*["PART-03", "RUN-01"] * 2, *["RUN-01"] * 3]
    longer = death.index("PART-20")
    assert set(death[7:longer]) == deeds
    assert set(death[longer + 1 :]) == {"RUN-01"}
    spoils = [each for each in controls(DelegateCase(CHAIN), died=True) if each.spoils]
    scripts = [each for each in spoils if isinstance(each.case, ScriptCase)]
    assert spoils[: len(scripts)] == scripts
    owners_of_memory = list(dict.fromkeys(owner for each in scripts for owner in each.owners))
    assert owners_of_memory == ["MEM-03", "MEM-14", "MEM-05", "MEM-13"]
    shapes = [each for each in spoils if each.owners == ("PART-03",)]
    assert {each.shown for each in shapes} == {WrongShape}
    *spoiling, lent = (each for each in spoils[len(scripts) :] if each not in shapes)
    assert {(each.case.watch, "MEM-01" in each.owners) for each in spoiling} == {(True, True)}
    assert (lent.case.look, lent.owners[-1]) == (("lifetimes",), "PART-21")


PLAIN_PAIR = [("ADD NONE+ADD NONE", 2, "PART-11")] * 2
PLAIN_LIFE = [("ADD NONE", 2, owner) for owner in ("DET-02", "DET-02", "LIFE-02", "LIFE-02")]


def test_an_output_s_controls_add_one_thing_at_a_time() -> None:
    case = DelegateCase(
        CHAIN,
        (Application("probe", (0,)), Application(claim=(1,))),
        invokes=3,
        data_seed=7,
        history=History(used=2),
    )
    found = of_plain_memory(case)
    seen = [
        (
            "+".join(f"{node.op} {node.activation}" for node in graph.nodes),
            len(graph.tensors[0].shape),
            next(owner for owner in control.owners if owner != "PART-04"),
        )
        for control in found
        for graph in (control.case.graph,)
    ]
    assert seen == [
        ("SUB RELU", 3, "DET-04"),
        ("NEG NONE", 3, "DET-04"),
        ("SUB NONE", 2, "DET-04"),
        ("NEG NONE", 2, "DET-04"),
        *[("SUB NONE", 2, "NUM-10"), ("SUB NONE", 2, "PART-03")] * 3,
        *[("NEG NONE", 2, "NUM-10"), ("NEG NONE", 2, "PART-03")] * 3,
        *[("SUB NONE+SUB NONE", 2, "PART-11")] * 2,
        *[("NEG NONE+NEG NONE", 2, "PART-11")] * 2,
        *PLAIN_PAIR,
        ("SUB RELU+NEG NONE", 3, "DET-01"),
        ("SUB NONE", 2, "PART-03"),
        ("SUB NONE", 3, "PART-03"),
        ("NEG NONE", 2, "PART-03"),
        ("NEG NONE", 3, "PART-03"),
        # With the inputs of later invokes too, and with memory that was filled before.
        *[("SUB NONE", 3, "NUM-10")] * 3,
        *[("SUB RELU", 3, "NUM-06"), ("SUB RELU", 3, "NUM-10")] * 3,
        *[("NEG NONE", 3, "NUM-10")] * 3,
        *[("SUB NONE+NEG NONE", 3, "NUM-10")] * 3,  # each result an output
        *[("SUB NONE+NEG NONE", 3, "PART-11")] * 3,
        *[("SUB RELU+NEG NONE", 3, "NUM-06")] * 6,  # alone, and beside other owners
        ("SUB RELU+NEG NONE", 3, "PART-11"),
        *PLAIN_LIFE,
        ("+".join(["ADD NONE"] * 4), 2, "DET-02"),  # with a probe's node between two kernels
        *[("SUB RELU+NEG NONE", 3, owner) for _, _, owner in PLAIN_LIFE],
        ("SUB RELU+NEG NONE", 3, "DET-02"),  # behind the same history
        ("ADD NONE", 2, "DET-02"),
    ]
    *plain, lived, lived_too = (each.case for each in found)
    assert {(one.invokes, one.data_seed, one.history) for one in plain} == {
        (*each, None) for each in ((1, 7), (2, 7), (3, 7), (1, 1), (1, 2), (1, 0), (3, 0))
    }
    assert {(one.invokes, one.history) for one in (lived, lived_too)} == {(3, History(used=2))}
    assert sum(len(one.applications) > 1 for one in plain) == 3


def test_a_graph_that_is_right_once_is_prepared_otherwise_and_lives_longer() -> None:
    found = list(controls(DelegateCase(CHAIN), died=False))
    (lent, late, twice, _, resized, prepared) = (
        each
        for each in found
        if each.owners[0] in ("PART-20", "LIFE-09", "DET-02", "LIFE-02") and each.case.graph == CHAIN
    )
    assert (lent.case.look, late.case.look, late.case.late) == (("lifetimes",), ("data",), True)
    assert (twice.case.reseed, resized.case.redo) == ((1, 2, 1), 3)
    assert prepared.case.applications[1] == Application("probe", ())
    last = [each.owners for each in found if isinstance(each.case, ScriptCase)][-7:]
    moved, longer = ("MEM-05", "MEM-13"), [("DYN-02",), ("RSZ-03",), ("CTRL-02",)]
    assert last == [("BUF-07",), moved, ("MEM-04",), ("MEM-11",), *longer]


BODY = Graph((Tensor(SHAPE),) * 3, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
BRANCH = Graph(
    tensors=(Tensor((1,), "bool"), Tensor(SHAPE), Tensor(SHAPE), Tensor(SHAPE)),
    nodes=(Node("IF", (0, 1, 2), (3,), subgraphs=(1, 1)),),
    inputs=(0, 1, 2),
    outputs=(3,),
    subgraphs=(BODY,),
)


def test_a_loop_is_written_out_and_runs_by_itself_too() -> None:
    loop = loop_around(body_of_addition())
    case = ScriptCase((loop,), (Open("i0"), *(SetInputs("i0", seed) for seed in (0, 1, 2)), Invoke("i0")))
    nodes = {
        tuple(node.op for node in each.case.graph.nodes)
        for each in of_plain_memory(case)
        if each.owners[:1] == ("DET-01",)
    }
    turns = {1 + int(value) for seed in (0, 1, 2) for value in limits(seed)}
    assert {len(ops) + 1 for ops in nodes} == turns
    (plain,) = of_owner(case, "CTRL-02")
    (own,) = of_owner(case, "CTRL-01")
    assert plain.graphs == own.graphs == (loop,)
    assert [step.seed for step in own.steps if isinstance(step, SetInputs)] == [0, 1, 2]


def limits(seed: int) -> list[int]:
    """How often the loop goes round."""
    (limit, _) = inputs_of(DelegateCase(loop_around(body_of_addition()), data_seed=seed))
    return [int(each) for each in limit]


def test_a_graph_that_is_resized_runs_at_these_shapes_too() -> None:
    resized = (Resize("i0", 0, (4, 2, 3)), Resize("i0", 1, (4, 2, 3)), SetInputs("i0", 1))
    huge = (Resize("i0", 0, (1 << 40, 2, 3)), Resize("i0", 1, (1 << 40, 2, 3)), SetInputs("i0", 1))
    never = (Resize("i0", 0, (5, 2, 3)), SetInputs("i0", 1), Resize("i0", 7, (1,)), SetInputs("i1"))
    case = ScriptCase((CHAIN,), (Open("i0"), SetInputs("i0"), *resized, *huge, *never))
    shapes = {
        each.case.graph.tensors[0].shape
        for each in of_plain_memory(case)
        if len(each.case.graph.nodes) == 2 and each.case.graph.nodes[0].op == "SUB"
    }
    assert shapes >= {SHAPE, (4, 2, 3)}
    assert max(shape[0] for shape in shapes) == 4


def test_what_is_wrong_before_a_resize_is_not_for_want_of_following_it() -> None:
    steps = (Open("i0"), Invoke("i0"), Resize("i0", 0, (4, 2, 3)), Invoke("i0"))
    (before,) = of_owner(ScriptCase((CHAIN,), steps), "DYN-03")
    assert before.steps == steps[:2]
    assert not of_owner(ScriptCase((CHAIN,), steps[:2]), "DYN-03")


def test_controls_of_additions_presume_that_these_are_right() -> None:
    found = [each for each in controls(DelegateCase(CHAIN), died=False) if each.presumes is not None]
    presumed = {each.presumes.owners[0]: each.owners for each in found if each.presumes is not None}
    assert {*presumed} == {"DET-04", "MEM-04"}
    assert presumed["MEM-04"] == ("MEM-05", "MEM-13")
    encoded = {msgspec.json.encode(each.presumes.case) for each in found if each.presumes is not None}
    assert len(encoded) == 2
    assert all(b"ADD" in each for each in encoded)
    own = [each for each in controls(DelegateCase(CHAIN), died=False) if each.presumes is None]
    assert not [each for each in own if each.owners == ("LIFE-02",) and each.case.graph.nodes[0].op == "ADD"]


@pytest.mark.parametrize("case", [DelegateCase(CHAIN), ScriptCase((CHAIN,), (Open("i0"), Place("i0", 0)))])
def test_of_any_death_it_is_asked_whether_memory_is_used_that_is_gone(case: Any) -> None:
    (given,) = of_owner(case, "MEM-14", died=True)
    kinds = [type(step) for step in given.steps]
    assert kinds.index(Close) < kinds.index(FreeBuffer)
    (moved,) = (each for each in controls(case, died=True) if each.owners == ("MEM-05", "MEM-13"))
    assert moved.presumes is not None
    assert moved.presumes.owners == ("MEM-04",)
    steps = moved.case.steps
    assert [type(step) for step in steps].index(Invoke) < max(
        at for at, step in enumerate(steps) if isinstance(step, Place)
    )


def test_blocks_tell_of_a_crash_before_any_rule_about_plain_runs_does() -> None:
    found = [each for each in controls(DelegateCase(CHAIN), died=True) if not each.spoils]
    blocks = [each for each in found if each.heap]
    assert found[: len(blocks)] == blocks
    assert {(each.owners, each.case.look, each.explains) for each in blocks} == {
        (("MEM-15",), ("heap",), (Crashed,))
    }
    assert any(each.case.graph == CHAIN for each in blocks)
    plain, of_heap = Evidence("Prepare"), Evidence("Prepare", stderr="free(): invalid pointer")
    for evidence, owners in ((plain, ()), (of_heap, ("MEM-15",))):
        assert blocks[0].owners_of(Death("signal", "SIGABRT", evidence=evidence)) == owners


def test_a_graph_of_many_nodes_may_fall_into_as_many_partitions() -> None:
    assert not of_owner(DelegateCase(CHAIN), "PART-22")
    (case,) = of_owner(DelegateCase(many_kernels(10)[0]), "PART-22")
    left = set(range(len(case.graph.nodes))).difference(case.applications[0].claim)
    written = {case.graph.nodes[at].outputs[0] for at in left}
    assert len(left) == 20
    assert not any(written.intersection(case.graph.nodes[at].inputs) for at in left)
    many = DelegateCase(many_kernels(60)[0])
    assert [len(each.graph.nodes) for each in of_owner(many, "PART-22")] == [128]


def test_interpreters_that_are_kept_live_beside_the_case_s() -> None:
    assert not of_owner(DelegateCase(CHAIN, history=History(used=3)), "OWN-06")
    (case,) = of_owner(DelegateCase(CHAIN, history=History(kept=1)), "OWN-06")
    assert case.graphs[0] != case.graphs[1]
    assert [step.graph for step in case.steps if isinstance(step, Open)] == [0, 1]
    assert not any(isinstance(step, Close) for step in case.steps)


def test_who_applies_what_is_no_delegate_may_die_of_it() -> None:
    made = Create(options=((b"a", b"b"),))
    case = PluginCase(CHAIN, (made, Apply("d0")), delegate=1)
    found = [each for each in controls(case, died=True) if each.owners == ("ABI-09",)]
    assert [each.case.steps[0] for each in found] == [made, Create()]
    for control in found:
        assert control.spoils
        assert control.case.delegate == 1
        assert not any(isinstance(step, Apply) for step in control.case.steps)
    (lent,) = (each for each in controls(case, died=True) if "PART-21" in each.owners)
    assert lent.spoils
    assert lent.case.look == ("lifetimes",)


def test_constants_are_looked_at_before_any_number() -> None:
    watched = of_owner(DelegateCase(CHAIN), "LIFE-10")
    assert any(tensor.data for each in watched for tensor in each.graph.tensors)


def test_a_node_whose_result_is_no_operand_of_it_is_not_chained() -> None:
    assert chained(graph_of(Combination("MEAN", "float32", 2))) is None


def test_of_operands_of_two_shapes_numbers_alone_are_judged_first() -> None:
    """PART-03 owns the plainest way to broadcast, a constant; any other is a matter of numbers."""
    tensors = (Tensor((2, 1)), Tensor((1, 3)), Tensor((2, 3)))
    both = Graph(tensors, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    found = [each.owners for each in of_plain_memory(DelegateCase(both)) if each.case.graph == both]
    of_numbers = [owners for owners in found if "NUM-10" in owners]
    assert of_numbers[0] == ("PART-04", "NUM-10", "NUM-01", "NUM-07")
    assert any("PART-03" in owners for owners in of_numbers)


def test_operands_of_a_plainest_operator_are_told_apart() -> None:
    first = of_plain_memory(DelegateCase(CHAIN))[2].case.graph
    assert first.nodes[0].inputs == (0, 2)
    assert first.inputs == (0, 2)


def test_a_kind_of_rank_5_is_plainest_at_rank_2() -> None:
    tensors = (Tensor((1, 1, 1, 1, 2)),) * 3
    graph = Graph(tensors, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    found = [each.case.graph for each in of_plain_memory(DelegateCase(graph)) if "NUM-10" in each.owners]
    assert {len(each.tensors[0].shape) for each in found} == {2, 5}
    (formed,) = [one for one in of_plain_memory(DelegateCase(graph)) if one.owners == ("PART-04", "PART-03")][
        1:
    ]
    assert len(formed.case.graph.tensors[0].shape) == 4


def plain_runs(graph: Graph) -> list[Any]:
    """Those of one life with one invoke."""
    cases = [each.case for each in controls(DelegateCase(graph), died=True) if "RUN-01" in each.owners]
    return [each for each in cases if each.invokes == 1 and not each.again]


def test_a_death_is_told_from_one_in_a_second_invoke_and_in_a_second_life_at_the_end() -> None:
    cases = [each.case for each in controls(DelegateCase(CHAIN), died=True) if "RUN-01" in each.owners]
    plain = len(plain_runs(CHAIN))
    assert cases[:plain] == plain_runs(CHAIN)
    assert {(each.invokes, each.again) for each in cases[plain:]} == {(2, ""), (1, "interpreter")}
    assert {len(each.graph.nodes) for each in cases[plain:]} == {1}


def test_large_tensors_have_small_ones_before_them() -> None:
    shape, constant = (2, 1, 5000), Tensor((5000,), data=bytes(4 * 5000))
    tensors = (Tensor(shape), constant, Tensor(shape), Tensor((2, 4096, 5000)), Tensor((2, 4096, 5000)))
    nodes = (Node("ADD", (0, 1), (2,)), Node("MUL", (2, 3), (4,)))
    small = with_small_tensors(Graph(tensors, nodes, (0, 3), (4,)))
    assert small is not None
    assert [each.shape for each in small.tensors] == [(2, 1, 4), (4,), (2, 1, 4), (2, 3, 4), (2, 3, 4)]
    assert small.tensors[1].data == bytes(16)
    for node in nodes:
        check_node("it", node, small.tensors)
    matrix = Graph((Tensor((1, 64)), Tensor((64, 64)), Tensor((1, 64))), (), (0, 1), (2,))
    product = msgspec.structs.replace(matrix, nodes=(Node("FULLY_CONNECTED", (0, 1), (2,)),))
    assert with_small_tensors(product) is None


def test_a_death_has_no_control_at_another_rank() -> None:
    found = [each.graph for each in plain_runs(CHAIN)]
    assert [len(graph.nodes) for graph in found] == [1, 1, 1, 1, 2]
    assert {len(graph.tensors[0].shape) for graph in found} == {3}


def test_who_owns_a_death_depends_on_the_call_and_on_the_size() -> None:
    plain = [each for each in controls(DelegateCase(CHAIN), died=True) if not (each.spoils or each.heap)]
    plain = [each for each in plain if each.case.invokes == 1 and not each.case.again]
    small, whole = plain[0], plain[-2]
    assert whole.owners == small.owners == ("RUN-01",)
    for during, owner in (
        ("tflite_plugin_create_delegate", "ABI-02"),
        ("FreeBufferHandle", "BUF-06"),
        ("invoke of kernel 0, node 0 (SUB)", "RUN-01"),
        ("Prepare of delegate 0", "RUN-01"),
    ):
        assert small.owners_of(Death("signal", "SIGABRT", evidence=Evidence(during))) == (owner,)
    large = Graph((Tensor((2, 4096)),) * 3, (Node("ADD", (0, 1), (2,)),), (0, 1), (2,))
    found = [each for each in controls(DelegateCase(large), died=True) if not (each.spoils or each.heap)]
    owners = [(each.owners, each.case.graph.tensors[0].shape) for each in found[:3]]
    assert owners == [(("RUN-01",), (2, 3)), (("RUN-01",), (2, 3)), (("ERR-04",), (2, 4096))]
    assert {each.owners for each in found[3:]} == {("RUN-01",), ()}


@pytest.mark.parametrize("graph", [CHAIN, msgspec.structs.replace(CHAIN, nodes=(Node("NEG", (-1,), (1,)),))])
def test_any_delegate_s_life_explains_a_death_in_its_first_and_last_call_only(graph: Graph) -> None:
    *_, plain = controls(DelegateCase(graph), died=True)
    for during, owners in (
        ("tflite_plugin_create_delegate", ("ABI-02",)),
        ("tflite_plugin_destroy_delegate", ("RUN-01",)),
        ("invoke of kernel 0, node 0 (ADD)", ()),
        ("Prepare of delegate 0", ()),
    ):
        assert plain.owners_of(Death("signal", "SIGABRT", evidence=Evidence(during))) == owners


@pytest.mark.parametrize(
    "case",
    [
        ScriptCase((CHAIN, CHAIN), (Open("i0"), Invoke("i0"))),
        PluginCase(CHAIN, (Create(), Apply())),
        DelegateCase(CHAIN),
    ],
)
def test_cases_of_every_kind_have_the_same_controls(case: object) -> None:
    assert list(controls(case, died=False)) == list(controls(DelegateCase(CHAIN), died=False))


def test_nodes_of_subgraphs_count_and_what_depends_on_data_does_not() -> None:
    found = [each.graph for each in plain_runs(BRANCH)]
    assert [[node.op for node in graph.nodes] for graph in found] == [["ADD"], ["ADD"]]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_absent_bias_is_one_of_zeros_in_controls(dtype: DType) -> None:
    quantised: dict[str, Any] = {"dtype": dtype} | (
        {"scales": (0.5,), "zero_points": (0,)} if dtype == "int8" else {}
    )
    tensors = (
        Tensor((1, 2), **quantised),
        Tensor((2, 2), data=bytes(16), **quantised),
        Tensor((1, 2), **quantised),
    )
    graph = Graph(tensors, (Node("FULLY_CONNECTED", (0, 1, -1), (2,)),), (0,), (2,))
    found = [each.case.graph for each in of_plain_memory(DelegateCase(graph))]
    bias = (
        Tensor((2,), data=bytes(8))
        if dtype == "float32"
        else Tensor((2,), "int32", (0.25,), (0,), data=bytes(8))
    )
    assert (
        msgspec.structs.replace(
            graph, tensors=(*tensors, bias), nodes=(Node("FULLY_CONNECTED", (0, 1, 3), (2,)),)
        )
        in found
    )
    assert all(-1 not in node.inputs for each in found for node in each.nodes)


def test_every_owner_is_a_delegate_rule() -> None:
    graphs = [graph_of(kind) for kind in GRID]
    owners = {
        owner
        for graph in graphs
        for died in (True, False)
        for control in controls(DelegateCase(graph), died=died)
        for owner in control.owners
    }
    assert {listed()[owner].subject for owner in owners} == {"delegate"}
    assert owners >= {"NUM-02", "NUM-03", "NUM-05", "NUM-06", "NUM-10", "PART-03", "RUN-01"}


@pytest.mark.parametrize("rule_id", ["RUN-01", "PREC-08", "ERR-08"])
def test_a_large_graph_is_run_whole_as_well(rule_id: str) -> None:
    """That is its last control but for a few. Cut off, it left an abort to whatever rule met it first."""

    @seed(1)
    @settings(max_examples=30, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(catalogue()[rule_id].cases(DelegateFacts()))
    def check(case: Any) -> None:
        numbers.extend(sum(1 for _ in controls(case, died=died)) for died in (True, False))

    numbers: list[int] = []
    check()
    assert 60 < max(numbers) <= MOST_CONTROLS


def left(facts: DelegateFacts) -> set[Combination]:
    return {claim.kind for claim in facts.claims if claim.outcome == "claimed"}


def test_around_leaves_out_one_rank_and_then_the_operator() -> None:
    control = DelegateCase(graph_of(SUB))
    first = around(DelegateFacts(), control)
    assert set(GRID) - left(first) == {
        kind for kind in GRID if (kind.op, kind.dtype, kind.rank) == ("SUB", "float32", 3)
    }
    second = around(first, DelegateCase(graph_of(Combination("SUB", "float32", 2))))
    assert set(GRID) - left(second) == {kind for kind in GRID if (kind.op, kind.dtype) == ("SUB", "float32")}
    assert around(second, control) is second


def test_around_keeps_what_was_refused_and_what_it_cannot_tell_apart() -> None:
    claims = tuple(Claim(kind, "refused" if kind.op == "ADD" else "claimed") for kind in GRID)
    facts = DelegateFacts(claims=claims)
    assert {kind.op for kind in set(GRID) - left(around(facts, DelegateCase(graph_of(SUB))))} == {
        "ADD",
        "SUB",
    }
    assert around(facts, DelegateCase(CHAIN)) is facts


LARGE = Graph((Tensor((1 << 14,)),) * 2, (Node("NEG", (0,), (1,)),), inputs=(0,), outputs=(1,))


def test_a_history_of_another_graph_than_the_case_s_is_run_by_itself() -> None:
    def graphs(case: Any, *, died: bool = True) -> list[list[str]]:
        return [[node.op for node in each.case.graph.nodes] for each in of_histories(case, died=died)]

    used, plain = History(used=1), [["ABS"]] * 3 + [["ADD"]] * 3 + [["ABS", "ADD"]] * 3
    for graph in (LARGE, BRANCH):
        assert graphs(DelegateCase(graph, history=used)) == plain
        assert graphs(ScriptCase((graph,), (Open("i0"),), history=History(kept=1))) == plain
        assert graphs(DelegateCase(graph, history=History(made=9, repeated=2))) == []
    assert graphs(DelegateCase(CHAIN, history=used)) == []
    assert graphs(DelegateCase(LARGE)) == []
    assert graphs(DelegateCase(LARGE, history=used), died=False) == []
    assert graphs(PluginCase(LARGE, (Create(),))) == []


def test_who_dies_in_a_history_of_another_graph_dies_of_its_operators(tmp_path: Path) -> None:
    source = (EXAMPLE / "arithmetic_delegate.c").read_text(encoding="utf-8")
    dying = source.replace("count) {\n  for (", "count) {\n  abort();\n  for (", 1)
    library = build(tmp_path, dying)
    case = DelegateCase(LARGE, history=History(used=1))
    with closing(open_delegate_target([(str(library), {})], "auto", "auto", 10.0)) as target:
        violation = checked(named("PART-01"), case, target.run(case))
        assert isinstance(violation, Crashed)
        cause = Attribution(named("PART-01"), target, named).cause(case, violation)
    assert cause is not None
    assert cause.owner.id == "RUN-01"
    assert [node.op for node in cause.case.graph.nodes] == ["ADD"]

"""Controls: plain runs of what a case uses, to tell a wrong operator from what the case's rule is about.

Three sizes: each operator of the case's graphs at its plainest, each node alone, each whole graph. A graph is
applied to once, prepared, invoked and destroyed, with no option, probe or further interpreter. Before them
come controls of what spoils any result (a stray write, a buffer that is not copied), behind them those of
what lasts longer than one invoke: the plainest graph resized, in memory of the client's, in a loop. The last
controls alone have the history of the case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from pytest_qnn.core.target import Control
from pytest_qnn.core.verdict import Crashed, Violation, WrongOutput, WrongShape
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase, Fill
from pytest_qnn.tflite.cases.plugin import DESTROY, Create, Destroy, PluginCase
from pytest_qnn.tflite.cases.reduce import is_plain
from pytest_qnn.tflite.cases.script import ScriptCase, SetInputs, flat
from pytest_qnn.tflite.controls import scripts
from pytest_qnn.tflite.controls.graphs import (
    ADDITION,
    body_of_addition,
    chained,
    forms,
    has_absent_operands,
    has_two_shapes,
    kinds_of,
    linked,
    many_kernels,
    of_three_elements,
    parts,
    plain_scale,
    ranks_of,
    row_of_additions,
    simplest,
    single_nodes,
    with_all_outputs,
    with_operands,
    with_small_tensors,
    with_wide_results,
    without_activation,
    without_zero_points,
)
from pytest_qnn.tflite.facts import Claim, DelegateFacts
from pytest_qnn.tflite.graph.combinations import GRID, Combination, combination_of
from pytest_qnn.tflite.graph.graph import Graph
from pytest_qnn.tflite.graph.numbering import ascending
from pytest_qnn.tflite.graph.operators import SUMS

_SURVIVES = ("RUN-01",)
"""The owner of a process that a plain run ends or blocks."""
_LARGE = ("ERR-04",)
"""The same where kernels of small tensors of the same kind survive: size is what ERR-04 is about."""
_LARGE_FROM = 4096
"""Elements of a tensor that is large."""
_CALLS = (("tflite_plugin_create_delegate", "ABI-02"), ("FreeBufferHandle", "BUF-06"))
"""Of a death in these calls another rule is the owner."""
_ENDS = ((DESTROY, "RUN-01"), *_CALLS)
"""The same of any plain run, whatever its graph is: every case makes and destroys a delegate."""
_FAILS = "PART-04"
"""The owner of a call that fails in a plain run."""
_FEW = 4
"""Nodes that are run repeatedly of a graph that cannot be."""
_NOTHING = Graph((), (), (), ())
_ONCE = DelegateCase(_NOTHING)
_AGAIN = DelegateCase(_NOTHING, invokes=2)
_OTHERS = (1, 2)
"""Seeds of further inputs."""
_OVER = DelegateCase(_NOTHING, poison=(0x7F,))
"""Over bytes that are far from any result."""
_FILLED = DelegateCase(_NOTHING, invokes=2, poison=(0xEE, 0x99))
"""Other bytes in the outputs before each invoke."""
_AT_THE_ENDS = DelegateCase(_NOTHING, fill="extreme")
"""What leaves the range of int8 does so without zero points and activations."""
_WITH_OTHERS = DelegateCase(_NOTHING, invokes=3, reseed=(1, 2, 1))
"""With the inputs of these seeds by turns."""
_RESIZED = DelegateCase(_NOTHING, redo=3)
"""Often enough that what a repetition adds shows: once more, RELU of RELU is RELU."""
_TWICE = DelegateCase(_NOTHING, again="interpreter")
"""The delegate's whole life once more in the same process."""
_BEFORE_ANOTHER = DelegateCase(_NOTHING, (Application(), Application("probe", ())))
"""A later delegate has the runtime prepare the kernels once more."""
_WATCHED = DelegateCase(_NOTHING, invokes=1 + len(_OTHERS), watch=True, look=("graph",))
"""What Prepare changes, and what kernels write that is not theirs, is looked at, with each of the inputs that
another control has: a RELU that writes its input changes none that is positive."""
_LENT = DelegateCase(_NOTHING, look=("lifetimes",))
"""What Prepare was lent is made invalid when it returns."""
_IN_ITS_HEAP = DelegateCase(_NOTHING, invokes=2, look=("heap",), fill="mixed")
"""Blocks that the target requests are looked at."""
_LATE = DelegateCase(_NOTHING, late=True, look=("data",))
"""Tensors have memory, with the data of other inputs, when the delegate is applied."""
_PARTITIONS = ("PART-11", "PART-10")
"""Owners of a wrong output of a graph whose nodes are right by themselves."""
_PLAIN = simplest(ADDITION)
"""Of what no part of the case is needed for."""
_WITH_A_CONSTANT = body_of_addition()
"""The same of constants, which Prepare may change."""
_FEW_KERNELS = 8
"""Nodes of a graph that may fall into many partitions: of more PART-22 judges what has as many."""
_MOST_KERNELS = 64
"""PART-22 has no more."""
_WITHOUT_OPTIONS = PluginCase(_PLAIN, (Create(null_arrays=True), Destroy("d0")))
_PARTED, _BETWEEN = linked()
_LINKED = DelegateCase(_NOTHING, (Application("probe", _BETWEEN), Application()))
"""Of `_PARTED`: two kernels of the target, with a probe's between them."""


def controls(case: Any, *, died: bool) -> Iterator[Control]:
    """See `pytest_qnn.core.target.Target.controls`; ``case`` is of any kind that concerns delegates."""
    graphs, seed, fill = _used(case)
    # What a number of a tensor does is no plain run's.
    present = map(with_operands, map(ascending, graphs))
    each = {msgspec.msgpack.encode(one): one for one in present if not has_absent_operands(one)}
    alone = [one for graph in each.values() for one in single_nodes(graph)]
    whole = [graph for graph in each.values() if is_plain(graph)]
    plainest = [*map(simplest, kinds_of(alone)), _PLAIN]
    few = [*plainest[:-1][:_FEW], _PLAIN]
    some = whole or alone[:_FEW]
    spoiling, known = _of_what_spoils(some, plainest, seed), set[bytes]()
    yield from scripts.of_guarded_memory(few)
    if died:
        yield from scripts.of_memory_that_is_gone(_PLAIN)
        yield from _of_blocks(few, some, (Crashed,))
        made = itertools.chain(
            _of_a_death(alone, whole), spoiling, _of_what_was_lent(), _of_longer_lives(few)
        )
        yield from _runs(made, seed, fill, known)
        if isinstance(case, PluginCase) and any(isinstance(step, Create) for step in case.steps):
            yield from _of_a_struct(case)
            yield Control(_WITHOUT_OPTIONS, ("ABI-02",), _CALLS)
        # No graph of the case may be fit for a plain run. What ends a process in any delegate's life does so
        # with another graph as well; a death in a kernel does not, so this explains calls of `_ENDS` only.
        yield Control(msgspec.structs.replace(_ONCE, graph=_PLAIN), (), _ENDS)
    else:
        yield from (each._replace(spoils=True) for each in _of_blocks(few, some, (WrongOutput,)))
        yield from scripts.of_memory(case, few)
        yield from _runs(spoiling, seed, fill, known)
        # Of small integers in a row some faults show nothing.
        yield from _runs(_of_plain_operators(alone), seed, "mixed", known)
        yield from _presuming(_runs(_of_pairs([_PLAIN]), 0, "mixed", known))
        yield from _presuming(_runs(_of_many_kernels(graphs), 0, "mixed", known))
        yield from _presuming(scripts.of_lives_together(case, _PLAIN, _WITH_A_CONSTANT))
        yield from _runs(_of_an_output(alone, whole, _other_seeds(case)), seed, fill, known)
        yield from _presuming(scripts.of_linked_buffers(_PLAIN))
        yield from _presuming(_runs(_of_a_plain_life(), 0, "mixed", known))
        yield from _runs(_of_a_life(some, seed), seed, fill, known)
        yield scripts.of_another_buffer(_PLAIN)._replace(spoils=False)
        yield from _presuming(scripts.of_a_script(case, _PLAIN))
        yield from _runs(_of_a_history(case, some), seed, fill, known)
        yield from _presuming(_runs(_of_a_history(case, [_PLAIN]), 0, "mixed", known))


def of_numbers(graphs: Sequence[Graph]) -> Iterator[Control]:
    """What each graph of one node computes, with several inputs; a call that fails computes nothing.

    Bytes that stay as they were are no numbers: they come first.
    """
    return _runs(_numbers_of(graphs), 0, "mixed", set())


class Owned(NamedTuple):
    """A plain run of a graph, and who owns what goes wrong in it."""

    graph: Graph
    owners: tuple[str, ...]
    repeats: DelegateCase = _ONCE
    """A ``data_seed`` of 0 stands for the case's."""
    spoils: bool = False
    shown: type[Violation] = Violation


def _runs(made: Iterator[Owned], seed: int, fill: Fill, known: set[bytes]) -> Iterator[Control]:
    """Each once; ``known`` are those that were given before."""
    for graph, owners, repeats, spoils, shown in made:
        filled = fill if repeats.fill == _ONCE.fill else repeats.fill
        case = msgspec.structs.replace(repeats, graph=graph, data_seed=repeats.data_seed or seed, fill=filled)
        key = msgspec.msgpack.encode((case, owners))
        if key not in known:
            known.add(key)
            yield Control(case, owners, _CALLS, spoils=spoils, shown=shown)


def _presuming(found: Iterator[Control]) -> Iterator[Control]:
    """Controls of additions, which the case may do without: where these are wrong they say nothing.

    Over other bytes: what is not written may be right by chance.
    """
    over = msgspec.structs.replace(_FILLED, graph=_PLAIN)
    once = Control(over, ("DET-04", _FAILS, *_arithmetic(_PLAIN)))
    return (control._replace(presumes=once) for control in found)


def _other_seeds(case: Any) -> tuple[int, ...]:
    """Seeds of the inputs that later invokes have, of the case or of a control."""
    later: Sequence[int] = ()
    if isinstance(case, DelegateCase):
        later = case.reseed
    elif isinstance(case, ScriptCase):
        later = [step.seed for step in flat(case.steps) if isinstance(step, SetInputs)][:_FEW]
    return tuple(dict.fromkeys((*_OTHERS, *filter(None, later))))


def _of_what_spoils(some: Sequence[Graph], plainest: Sequence[Graph], seed: int) -> Iterator[Owned]:
    """What no number tells: it is seen itself, and any result may be wrong after it, or any process end.

    Each kind of node is watched: of a case with many it may be the last one that writes an input.
    """
    seeds = (seed, *_OTHERS)
    for graph in (*plainest, _WITH_A_CONSTANT, *some):
        watched = msgspec.structs.replace(_WATCHED, reseed=seeds)
        yield Owned(graph, ("LIFE-10", "MEM-02", "MEM-01"), watched, spoils=True)
    # A kernel of all nodes has no other tensors to write to.
    watched = msgspec.structs.replace(_LINKED, watch=True, invokes=len(seeds), reseed=seeds)
    yield Owned(_PARTED, ("MEM-02", "MEM-01"), watched, spoils=True)


def _of_what_was_lent() -> Iterator[Owned]:
    """An array that Prepare was lent and that is used behind its end, where the runtime may have freed it.

    Plain runs mostly find there what was there before, and tell nothing.
    """
    yield Owned(_PLAIN, ("PART-20", "LIFE-07", "PART-21"), _LENT, spoils=True)


def _of_blocks(
    few: Sequence[Graph], some: Sequence[Graph], explains: tuple[type[Violation], ...]
) -> Iterator[Control]:
    """What is done with memory that is requested: where it is used beside, any call may give anything.

    Of few elements first: each case is carried out before it is checked, and the system's own heap, which has
    24 bytes for each block at least, is not overwritten then by what is written behind so small ones.
    """
    for graph in dict.fromkeys((*map(of_three_elements, few), *few, *some)):
        case = msgspec.structs.replace(_IN_ITS_HEAP, graph=graph)
        yield Control(case, ("MEM-15",), _CALLS, explains=explains, heap=True)


def _of_a_struct(case: PluginCase) -> Iterator[Control]:
    """What create returned, as the case has it made: who applies a delegate that is none may die of it."""
    made = next(step for step in case.steps if isinstance(step, Create))
    # Of doubtful options it may have returned none: the one that died has another past then.
    for create in (made, Create()):
        looked_at = PluginCase(_PLAIN, (create, Destroy(create.name)), case.delegate)
        yield Control(looked_at, ("ABI-09",), _CALLS, spoils=True)


def _of_many_kernels(graphs: Sequence[Graph]) -> Iterator[Owned]:
    """As many kernels as the case may have, where these are more than few: each second addition of a row."""
    count = max((len(graph.nodes) for graph in graphs), default=0)
    if count > _FEW_KERNELS:
        graph, others = many_kernels(min(count, _MOST_KERNELS))
        applications = (Application("probe", others), Application())
        yield Owned(graph, ("PART-22",), msgspec.structs.replace(_ONCE, applications=applications))


def _of_a_death(alone: Sequence[Graph], whole: Sequence[Graph]) -> Iterator[Owned]:
    for kind in kinds_of(alone):
        # The runtime's own kernels, which read an output of another shape, go beside its end.
        yield Owned(simplest(kind), ("PART-03",), spoils=True, shown=WrongShape)
        yield Owned(simplest(kind), _SURVIVES)
    for graph in (*alone, *whole):
        if max(math.prod(tensor.shape) for tensor in graph.tensors) < _LARGE_FROM:
            yield Owned(graph, _SURVIVES)
            continue
        if (small := with_small_tensors(graph)) is not None:
            yield Owned(small, _SURVIVES)
        elif len(graph.nodes) > 1:
            # It may be the number of nodes: as many of the simplest kind, all of them small.
            yield Owned(row_of_additions(len(graph.nodes)), _SURVIVES)
        yield Owned(graph, _LARGE)


def _of_longer_lives(few: Sequence[Graph]) -> Iterator[Owned]:
    """A lock that is kept blocks the second invoke, or the next interpreter."""
    for graph in dict.fromkeys(few):
        yield Owned(graph, _SURVIVES, _AGAIN)
        yield Owned(graph, _SURVIVES, _TWICE)


def _of_plain_operators(alone: Sequence[Graph]) -> Iterator[Owned]:
    """Nothing to claim; bytes that stay; each operator at its plainest, and two of them as one partition."""
    for applications in ((Application("probe"), Application()), (Application(claim=()),)):
        yield Owned(_PLAIN, ("PART-16",), DelegateCase(_NOTHING, applications))
    plainest = list(map(_plainest, kinds_of(alone)))
    # Bytes that stay as they were before two invokes are no number, and no number hides them.
    for graph in (*alone[:_FEW], *plainest):
        yield Owned(graph, ("DET-04",), _FILLED)
    for graph in plainest:
        numbers = _arithmetic(graph)
        # Who computes into another shape is asked for no number.
        yield from _in_turn(graph, ((_FAILS, *numbers), ("PART-03",)), _OTHERS)
        if "NUM-04" in numbers:
            yield Owned(graph, ("NUM-04",), _AT_THE_ENDS)
    # Sums of sums leave the range of int8, which is NUM-04's matter.
    yield from _of_pairs([each for each in plainest if each.tensors[0].dtype == "float32"][:_FEW])


def _plainest(kind: Combination) -> Graph:
    rank = 4 if kind.op == "CONV_2D" else 2
    return simplest(Combination(kind.op, kind.dtype, rank, quantisation=plain_scale(kind)))


def _of_pairs(plainest: Sequence[Graph]) -> Iterator[Owned]:
    for graph in plainest:
        # Who writes the last output alone has written the inner result here.
        for pair, owners in ((chained(graph, inner_last=True), ("PART-11",)), (chained(graph), _PARTITIONS)):
            if pair is not None:
                yield Owned(pair, owners, _OVER)


def _of_an_output(alone: Sequence[Graph], whole: Sequence[Graph], others: Sequence[int]) -> Iterator[Owned]:
    """Each adds one thing to what is plainest, and the rule about that thing owns what it breaks.

    ``others`` are seeds of further inputs.
    """
    # This one compares a run with itself, so that a number that is wrong each time is none of its. What a
    # kernel of several nodes does not write is a partition's (PART-11).
    for graph in whole or alone[:_FEW]:
        yield Owned(graph, ("DET-01",), _AGAIN)
    for kind in kinds_of(alone):
        yield from _of_a_kind(kind)
    for at, graph in enumerate(alone):
        yield from _of_a_node(graph, others if at < _FEW else ())
    for graph in whole:
        plainest = without_zero_points(without_activation(graph))
        numbers = tuple(owner for owner in _owners(plainest) if owner not in _PARTITIONS)
        # What goes wrong inside need not be so in what comes of it.
        yield from _with_inputs(Owned(with_all_outputs(plainest), numbers), others)
        yield from _of_a_whole(graph, others)
        # Memory that nobody wrote may hold the right values by chance, of a run before.
        yield Owned(graph, _PARTITIONS, _FILLED)


def _of_a_kind(kind: Combination) -> Iterator[Owned]:
    """Its form; a zero point or scales of channels; at the plainest rank first, where little is of size 1."""
    plainest = max(2, min(ranks_of(kind.op, kind.form)))
    for rank in dict.fromkeys((plainest, kind.rank)):
        formed = Combination(kind.op, kind.dtype, rank, "NONE", plain_scale(kind), form=kind.form)
        yield Owned(simplest(formed), (_FAILS, "PART-03"))
    bare = Combination(kind.op, kind.dtype, plainest, quantisation=plain_scale(kind))
    parameters = (("quantisation", kind.quantisation), ("zero_points", kind.zero_points))
    for name, value in parameters:
        one = msgspec.structs.replace(bare, **{name: value})
        if one != bare:
            yield Owned(simplest(one), ("NUM-05",))


def _with_inputs(one: Owned, others: Sequence[int]) -> Iterator[Owned]:
    """With those of other seeds too: an end of the range, or an activation, shows with some inputs only."""
    yield one
    for other in others:
        yield one._replace(repeats=msgspec.structs.replace(_ONCE, data_seed=other))


def _of_a_plain_life() -> Iterator[Owned]:
    yield from _of_a_life((_PLAIN,), 0)
    yield Owned(_PARTED, ("DET-02",), msgspec.structs.replace(_LINKED, invokes=3, reseed=(1, 2, 1)))


def _of_a_life(some: Sequence[Graph], seed: int) -> Iterator[Owned]:
    """What shows only when a graph that is right once is prepared otherwise, or lives longer."""
    for graph in some:
        yield Owned(graph, ("PART-20", "LIFE-07"), _LENT)
        yield Owned(graph, ("LIFE-09",), _LATE)
    for graph in some:
        yield Owned(graph, ("DET-02",), _WITH_OTHERS)
        yield Owned(graph, ("DET-02",), msgspec.structs.replace(_WITH_OTHERS, reseed=(1, seed, 1)))
        yield Owned(graph, ("LIFE-02",), _RESIZED)
        yield Owned(graph, ("LIFE-02",), _BEFORE_ANOTHER)


def _of_a_history(case: Any, some: Sequence[Graph]) -> Iterator[Owned]:
    """The graphs behind the history of the case: what that leaves in results is the affair of one rule."""
    if isinstance(case, DelegateCase) and case.history is not None:
        for graph in some:
            yield Owned(graph, ("DET-02",), msgspec.structs.replace(_WITH_OTHERS, history=case.history))


def _of_a_node(graph: Graph, others: Sequence[int]) -> Iterator[Owned]:
    """A node by itself: without activation and zero points, with one of them, as it is."""
    barest = without_zero_points(without_activation(graph))
    common = (_FAILS, *_arithmetic(graph), *_claimed(graph))
    if has_two_shapes(graph):
        # Of the ways to broadcast PART-03 is asked about the plainest, in `_of_a_kind`.
        yield from _with_inputs(Owned(barest, (_FAILS, *_arithmetic(graph))), others)
    yield from _with_inputs(Owned(barest, common), others)
    if graph == barest:
        return
    # Of one scale int8 may end before an activation does.
    active, bare = with_wide_results(without_zero_points(graph)), without_activation(graph)
    ends = (("NUM-04",),) if "NUM-04" in common else ()
    for owner, one in (("NUM-06", active), ("NUM-05", bare), ("NUM-06", graph)):
        if one != barest:
            yield from _in_turn(one, ((owner,), *ends, common), others)


def _numbers_of(graphs: Sequence[Graph]) -> Iterator[Owned]:
    for graph in graphs:
        yield Owned(graph, ("DET-04",), _FILLED)
        for one in _of_a_node(graph, _OTHERS):
            yield one._replace(owners=tuple(owner for owner in one.owners if owner != _FAILS))


def _of_a_whole(graph: Graph, others: Sequence[int]) -> Iterator[Owned]:
    """A graph whose nodes are right alone: what an activation or a scale does to it one rule owns."""
    barest = without_zero_points(without_activation(graph))
    yield from _with_inputs(Owned(barest, _owners(barest)), others)
    bare = without_activation(graph)
    for owner, one in (("NUM-06", without_zero_points(graph)), ("NUM-05", bare), ("NUM-06", graph)):
        if one != barest:
            yield from _in_turn(one, ((owner,), _owners(one)), others)


def _in_turn(graph: Graph, owners: Sequence[tuple[str, ...]], others: Sequence[int]) -> Iterator[Owned]:
    """One run, judged by these owners and, where they find nothing, by the next."""
    for one in _with_inputs(Owned(graph, ()), others):
        yield from (one._replace(owners=each) for each in owners)


def around(facts: DelegateFacts, case: Any) -> DelegateFacts:
    """The facts as if the target left nodes of the control's kind to the CPU.

    Once nodes of one operator and type were left out at one rank, all of them are: an operator that is
    wrong at two ranks is most often wrong at all.
    """
    if not isinstance(case, DelegateCase) or len(case.graph.nodes) != 1:
        return facts
    kind = combination_of(case.graph, case.graph.nodes[0])
    if kind is None:
        return facts
    known = facts.claims or tuple(Claim(each, "claimed") for each in GRID)
    alike = [claim for claim in known if (claim.kind.op, claim.kind.dtype) == (kind.op, kind.dtype)]
    one_rank = [claim for claim in alike if claim.kind.rank == kind.rank]
    first = all(claim.outcome != "refused" for claim in alike)
    avoided = {id(claim) for claim in (one_rank if first else alike)}
    claims = tuple(Claim(claim.kind, "refused") if id(claim) in avoided else claim for claim in known)
    return facts if claims == known else msgspec.structs.replace(facts, claims=claims)


def _used(case: Any) -> tuple[tuple[Graph, ...], int, Fill]:
    """The case's graphs, what they amount to and their subgraphs, and the contents of their inputs."""
    if isinstance(case, ScriptCase):
        return (*forms(case, "mixed"), *parts(case.graphs)), 0, "mixed"
    graphs = tuple(parts((case.graph,)))
    if isinstance(case, PluginCase):
        return graphs, case.data_seed, "mixed"
    # NaN and infinity are what ERR-04 and NUM-07 are about, the ends of a range NUM-04: not for plain runs.
    return graphs, case.data_seed, case.fill if case.fill == "ramp" else "mixed"


def _arithmetic(graph: Graph) -> tuple[str, ...]:
    """Owners of wrong numbers of one node, whatever its form is."""
    node = graph.nodes[0]
    if graph.tensors[node.outputs[0]].dtype == "int8":
        return ("NUM-03", "NUM-04")
    return ("NUM-02", "NUM-08") if node.op in SUMS else ("NUM-10", "NUM-01", "NUM-07")


def _claimed(graph: Graph) -> tuple[str, ...]:
    """Owners of wrong numbers of a node whose operator is right at its plainest."""
    return ("PART-03", "NUM-09", *(("NUM-07",) if _arithmetic(graph)[0] == "NUM-02" else ()))


def _owners(graph: Graph) -> tuple[str, ...]:
    """The rules that own what is wrong with a graph whose operators are right at their plainest.

    The most particular first: what an activation, a scale, an end of the range or a partition does.
    """
    written = {graph.tensors[tensor].dtype for node in graph.nodes for tensor in node.outputs}
    sums = any(node.op in SUMS for node in graph.nodes)
    owners = (
        (_FAILS, True),
        ("NUM-06", any(node.activation != "NONE" for node in graph.nodes)),
        ("NUM-05", any(len(set(each.scales)) > 1 or any(each.zero_points) for each in graph.tensors)),
        ("NUM-04", "int8" in written),
        *((owner, True) for owner in _PARTITIONS),
        ("NUM-03", "int8" in written),
        ("NUM-02", "float32" in written and sums),
        ("NUM-10", "float32" in written),
        ("NUM-08", "float32" in written and sums),
        ("PART-03", True),
        ("NUM-01", "float32" in written),
        ("NUM-07", "float32" in written),
        ("NUM-09", True),
    )
    return tuple(rule for rule, concerned in owners if concerned)

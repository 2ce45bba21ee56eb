"""Smaller delegate, script and plugin cases: fewer nodes, applications, steps, plainer numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.edits import fewer
from pytest_qnn.tflite.cases.edits import renumbered as renumbered_edits
from pytest_qnn.tflite.cases.effects import all_named, effect_of, named
from pytest_qnn.tflite.cases.history import smaller_history
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Measure,
    Open,
    Parallel,
    RemoveAll,
    Repeat,
    Resize,
    ScriptCase,
    SetInputs,
    flat,
)
from pytest_qnn.tflite.cases.shapes import shorter
from pytest_qnn.tflite.graph.graph import Graph, Node

CaseT = TypeVar("CaseT", DelegateCase, ScriptCase, PluginCase)


def smaller_delegate(case: DelegateCase) -> Iterator[DelegateCase]:
    """Less before the case; then fewer nodes, then fewer applications, then plainer otherwise."""
    yield from _less_history(case)
    for kept in kept_nodes(len(case.graph.nodes) if is_plain(case.graph) else 0):
        for join in (True, False):
            graph = restricted(case.graph, frozenset(kept), join=join)
            yield msgspec.structs.replace(case, graph=graph, applications=_renumbered(case, kept))
    for graph in shorter(case.graph):
        yield replace(case, graph=graph)
    yield from _fewer_applications(case)
    yield from _fewer_claims(case)
    yield from _fewer_outputs(case)
    yield from _plainer(case)


def _less_history(case: CaseT) -> Iterator[CaseT]:
    for history in smaller_history(case.history) if case.history is not None else ():
        yield replace(case, history=history)


def with_more_outputs(case: DelegateCase) -> Iterator[DelegateCase]:
    """The graph cut where numbers may have gone wrong: results inside it become outputs of the graph.

    First all of them at once, which a delegate that fuses nodes may answer in another way; then each one
    beside the outputs there are, in the order of the nodes.
    """
    written = [tensor for node in case.graph.nodes for tensor in node.outputs]
    inside = [tensor for tensor in written if tensor not in case.graph.outputs]
    if not inside or not is_plain(case.graph):
        return
    for more in (inside, *([tensor] for tensor in inside if len(inside) > 1)):
        chosen = {*case.graph.outputs, *more}
        _protect_reshaped(list(case.graph.nodes), chosen)
        graph = msgspec.structs.replace(case.graph, outputs=tuple(sorted(chosen)))
        yield msgspec.structs.replace(case, graph=graph)


def is_plain(graph: Graph) -> bool:
    """Nodes can be taken from the graph: each has one result, and no shape or way depends on data."""
    return (
        not graph.subgraphs
        and graph.control_edges is None
        and all(len(node.outputs) == 1 and node.inputs for node in graph.nodes)
        and all(t.dtype in ("float32", "int8") or t.data is not None for t in graph.tensors)
    )


_FEW_NODES = 16
"""So many are first tried one by one; of more, halves lead to the few in fewer runs."""


def kept_nodes(count: int) -> Iterator[list[int]]:
    """One node alone; all but chunks of halves, quarters, ...; all but each one. Of many, one alone last."""
    alone = [[node] for node in range(count)] if count > 2 else []
    if count <= _FEW_NODES:
        yield from alone
    size = count // 2
    while size:
        for end in range(count, 0, -size):
            gone = range(max(0, end - size), end)
            yield [node for node in range(count) if node not in gone]
        size //= 2
    if count > _FEW_NODES:
        yield from alone


def _renumbered(case: DelegateCase, kept: list[int]) -> tuple[Application, ...]:
    numbers = {old: new for new, old in enumerate(kept)}
    return tuple(
        application
        if application.claim is None
        else _claiming(application, tuple(numbers[node] for node in application.claim if node in numbers))
        for application in case.applications
    )


def _claiming(application: Application, claim: tuple[int, ...]) -> Application:
    return msgspec.structs.replace(application, claim=claim)


def restricted(graph: Graph, kept: Set[int], *, join: bool) -> Graph:
    """The graph of the nodes ``kept``, at least one.

    Args:
        graph: the whole.
        kept: node indices.
        join: readers of a node that goes read its first operand of the same shape, type and quantisation
            instead. Without one, and with ``join=False``, its result becomes an input of the graph.
    """
    instead: dict[int, int] = {}
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        inputs = tuple(instead.get(tensor, tensor) for tensor in node.inputs)
        if index in kept:
            nodes.append(msgspec.structs.replace(node, inputs=inputs))
        elif join and (operand := _same(graph, inputs, node.outputs[0])) is not None:
            instead[node.outputs[0]] = operand
    outputs = {instead.get(tensor, tensor) for tensor in graph.outputs}
    return _tidy(graph, nodes, outputs)


def _same(graph: Graph, operands: tuple[int, ...], result: int) -> int | None:
    """The first operand that is as its node's result is."""
    like = graph.tensors[result]
    return next((tensor for tensor in operands if tensor >= 0 and graph.tensors[tensor] == like), None)


def _tidy(graph: Graph, nodes: list[Node], outputs: set[int]) -> Graph:
    """Only the tensors that nodes name, renumbered; inputs and outputs as the nodes demand."""
    read = {tensor for node in nodes for tensor in node.inputs if tensor >= 0}
    written = {tensor for node in nodes for tensor in node.outputs}
    used = sorted(read | written)
    number = {old: new for new, old in enumerate(used)} | {-1: -1}
    inputs = [t for t in used if t not in written and graph.tensors[t].data is None]
    chosen = {t for t in outputs if t in written or t in inputs} | (written - read)
    _protect_reshaped(nodes, chosen)
    return Graph(
        tensors=tuple(graph.tensors[old] for old in used),
        nodes=tuple(
            msgspec.structs.replace(
                node,
                inputs=tuple(number[tensor] for tensor in node.inputs),
                outputs=tuple(number[tensor] for tensor in node.outputs),
            )
            for node in nodes
        ),
        inputs=tuple(number[tensor] for tensor in inputs),
        outputs=tuple(number[tensor] for tensor in used if tensor in chosen),
    )


def _protect_reshaped(nodes: list[Node], chosen: set[int]) -> None:
    """Add the results of RESHAPE whose operand is needed elsewhere, for the reason that `Builder` gives."""
    readers = Counter(tensor for node in nodes for tensor in node.inputs)
    for node in nodes:
        if node.op == "RESHAPE" and (readers[node.inputs[0]] > 1 or node.inputs[0] in chosen):
            chosen.add(node.outputs[0])


def _fewer_applications(case: DelegateCase) -> Iterator[DelegateCase]:
    """Each application left out, but for the last one of the target."""
    for index in reversed(range(len(case.applications))):
        left = (*case.applications[:index], *case.applications[index + 1 :])
        if any(application.who == "target" for application in left):
            yield msgspec.structs.replace(case, applications=left)


def _fewer_claims(case: DelegateCase) -> Iterator[DelegateCase]:
    """Each claimed node left out of its claim."""
    for index, application in enumerate(case.applications):
        for node in reversed(application.claim or ()):
            shorter = tuple(other for other in application.claim or () if other != node)
            left = (
                *case.applications[:index],
                _claiming(application, shorter),
                *case.applications[index + 1 :],
            )
            yield msgspec.structs.replace(case, applications=left)


def _fewer_outputs(case: DelegateCase) -> Iterator[DelegateCase]:
    """Each output left out that need not be one."""
    for output in reversed(case.graph.outputs) if is_plain(case.graph) else ():
        left = set(case.graph.outputs) - {output}
        graph = _tidy(case.graph, list(case.graph.nodes), left)
        if len(graph.outputs) < len(case.graph.outputs):
            yield msgspec.structs.replace(case, graph=graph)


def _plainer(case: DelegateCase) -> Iterator[DelegateCase]:
    """Fewer invokes, nothing recorded or overwritten, the simplest contents, no fused activation."""
    for invokes in sorted(n for n in {1, case.invokes - 1} if 0 < n < case.invokes):
        first = {"poison": case.poison[:invokes], "reseed": case.reseed[:invokes]}
        yield msgspec.structs.replace(case, invokes=invokes, **first)
    simple: tuple[dict[str, object], ...] = (
        {"watch": False},
        {"poison": ()},
        {"reseed": ()},
        {"again": ""},
        {"late": False},
        {"redo": 0},
        {"look": ()},
        {"data_seed": 0},
    )
    for change in simple:
        plain = msgspec.structs.replace(case, **change)
        if plain != case:
            yield plain
    for index, node in enumerate(case.graph.nodes):
        if node.activation != "NONE":
            bare = msgspec.structs.replace(node, activation="NONE")
            nodes = (*case.graph.nodes[:index], bare, *case.graph.nodes[index + 1 :])
            yield msgspec.structs.replace(case, graph=msgspec.structs.replace(case.graph, nodes=nodes))


Steps = tuple[AnyScriptStep, ...]
_PLAIN: dict[str, Any] = {"seed": 0, "fill": "mixed", "extra": 0, "threads": 1, "readonly": False}


def smaller_script(case: ScriptCase) -> Iterator[ScriptCase]:
    """Less before the case, then fewer steps, fewer nodes, plainer in everything else; boldest first.

    No allocation goes that a later step needs, and no inputs that an invoke after RemoveAllDelegates needs:
    what then goes wrong would be the client's mistake, on any delegate.
    """
    unready = _unready(case)
    for smaller in _smaller_script(case):
        if _unready(smaller) <= unready:
            yield smaller


def _unready(case: ScriptCase) -> set[str]:
    """Interpreters that work before they were allocated, or with inputs that a removal has taken away.

    In the order in which the steps are written. A resize takes the allocation away; RemoveAllDelegates plans
    the memory of tensors anew.
    """
    allocated: set[str] = set()
    emptied: set[str] = set()
    found: set[str] = set()
    for step in flat(case.steps):
        if isinstance(step, Open):
            allocated.discard(step.interpreter)
            emptied.discard(step.interpreter)
        elif isinstance(step, Resize):
            allocated.discard(step.interpreter)
        elif isinstance(step, RemoveAll):
            emptied.add(step.interpreter)
        elif isinstance(step, Allocate):
            allocated.add(step.interpreter)
        elif isinstance(step, SetInputs | Invoke):
            if isinstance(step, SetInputs):
                emptied.discard(step.interpreter)
            if step.interpreter not in allocated or step.interpreter in emptied:
                found.add(step.interpreter)
    return found


def _smaller_script(case: ScriptCase) -> Iterator[ScriptCase]:
    yield from _less_history(case)
    yield from _shorter_measurements(case)
    for steps in _fewer(case.steps):
        yield msgspec.structs.replace(case, steps=steps)
    for steps in _flatter(case.steps):
        yield msgspec.structs.replace(case, steps=steps)
    yield from _fewer_graphs(case)
    yield from _smaller_graphs(case)
    yield from _plainer_script(case)


def _shorter_measurements(case: ScriptCase) -> Iterator[ScriptCase]:
    """All longest repetitions half as long: a rule that measures compares them with each other."""
    longest = max((step.times for step in case.steps if isinstance(step, Repeat)), default=0)
    if longest > 1 and any(isinstance(step, Measure) for step in case.steps):
        yield msgspec.structs.replace(
            case,
            steps=tuple(
                msgspec.structs.replace(step, times=longest // 2)
                if isinstance(step, Repeat) and step.times == longest
                else step
                for step in case.steps
            ),
        )


def _fewer(steps: Steps) -> Iterator[Steps]:
    """Chunks of halves, quarters, ... left out, with what stands on the objects that they make."""
    size = max(1, len(steps) // 2)
    while size:
        for end in range(len(steps), 0, -size):
            left = _without(steps, range(max(0, end - size), end))
            if left:
                yield left
        size //= 2


def _without(steps: Steps, gone: range) -> Steps:
    """The steps but for a few; what they make is not used by others either."""
    names = {named(steps[index], thing) for index in gone for thing in effect_of(steps[index]).makes}
    return tuple(
        step for index, step in enumerate(steps) if index not in gone and names.isdisjoint(all_named(step))
    )


def _flatter(steps: Steps) -> Iterator[Steps]:
    """Fewer rounds, branches and steps inside; or the steps inside in the place of what holds them."""
    for index, step in enumerate(steps):
        inside: list[Steps] = []
        if isinstance(step, Repeat):
            inside = [step.steps, *((fewer,) for fewer in _fewer_rounds(step))]
        elif isinstance(step, Parallel):
            inside = [*step.branches, *((fewer,) for fewer in _fewer_branches(step))]
        for instead in inside:
            yield (*steps[:index], *instead, *steps[index + 1 :])


def _fewer_rounds(step: Repeat) -> Iterator[Repeat]:
    for times in sorted({2, step.times // 2} - {0, step.times}):
        if times < step.times:
            yield msgspec.structs.replace(step, times=times)
    for inner in _fewer(step.steps):
        yield msgspec.structs.replace(step, steps=inner)


def _fewer_branches(step: Parallel) -> Iterator[Parallel]:
    branches = step.branches
    for index in reversed(range(len(branches))):
        if len(branches) > 1:
            yield Parallel((*branches[:index], *branches[index + 1 :]))
        for inner in (*_fewer(branches[index]), *_flatter(branches[index])):
            changed: Any = (*branches[:index], inner, *branches[index + 1 :])
            yield Parallel(changed)


def _fewer_graphs(case: ScriptCase) -> Iterator[ScriptCase]:
    """Without the graphs behind the last one that a step names."""
    named_last = max((getattr(step, "graph", 0) for step in flat(case.steps)), default=0)
    if named_last + 1 < len(case.graphs):
        yield msgspec.structs.replace(case, graphs=case.graphs[: named_last + 1])


def _smaller_graphs(case: ScriptCase) -> Iterator[ScriptCase]:
    """Each graph with fewer nodes; what steps say of its tensors and nodes is renumbered."""
    resizes = any(isinstance(step, Resize) for step in flat(case.steps))
    for number, graph in enumerate(case.graphs):
        # Tensors of their own: so it can be told which of them are left.
        whole = msgspec.structs.replace(graph, tensors=tuple(map(msgspec.structs.replace, graph.tensors)))
        for kept in kept_nodes(len(graph.nodes) if is_plain(graph) else 0):
            for join in (True, False):
                left = restricted(whole, frozenset(kept), join=join)
                renumbered = _Renumbered(case, number, whole, left, kept)
                if resizes and len(renumbered.inputs) < len(left.inputs):
                    continue  # a new input, which no step resizes with the others: shapes would not match
                steps = renumbered.all(case.steps)
                graphs = (*case.graphs[:number], left, *case.graphs[number + 1 :])
                edits = case.edits
                if edits and not number:
                    edits = renumbered_edits(edits, renumbered.tensors, renumbered.nodes)
                yield msgspec.structs.replace(case, graphs=graphs, steps=steps, edits=edits)


class _Renumbered:
    """Steps for a graph of which tensors and nodes are left."""

    def __init__(self, case: ScriptCase, number: int, whole: Graph, left: Graph, kept: list[int]) -> None:
        new = {id(tensor): index for index, tensor in enumerate(left.tensors)}
        self.tensors = {old: new[id(tensor)] for old, tensor in enumerate(whole.tensors) if id(tensor) in new}
        self.nodes = {old: index for index, old in enumerate(kept)}
        self.inputs = {
            old: left.inputs.index(self.tensors[tensor])
            for old, tensor in enumerate(whole.inputs)
            if self.tensors.get(tensor) in left.inputs
        }
        everything = flat(case.steps)
        self.interpreters = {
            step.interpreter for step in everything if isinstance(step, Open) and step.graph == number
        }
        others = {step.interpreter for step in everything if isinstance(step, Open)} - self.interpreters
        self.foreign = {
            step.delegate for step in everything if isinstance(step, Apply) and step.interpreter in others
        }
        """Delegates whose claims are of other graphs too."""

    def all(self, steps: Steps) -> Any:
        """The steps as they are for the graph that is left."""
        return tuple(new for step in steps if (new := self._one(step)) is not None)

    def _one(self, step: Any) -> Any:
        """One step; None for one that has nothing to work on any more."""
        if isinstance(step, Repeat):
            return msgspec.structs.replace(step, steps=self.all(step.steps))
        if isinstance(step, Parallel):
            return msgspec.structs.replace(step, branches=tuple(map(self.all, step.branches)))
        if isinstance(step, MakeDelegate) and step.claim is not None and step.delegate not in self.foreign:
            claim = tuple(self.nodes[node] for node in step.claim if node in self.nodes)
            return msgspec.structs.replace(step, claim=claim)
        return self._about_tensors(step) if named(step, "interpreter") in self.interpreters else step

    def _about_tensors(self, step: Any) -> Any:
        change: dict[str, Any] = {}
        parts = effect_of(step).parts
        if "tensor" in parts:
            change = {"tensor": self.tensors.get(step.tensor)}
        elif "input" in parts:
            change = {"input": self.inputs.get(step.input)}
        elif "tensors" in parts and step.tensors:
            left = tuple(self.tensors[tensor] for tensor in step.tensors if tensor in self.tensors)
            change = {"tensors": left or None}
        return None if None in change.values() else msgspec.structs.replace(step, **change)


def _plainer_script(case: ScriptCase) -> Iterator[ScriptCase]:
    """Fewer edits, no stray writes recorded; the simplest numbers, one step at a time."""
    for index in reversed(range(len(case.edits))):
        before, after = case.edits[:index], case.edits[index + 1 :]
        for instead in (*((edit,) for edit in fewer(case.edits[index])), ()):
            yield msgspec.structs.replace(case, edits=(*before, *instead, *after))
    if case.watch:
        yield msgspec.structs.replace(case, watch=False)
    for index, step in enumerate(case.steps):
        for field, value in _PLAIN.items():
            if getattr(step, field, value) != value:
                plain: Any = msgspec.structs.replace(step, **{field: value})
                steps = (*case.steps[:index], plain, *case.steps[index + 1 :])
                yield msgspec.structs.replace(case, steps=steps)


def smaller_plugin(case: PluginCase) -> Iterator[PluginCase]:
    """Less before the case, then fewer steps, then a smaller graph; the boldest first.

    A step whose delegate has gone is skipped when it is run, so that every choice of steps is a case.
    """
    yield from _less_history(case)
    size = len(case.steps) // 2
    while size:
        for end in range(len(case.steps), size - 1, -size):
            yield replace(case, steps=(*case.steps[: end - size], *case.steps[end:]))
        size //= 2
    for smaller in smaller_delegate(DelegateCase(case.graph, data_seed=case.data_seed)):
        if smaller.graph != case.graph or smaller.data_seed != case.data_seed:
            yield replace(case, graph=smaller.graph, data_seed=smaller.data_seed)

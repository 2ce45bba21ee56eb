"""HOS: models that a client should never have sent, and that a delegate survives.

The file says something else than its operators allow. The runtime's own kernels refuse most of that when they
prepare; a delegate that allows dynamic tensors is shown the graph before they do, and takes their place. What
ends the process without any delegate too is the runtime's own affair, and is not drawn as far as it is known
(docs/reference/runtimes.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from pytest_qnn.core.drawing import decoded, listed
from pytest_qnn.core.rule import rule
from pytest_qnn.core.verdict import Examined, FailedCall, Level, Unsupported, Violation, WrongOutput
from pytest_qnn.tflite.cases.edits import (
    AnyEdit,
    Copies,
    CustomOperator,
    NoNodes,
    StatedEdges,
    StatedOperands,
    StatedShape,
    edited,
)
from pytest_qnn.tflite.cases.effects import named
from pytest_qnn.tflite.cases.script import (
    Allocate,
    AnyScriptStep,
    Apply,
    Invoke,
    MakeDelegate,
    Open,
    Place,
    Read,
    ScriptCase,
    SetInputs,
)
from pytest_qnn.tflite.checks import judging, scripts
from pytest_qnn.tflite.checks.numbers import arithmetic, gravely_wrong
from pytest_qnn.tflite.facts import DelegateFacts
from pytest_qnn.tflite.graph.graph import DType, Graph, Op
from pytest_qnn.tflite.graph.kinds import Kind, copied, decode_graph, size_of
from pytest_qnn.tflite.strategies.claimed import claimed_kinds, taken
from pytest_qnn.tflite.strategies.delegates import plain_case
from pytest_qnn.tflite.trace import ScriptSeen, ScriptTrace

Strategy = SearchStrategy[ScriptCase]
Steps = tuple[AnyScriptStep, ...]
Edits = tuple[AnyEdit, ...]

_STATUS = (
    "tflite/core/c/common.h: Prepare, and prepare and invoke of a registration, return a TfLiteStatus; "
    "c_api_types.h, kTfLiteError and kTfLiteDelegateError"
)
_EXTRA = 5
"""Bytes before the graph's: what is edited (3), the delegate of a chain, the seed of the inputs."""
_NODES = 2
"""Of a graph at most."""


Write = Callable[[Graph, Edits, int, int], Steps]
"""(graph, edits, delegate of a chain, seed of the inputs) -> steps."""


def _cases(
    facts: DelegateFacts,
    edit: Callable[[Graph, bytes], Edits],
    write: Write,
    *,
    nodes: int = 1,
    joining: bool = False,
) -> Strategy:
    """Small graphs of nodes that the target claims, with the edits that ``edit`` makes of three bytes.

    ``nodes``: at least; ``joining``: four of five graphs are of `_JOINING`, a quarter of these of its first.
    """
    more = (*_of(facts, _JOINING) * 3, *_of(facts, _JOINING[:1])) if joining else ()
    kinds = (*claimed_kinds(facts), *more)

    def decode(data: bytes) -> ScriptCase:
        graph = _with_own_operands(plain_case(decode_graph(data[_EXTRA:], kinds, 0, nodes, _NODES)[0]))
        position = data[3] % max(1, len(facts.delegates))
        edits = edit(graph, data[:3])
        return ScriptCase((graph, graph), write(graph, edits, position, data[4]), edits=edits)

    return decoded(_EXTRA + size_of(_NODES, 0), decode)


_JOINING: tuple[Op, ...] = ("CONCATENATION", "FULLY_CONNECTED", "CONV_2D")
"""Operators whose operands are of different shapes, and must match all the same."""


def _of(facts: DelegateFacts, ops: Sequence[Op]) -> tuple[Kind, ...]:
    """Graphs of these operators; none for a target that claims no such node."""
    claimed = {(kind.op, kind.dtype) for kind in taken(facts)}
    dtypes: list[DType] = [
        dtype for dtype in ("float32", "int8") if any((op, dtype) in claimed for op in ops)
    ]
    return claimed_kinds(facts, ops=ops, dtypes=dtypes) if dtypes else ()


def _with_own_operands(graph: Graph) -> Graph:
    """The graph with an input, or a constant, of its own for each operand that a CONCATENATION reads again.

    One that is joined with itself matches itself whatever its shape is.
    """
    tensors, nodes, inputs = list(graph.tensors), [], list(graph.inputs)
    for node in graph.nodes:
        operands = list(node.inputs)
        for place, index in enumerate(node.inputs if node.op == "CONCATENATION" else ()):
            if index in operands[:place]:
                operands[place] = len(tensors)
                inputs += [len(tensors)] if tensors[index].data is None else []
                tensors.append(replace(tensors[index], signature=()))
        nodes.append(replace(node, inputs=tuple(operands)))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes), inputs=tuple(inputs))


def _guarded(graph: Graph, _: Edits, position: int, seed: int) -> Steps:
    """The model is used as any other is; then the graph without edits by a delegate of its own.

    Inputs and constants lie against pages that must not be touched. So do outputs, as large as the delegate
    has made them when all is allocated.
    """
    constants = (index for index, tensor in enumerate(graph.tensors) if tensor.data is not None)
    before: Steps = tuple(Place("i0", tensor) for tensor in (*graph.inputs, *constants))
    made = {tensor for node in graph.nodes for tensor in node.outputs}
    after: Steps = tuple(Place("i0", tensor) for tensor in graph.outputs if tensor in made)
    return (
        *(MakeDelegate("d0", position=position), Open("i0"), *before, Apply("i0", "d0"), Allocate("i0")),
        *(*after, SetInputs("i0", seed), Invoke("i0"), Read("i0")),
        *_next(position, seed),
    )


def _next(position: int, seed: int) -> Steps:
    """The graph without edits, on an interpreter and with a delegate of its own."""
    made = (MakeDelegate("d1", position=position), Open("i1", 1), Apply("i1", "d1"), Allocate("i1"))
    return (*made, SetInputs("i1", seed), Invoke("i1"), Read("i1"))


def _judge(case: ScriptCase, trace: ScriptTrace, what: str) -> Examined:
    """A model that is refused is refused with an error; one that is computed gives what the CPU gives.

    Where the CPU alone refuses the model there are no results to compare with. No byte beside a tensor is
    touched in any case, and the next interpreter works.
    """
    _need_trace(trace)
    for touch, kernel in scripts.by_target(trace, "outside"):
        wanted = "no byte touched but those of the tensors' data"
        scripts.accuse(case, trace, touch, kernel, wanted, WrongOutput)  # MEM-03's in any other case
    for number, step, seen in scripts.numbered(case, trace):
        if isinstance(step, Read) and seen.ok and seen.cpu:
            _judge_values(case, trace, number, step.interpreter, seen)
    return Examined(_next_works(case, trace), what)


def _next_works(case: ScriptCase, trace: ScriptTrace) -> int:
    """How many models the target was shown. Raises FailedCall where the next interpreter does not work."""
    for number, step, seen in scripts.numbered(case, trace):
        if named(step, "interpreter") == "i1" and not seen.ok and not seen.skipped:
            why = f"{type(step).__name__} failed: {judging.line(seen.message)}"
            expected = "the next interpreter to work, of the same graph without edits"
            raise FailedCall(expected, why, f"interpreter i1, step {number}")
    return sum(isinstance(step, Apply) and step.delegate == "d0" for step in case.steps)


def _need_trace(trace: ScriptTrace) -> None:
    """Raises Unsupported where the runtime alone dies of the model, or nothing can be seen."""
    if trace.died_alone:
        raise Unsupported("the process dies of the model without any delegate", final=False)
    if trace.order_lost:
        raise Unsupported("the runtime loses the order of nodes after several calls of Replace (RT-05)")
    scripts.need_trace(trace)


def _judge_values(case: ScriptCase, trace: ScriptTrace, number: int, name: str, seen: ScriptSeen) -> None:
    """Raises WrongOutput where a result is not the CPU's.

    Of a model with other inputs or constants than the graph's there is no bound: shapes are compared.
    """
    graph = case.graphs[name == "i1"]
    where = f"interpreter {name}, step {number}"
    expected = "the CPU's values" if name == "i0" else "the CPU's values of the graph without edits"
    for one, other in zip(seen.outputs, seen.cpu, strict=True):
        if one.numpy().shape != other.numpy().shape:
            told = f"shape {list(one.numpy().shape)} instead of {list(other.numpy().shape)}"
            raise WrongOutput(expected, told, where)
    if name == "i1" or _leave_numbers(graph, case.edits):
        others = [edit for edit in case.edits if isinstance(edit, Copies | NoNodes)]
        graph = edited(graph, others) if name == "i0" else graph
        inputs = _inputs_before(case, trace, name)
        wrong = gravely_wrong(graph, inputs, seen.outputs, seen.cpu, arithmetic(trace.facts))
        if wrong:
            raise WrongOutput(expected, wrong, where)


def _leave_numbers(graph: Graph, edits: Sequence[AnyEdit]) -> bool:
    """What is computed is the graph's, or that of its copies or of no node."""
    written = {tensor for node in graph.nodes for tensor in node.outputs}
    return all(
        edit.tensor in written
        if isinstance(edit, StatedShape)
        else isinstance(edit, Copies | StatedEdges | NoNodes)
        for edit in edits
    )


def _inputs_before(case: ScriptCase, trace: ScriptTrace, name: str) -> list[npt.NDArray[Any]]:
    for _, step, seen in scripts.numbered(case, trace):
        if isinstance(step, SetInputs) and step.interpreter == name and seen.ok:
            return [array.numpy() for array in seen.outputs]
    return []


Shape = tuple[int, ...]


_TIMES = 64
"""How much longer a dimension is stated: what is read or written beyond it does not stay within padding."""
_MOST_RANK = 4
"""Of what tflite-runtime 2.14 does not die of by itself (PRELU)."""


def _longer(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], shape[axis] * _TIMES, *shape[axis + 1 :])


def _other_shape(shape: Shape, choice: int) -> Shape:
    """Much longer in one dimension, smaller, of another rank, or a little longer; never the shape itself."""
    bare = (1,) * len(shape)
    shapes = (
        _longer(shape, 0),
        _longer(shape, len(shape) - 1),
        bare if bare != shape else (2,),
        (shape[0] + 1, *shape[1:]),
        (math.prod(shape) + 16,),
        (2, *shape) if len(shape) < _MOST_RANK else (*shape[:-1], shape[-1] + 1),
    )
    return shapes[choice % len(shapes)]


_MISMATCHED = 13
"""Of sixteen cases of a graph with such operands; in one any operand is restated, in the others a result."""
_SMALLER = 2
"""As a choice of `_other_shape`."""


def _mismatched(graph: Graph) -> list[StatedShape]:
    """Operands that do not match others of their node: rows of another length, or else too many units."""
    found: list[StatedShape] = []
    for node in graph.nodes:
        if node.op == "CONCATENATION":
            rank = len(graph.tensors[node.inputs[0]].shape)
            others = [(each, axis) for each in node.inputs[1:] for axis in range(rank)]
            found += [
                StatedShape(each, _longer(graph.tensors[each].shape, axis))
                for each, axis in others
                if axis != node.axis % rank
            ]
    weighted = (node.inputs[1] for node in graph.nodes if node.op in _JOINING[1:])
    return found or [StatedShape(each, _longer(graph.tensors[each].shape, 0)) for each in weighted]


def _restated(graph: Graph, data: bytes) -> Edits:
    """One tensor of another shape: an operand that does not match, any operand, or a result.

    Not a result of RESHAPE, nor the shape or the axes that a node is given: the runtimes' own kernel of
    RESHAPE is reported to trust the stated rank (docs/reference/runtimes.md).
    """
    mismatched = _mismatched(graph)
    if mismatched and data[0] % 16 < _MISMATCHED:
        return (mismatched[data[1] % len(mismatched)],)
    spared = {tensor for node in graph.nodes if node.op in ("RESHAPE", "MEAN") for tensor in node.inputs[1:]}
    spared |= {tensor for node in graph.nodes if node.op == "RESHAPE" for tensor in node.outputs}
    read = [tensor for node in reversed(graph.nodes) for tensor in reversed(node.inputs) if tensor >= 0]
    written = [tensor for node in graph.nodes for tensor in node.outputs]
    is_read = data[0] % 16 == _MISMATCHED
    chosen = [tensor for tensor in (read if is_read else written) if tensor not in spared]
    tensor = (chosen or graph.inputs)[data[1] % len(chosen or graph.inputs)]
    choice = data[2] if is_read or data[2] % 2 else _SMALLER
    return (StatedShape(tensor, _other_shape(graph.tensors[tensor].shape, choice)),)


def restated(facts: DelegateFacts) -> Strategy:
    """The file states another shape of one tensor than the graph has."""
    return _cases(facts, _restated, _guarded, joining=True)


@rule(
    "HOS-01",
    Level.MUST,
    "A model that states another shape of a tensor than its operators give or take is refused with an error, "
    "or gives the results of the CPU: the process lives, no byte beside a tensor is read or written, and the "
    "next interpreter works.",
    source=_STATUS,
    subject="delegate",
    cases=restated,
)
def survives_stated_shapes(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at statuses, guarded tensors, results where the CPU has them, and at one more interpreter."""
    return _judge(case, trace, "models with a wrong shape")


_BY_ADDRESS = ("RESHAPE", "MEAN", "MAXIMUM")
"""Their kernels on the CPU die of an absent operand (docs/reference/runtimes.md)."""


def _lacking(graph: Graph, data: bytes) -> Edits:
    """A node with an operand absent, without its last one, or with one more.

    FULLY_CONNECTED needs no bias: one that is absent is MEM-08's.
    """
    index = data[0] % len(graph.nodes)
    node = graph.nodes[index]
    needed = 2 if node.op == "FULLY_CONNECTED" else len(node.inputs)
    place = data[2] % needed
    absent = (*node.inputs[:place], -1, *node.inputs[place + 1 :])
    fewer = node.inputs[: needed - 1]
    chosen = (absent, fewer, absent, (*node.inputs, node.inputs[0]))[data[1] % 4]
    return (StatedOperands(index, fewer if node.op in _BY_ADDRESS and -1 in chosen else chosen),)


def lacking(facts: DelegateFacts) -> Strategy:
    """A node of the file has other operands than its operator takes."""
    return _cases(facts, _lacking, _guarded)


@rule(
    "HOS-02",
    Level.MUST,
    "A model in which an operand that its operator needs is absent or missing, or is one too many, is "
    "refused with an error, or gives the results of the CPU: the process lives, no byte beside a tensor is "
    "read or written, and the next interpreter works.",
    source=f"{_STATUS}; common.h, kTfLiteOptionalTensor",
    subject="delegate",
    cases=lacking,
)
def survives_missing_operands(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at the same as HOS-01."""
    return _judge(case, trace, "models with a missing operand")


_BARE: tuple[Op, ...] = ("RELU", "ABS", "NEG", "MAXIMUM", "PRELU")
"""Operators without options: the suite's own delegate computes them as custom operators too."""


def _made_custom(graph: Graph, data: bytes) -> Edits:
    """One of several nodes; more often than not one that the suite's own delegate computes."""
    known = [index for index, node in enumerate(graph.nodes) if node.op in _BARE]
    if known and data[0] % 4:
        index = known[data[1] % len(known)]
        return (CustomOperator(index, f"Unknown{graph.nodes[index].op}"),)
    return (CustomOperator(data[1] % len(graph.nodes), "UnknownOperator"),)


def _beside_custom(_: Graph, edits: Edits, position: int, seed: int) -> Steps:
    """The target is applied, then a delegate of the suite's own that claims the custom operator."""
    claim = tuple(edit.node for edit in edits if isinstance(edit, CustomOperator))
    return (
        *(MakeDelegate("d0", position=position), MakeDelegate("p0", "probe", claim=claim, flags=1)),
        *(Open("i0"), Apply("i0", "d0"), Apply("i0", "p0"), Allocate("i0")),
        *(SetInputs("i0", seed), Invoke("i0"), Read("i0")),
        *_next(position, seed),
    )


def beside_custom(facts: DelegateFacts) -> Strategy:
    """A node of the file is a custom operator that the target cannot know."""
    return _cases(facts, _made_custom, _beside_custom, nodes=2)


@rule(
    "HOS-03",
    Level.MUST,
    "A custom operator that the delegate does not know is left alone beside nodes that it claims: the "
    "process lives, and where another delegate computes the operator, results are right, or there is an "
    "error.",
    source="tflite/core/interpreter.h, ModifyGraphWithDelegate: kTfLiteUnresolvedOps; tflite/delegates/utils/"
    "simple_delegate.h, IsNodeSupportedByDelegate",
    subject="delegate",
    cases=beside_custom,
)
def leaves_custom_operators(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Compares with what the CPU gives for the graph without the custom operator.

    The runtime itself refuses a delegate that allows no dynamic tensors: of such a one the process and the
    next interpreter are looked at.
    """
    _need_trace(trace)
    _leaves_alone(case, trace)
    examined = _next_works(case, trace)
    reads = {
        step.interpreter: seen for _, step, seen in scripts.numbered(case, trace) if isinstance(step, Read)
    }
    # A case that was made smaller may have two graphs: then one says nothing of the other.
    same = len(set(case.graphs)) == 1
    right = reads["i1"].cpu if same and "i1" in reads else ()
    for name, seen in reads.items():
        if seen.ok and right:
            inputs = _inputs_before(case, trace, name)
            wrong = gravely_wrong(case.graphs[0], inputs, seen.outputs, right, arithmetic(trace.facts))
            if wrong:
                raise WrongOutput("the CPU's values of the graph without edits", wrong, f"interpreter {name}")
    return Examined(examined, "models with a custom operator")


def _leaves_alone(case: ScriptCase, trace: ScriptTrace) -> None:
    """Raises Violation where the target claims a custom operator."""
    custom = {edit.node for edit in case.edits if isinstance(edit, CustomOperator)}
    found = scripts.interpreter(trace)
    for applied in found.applied if found else ():
        claimed = custom.intersection(index for call in applied.replaces for index in call.nodes)
        if applied.is_target and claimed:
            raise Violation(
                "no claim of a custom operator that no delegate under test can know",
                f"node {min(claimed)} claimed",
                f"Prepare of {applied.name}",
            )


_MANY = ((1 << 10) + 6, (1 << 12) + 4)
"""Nodes: some more than tables are long."""


def _plainest(facts: DelegateFacts, nodes: int) -> Graph:
    """The simplest graph that the target claims."""
    return plain_case(decode_graph(bytes(size_of(nodes, 0)), claimed_kinds(facts), 0, nodes, nodes)[0])


def _plain_run(position: int, seed: int) -> Steps:
    """The model is used as any other is; then the graph without edits by a delegate of its own."""
    made = (MakeDelegate("d0", position=position), Open("i0"), Apply("i0", "d0"), Allocate("i0"))
    return (*made, SetInputs("i0", seed), Invoke("i0"), Read("i0"), *_next(position, seed))


def many_nodes(facts: DelegateFacts) -> Strategy:
    """A thousand nodes, and four thousand: each reads what the one before it gives."""
    graph, last = _plainest(facts, 1), max(0, len(facts.delegates) - 1)
    # A target may claim eight nodes or none: eight thousand, each in a trace, are more than is judged.
    times = [math.ceil(many / len(graph.nodes)) for many in _MANY]
    return listed([ScriptCase((graph, graph), _plain_run(last, 1), edits=(Copies(n),)) for n in times])


@rule(
    "HOS-04",
    Level.SHOULD,
    "A graph of thousands of nodes is refused with an error, or gives the results of the CPU: the process "
    "lives, and the next interpreter works.",
    source="tflite/schema/schema.fbs, SubGraph.operators: no document says how many there may be",
    subject="delegate",
    cases=many_nodes,
)
def survives_many_nodes(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at statuses, at results, and at one more interpreter. A refusal of any step is an error."""
    return _judge(case, trace, "graphs of thousands of nodes")


_WRAPPING: tuple[Shape, ...] = ((1 << 16, 1 << 16), ((1 << 31) - 1, (1 << 31) - 1), (1 << 30, 4))
"""Shapes whose elements are 0, 1 and 0 in 32 bits."""
_IMPOSSIBLE: tuple[Shape, ...] = ((1 << 24, 1 << 24), ((1 << 31) - 1, (1 << 31) - 1), (1 << 16,) * 3)
"""Shapes of more bytes than a process has addresses: no runtime has memory for them."""


def huge(facts: DelegateFacts) -> Strategy:
    """Huge shapes of a result inside a graph, and of one at its end; of an input where the runtime bears it.

    tflite-runtime 2.14 throws where it cannot allocate (docs/reference/runtimes.md).
    """
    graph, last = _plainest(facts, 2), max(0, len(facts.delegates) - 1)
    written = [tensor for node in graph.nodes for tensor in node.outputs]
    edits = [StatedShape(tensor, shape) for tensor in (written[0], written[-1]) for shape in _WRAPPING]
    if facts.runtime != "tflite_runtime":
        edits += [StatedShape(graph.inputs[0], shape) for shape in _IMPOSSIBLE]
    return listed([ScriptCase((graph, graph), _plain_run(last, 1), edits=(edit,)) for edit in edits])


@rule(
    "HOS-05",
    Level.MUST,
    "A model that states dimensions whose product 32 bits do not hold, or for which there is no memory, "
    "is refused with an error, or gives the results of the CPU: the process lives, and the next interpreter "
    "works.",
    source=_STATUS,
    subject="delegate",
    cases=huge,
)
def survives_huge_shapes(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at statuses, at results where the CPU has them, and at one more interpreter.

    An input that is resized to such shapes is ERR-04's.
    """
    return _judge(case, trace, "models with a huge shape")


_BACKWARDS = (((2, 0),), ((1, 0), (2, 1)))
"""Control edges that no node is in the way of, if none reads another one's result."""
_UNSCHEDULABLE = (((0, 1), (1, 0)), ((1, 1),), ((0, 1), (1, 2), (2, 0)), ((0, 500),))
"""Circles, and a node that there is not."""


def without_order(facts: DelegateFacts) -> Strategy:
    """Control edges that lead backwards or, where the runtime refuses them, in circles; graphs without nodes.

    By RT-06 tflite-runtime 2.14 drops nodes that it cannot schedule, and dies (docs/reference/runtimes.md).
    """
    graph, last = _plainest(facts, 1), max(0, len(facts.delegates) - 1)
    many = copied(graph, 3)
    edges = _BACKWARDS if facts.runtime == "tflite_runtime" else (*_BACKWARDS, *_UNSCHEDULABLE)
    made: list[tuple[Graph, AnyEdit]] = [(graph, NoNodes()), (graph, NoNodes("beside"))]
    made += [(many, StatedEdges(each)) for each in edges]
    return listed([ScriptCase((one, one), _plain_run(last, 1), edits=(edit,)) for one, edit in made])


@rule(
    "HOS-06",
    Level.SHOULD,
    "A model whose control edges lead backwards or in a circle, or one of whose graphs has no node, is "
    "refused with an error, or gives the results of the CPU: the process lives, and the next interpreter "
    "works.",
    source="tflite/core/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets (control edges); schema.fbs, "
    "SubGraph.operators may be empty",
    subject="delegate",
    cases=without_order,
)
def survives_graphs_without_order(case: ScriptCase, trace: ScriptTrace) -> Examined:
    """Looks at statuses, at results, and at one more interpreter."""
    return _judge(case, trace, "models without an order or without nodes")

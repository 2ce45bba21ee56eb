"""A graph and the delegates applied to it, as lines of text: what each node computes, and who claims it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_qnn.report.explain.telling import Told, plain, sentence
from pytest_qnn.tflite.cases.delegate import Application, DelegateCase
from pytest_qnn.tflite.cases.history import History
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor

_MOST_NODES = 12
"""Nodes of a graph that are shown."""
_FAULTS = {
    "prepare": "its Prepare reports failure",
    "init": "a kernel's init fails",
    "kernel-prepare": "a kernel's prepare reports failure",
    "kernel-invoke": "a kernel's invoke reports failure",
    "second-invoke": "each kernel's second invoke reports failure",
    "dynamic": "it makes its outputs dynamic",
}
_REFUSED = {
    "plan": "GetExecutionPlan",
    "node": "GetNodeAndRegistration",
    "replace": "ReplaceNodeSubsetsWithDelegateKernels",
    "preview": "PreviewDelegatePartitioning",
    "node-in-init": "GetNodeAndRegistration in a kernel's init",
}
_APPLICATION = Told(
    "{who} is applied",
    {
        "fault": lambda value: _FAULTS[value],
        "flags": "its flags are {}",
        "added": "its Prepare adds {} tensors, until the table of tensors has moved",
        "refused": lambda value: f"the runtime refuses its call of {_REFUSED[value]}",
        "refused_call": "call number {} of it",
        "options": lambda value: f"with options {', '.join('='.join(pair) for pair in value)}",
        "order": "its delegates in order number {}",
        "claim": lambda value: f"it claims {'nodes ' + plain(value) if value else 'no node'}",
        "who": "",
    },
    {
        "who": lambda value: (
            "The delegate under test" if value == "target" else "A delegate of the suite's own"
        )
    },
)
_HISTORY = Told(
    "In the process before",
    {
        "made": "{} delegates were made and destroyed",
        "failed": "{} interpreters had calls that fail",
        "used": "{} interpreters were used and destroyed",
        "invokes": "{} invokes each",
        "resized": lambda _: "each was resized and resized back",
        "profiled": lambda _: "with a profiler",
        "repeated": "the case itself was carried out {} times",
        "kept": "{} interpreters stay in use",
        "warm": "{} invokes with other inputs",
    },
)


def graph(given: Graph, name: str = "main") -> list[str]:
    """The graph's inputs, a line for each node, its outputs, and the same of its subgraphs."""
    return [*_lines(given, name), *_subgraphs(given)]


def _subgraphs(given: Graph) -> Iterator[str]:
    for number, each in enumerate(given.subgraphs, 1):
        yield from _lines(each, f"subgraph {number}{' (VALIDATION:)' if each.validation else ''}")


def _lines(given: Graph, name: str) -> Iterator[str]:
    yield f"{name}: inputs {_tensors(given, given.inputs)}"
    for index, node in enumerate(given.nodes[:_MOST_NODES]):
        yield f"  node {index}: {_node(given, node)}"
    if len(given.nodes) > _MOST_NODES:
        yield f"  and {len(given.nodes) - _MOST_NODES} nodes more"
    yield f"  outputs {plain(tuple(f't{index}' for index in given.outputs)) or 'none'}"
    if given.control_edges:
        edges = ", ".join(f"{first} before {then}" for first, then in given.control_edges)
        yield f"  control edges: {edges}"


def _node(given: Graph, node: Node) -> str:
    made = _tensors(given, node.outputs) or "no tensor"
    words = [f"{made} = {node.op}({', '.join(_operand(given, index) for index in node.inputs)})"]
    words += [f"activation {node.activation}"] if node.activation != "NONE" else []
    words += [f"axis {node.axis}"] if node.op == "CONCATENATION" else []
    words += ["keeps reduced axes"] if node.keep_dims else []
    if node.op == "CONV_2D":
        words.append(
            f"{'SAME' if node.same_padding else 'VALID'} padding, stride {list(node.stride)}, "
            f"dilation {list(node.dilation)}"
        )
    words += [f"subgraphs {plain(node.subgraphs)}"] if node.subgraphs else []
    words += [f"variable {node.variable}"] if node.variable else []
    return ", ".join(words)


def _operand(given: Graph, index: int) -> str:
    if index < 0:
        return "absent"
    constant = given.tensors[index].data is not None
    return f"constant t{index} {_type(given.tensors[index])}" if constant else f"t{index}"


def _tensors(given: Graph, indices: Sequence[int]) -> str:
    return ", ".join(f"t{index} {_type(given.tensors[index])}" for index in indices) or "none"


def _type(tensor: Tensor) -> str:
    quantised = ""
    if len(tensor.scales) == 1:
        quantised = (
            f" scale {tensor.scales[0]:g} zero point {tensor.zero_points[0] if tensor.zero_points else 0}"
        )
    elif tensor.scales:
        quantised = f" {len(tensor.scales)} scales along axis {tensor.axis}"
    return f"{tensor.dtype} {list(tensor.shape)}{quantised}"


def history(given: History | None) -> list[str]:
    """What was done in the process before; nothing: no line."""
    return [] if given is None or given == History() else [sentence(given, _HISTORY)]


def application(one: Application) -> str:
    """One delegate that is applied, in a sentence."""
    return sentence(one, _APPLICATION)


_CASE = Told(
    "The interpreter is allocated and invoked {invokes} times",
    {
        "fill": "inputs of the kind: {}",
        "data_seed": "contents of seed {}",
        "poison": lambda value: (
            f"its outputs are filled with {', '.join(f'{one:#04x}' for one in value)} before an invoke"
        ),
        "baseline": "compared with what the delegate claims {}",
        "reseed": "inputs of seeds {}",
        "again": lambda value: f"all of it a second time, in another {value}",
        "late": lambda _: "invoked once before the delegate is applied",
        "redo": "resized and resized back {} times",
        "watch": "",
        "graph": "",
        "applications": "",
        "invokes": "",
        "look": "",
        "history": "",
    },
)


def lines(case: DelegateCase) -> list[str]:
    """What is done to the interpreter, a sentence each; the graph is in `graph`."""
    applied = map(application, case.applications)
    return [*history(case.history), *applied, sentence(case, _CASE)]


UNTOLD = {"look": "what the suite observes besides", "watch": "what the suite records besides"}
"""Fields of cases that are of no concern to a reader, and what they are."""

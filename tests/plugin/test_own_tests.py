"""What an author sees whose own test is wrong, or fails: the own line and one sentence."""

from __future__ import annotations

import fake_suite
import pytest

from pytest_qnn import Graph, Node, Tensor, emit
from pytest_qnn.qnn import live as live_memory
from pytest_qnn.tflite import live, target
from pytest_qnn.tflite.graph.graph import Graph as Struct
from pytest_qnn.tflite.runtime import runtime

SHARED = (live, live_memory, target)
"""Loaded before any test, so that the pytest runs in this process share these modules and their classes."""

T = Tensor((2,))
RELU = Node("RELU", (0,), (1,))
OPERATORS = (
    "ABS, ADD, ASSIGN_VARIABLE, CONCATENATION, CONV_2D, FULLY_CONNECTED, IF, LESS, MAXIMUM, MEAN, MUL, NEG, "
    "PRELU, READ_VARIABLE, RELU, RESHAPE, SUB, VAR_HANDLE, WHILE"
)

HEAD = """
import numpy as np
from pytest_qnn import Graph, Node, Tensor, assert_partitioning, invoke, place_tensor

T = Tensor((2,))
"""


@pytest.mark.parametrize(
    ("second", "node", "said"),
    [
        (T, Node("RELO", (0,), (1,)), f"node 0 (RELO): there is no operator 'RELO'; there are {OPERATORS}"),
        (T, Node("ADD", (0,), (1,)), "node 0 (ADD) has 1 operands, and takes 2: float32 [2] -> float32 [2]"),
        (T, Node("CONV_2D", (0,), (1,)), "node 0 (CONV_2D) has 1 operands, and takes 2 to 3"),
        (T, Node("RELU", (0,), (0, 1)), "node 0 (RELU) writes to tensor 0, which has its contents already"),
        (T, Node("RELU", (), (1,)), "node 0 (RELU) has no operand: nothing -> float32 [2]"),
        (T, Node("RELU", (7,), (1,)), "node 0 (RELU) reads tensor 7, which there is not"),
        (T, Node("RELU", (0,), (2,)), "node 0 (RELU) writes to tensor 2, which there is not"),
        (T, Node("RELU", (1,), (1,)), "node 0 (RELU) reads tensor 1 before it is written"),
        (T, Node("RELU", (0,), (1,), "TANH"), "node 0 (RELU): there is no activation 'TANH'"),
        (T, Node("RELU", (0,), (1,), "RELU6"), "node 0 (RELU) cannot have an activation"),
        (T, Node("RELU", 0, 1), "node 0 (RELU): Expected `array`, got `int` - in `inputs`"),
        (T, Node("CONV_2D", (0, 0), (1,)), "node 0 (CONV_2D) has weights that do not match (they"),
        (Tensor((3,)), RELU, "node 0 (RELU) gives [2], and its result has [3]: float32 [2] -> float32 [3]"),
        (Tensor((2,), "int32"), RELU, "node 0 (RELU) cannot compute int32: float32 [2] -> int32 [2]"),
        (Tensor((2,), "float64"), RELU, "tensor 1: there is no type 'float64'; there are bool, "),
        (Tensor((2,), "int8"), RELU, "tensor 1 is int8 without a scale"),
        (Tensor((1,) * 5 + (2,)), RELU, "tensor 1: the number of dimensions is 6, not within 1 to 5"),
        (Tensor((2.5,)), RELU, "tensor 1: Expected `int`, got `float` - in `shape[0]`"),
        (Tensor((2,), data=b"1234"), RELU, "tensor 1 has 4 bytes of contents, and needs 8"),
        ("float32", RELU, "tensor 1 is 'float32', not a Tensor"),
        (T, "RELU", "node 0 is 'RELU', not a Node"),
    ],
)  # fmt: skip
def test_an_impossible_graph_is_refused_where_it_is_built(second: Tensor, node: Node, said: str) -> None:
    with pytest.raises(ValueError, match=r"^") as refused:
        Graph((T, second), (node,), (0,), (1,))
    assert type(refused.value) is ValueError
    text = str(refused.value)
    assert text.startswith(said)
    assert "\n" not in text


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (((T, T), RELU, (0,), (1,)), "nodes of a graph are a tuple, not Node(op='RELU'"),
        (((T, T), (RELU,), 0, (1,)), "inputs of a graph are a tuple of tensors' indices, not 0"),
        (((T, T), (RELU,), (0,), (5,)), "an input or output of the graph is 5, not within 0 to 1"),
        (((T, T, T), (RELU,), (0,), (1,)), "nothing writes to tensor 2"),
        (((T, T), (RELU,), (0,), (1,), ("sub",)), "subgraph 1 is 'sub', not a Graph"),
    ],
)
def test_a_graph_of_wrong_parts_is_refused(parts: tuple[object, ...], said: str) -> None:
    with pytest.raises(ValueError, match=r"^") as refused:
        Graph(*parts)
    assert str(refused.value).startswith(said)


def test_a_graph_of_an_author_is_one_of_the_suites() -> None:
    made = Graph([T, Tensor([2])], [Node("RELU", [0], [1])], [0], [1])
    assert made == Struct((T, T), (RELU,), (0,), (1,))
    assert type(made) is Struct
    assert emit(made) == emit(Struct((T, T), (RELU,), (0,), (1,)))
    assert isinstance(made, Graph)
    assert issubclass(Struct, Graph)
    assert not isinstance(T, Graph)


def test_an_authors_graph_may_be_larger_than_one_in_a_file() -> None:
    large = Tensor((1 << 12, 1 << 12))
    assert Graph((large, large), (RELU,), (0,), (1,)).tensors[1] is not None
    counting = [Tensor((1,), "int32") for _ in range(2)]
    one = Tensor((1,), "int32", data=b"\1\0\0\0")
    many = Tensor((1,), "int32", data=b"\xe8\3\0\0")
    decision = Tensor((1,), "bool")
    below = Graph((counting[0], T, many, decision), (Node("LESS", (0, 2), (3,)),), (0, 1), (3,))
    body = Graph((*counting, one, T, T), (Node("ADD", (0, 2), (1,)), Node("NEG", (3,), (4,))), (0, 3), (1, 4))
    whole = (counting[0], T, counting[1], T)
    loop = Node("WHILE", (0, 1), (2, 3), subgraphs=(1, 2))
    assert Graph(whole, (loop,), (0, 1), (2, 3), (below, body)).subgraphs == (below, body)
    with pytest.raises(ValueError, match=r"node 0 \(WHILE\) needs a condition that gives one bool"):
        Graph(whole, (loop,), (0, 1), (2, 3), (body, body))


def failed(pytester: pytest.Pytester, body: str, *options: str) -> str:
    """What pytest shows of a test with this body, on a line of its own each."""
    pytester.makepyfile(HEAD + body)
    result = pytester.runpytest("-p", "no:cacheprovider", *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    return result.stdout.str()


def test_a_graph_that_is_built_while_its_file_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEAD + "GRAPH = Graph((T, T), (Node('ADD', (0,), (1,)),), (0,), (1,))\n")
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "test_*.py:*: in <module>",
            "*GRAPH = Graph(*",
            "E   ValueError: node 0 (ADD) has 1 operands, and takes 2: float32 [[]2] -> float32 [[]2]",
        ]
    )
    result.stdout.no_fnmatch_line("*built.py*")
    result.stdout.no_fnmatch_line("*valid.py*")


GRAPH = "GRAPH = Graph((T, T), (Node('RELU', (0,), (1,)),), (0,), (1,))\n"
MISTAKES = {
    "make_interpreter(GRAPH, reference_delegate(fault='prepare'))": "RuntimeError: *",
    "make_interpreter(b'no model')": "ValueError: *",
    "make_interpreter('nowhere.tflite')": "FileNotFoundError: *nowhere.tflite*",
    "invoke(make_interpreter(GRAPH), [])": "ValueError: the model has 1 inputs, and 0 are given",
    "invoke(make_interpreter(GRAPH), [np.zeros(3, np.float32)])": "ValueError: *",
    "invoke(make_interpreter(GRAPH, allocate=False), [np.zeros(2, np.float32)])": "*Error: *",
    "assert_partitioning(make_interpreter(GRAPH), [7])": "AssertionError: the execution plan is not *",
    "run_delegate(None)": "*Error: *",
    "qnn_backend.register('c9', None, (8,))": "*Error: *",
    "make_interpreter(msgspec.structs.replace(GRAPH, nodes=(Node('ADD', (0,), (1,)),)))": (
        "ValueError: node 0 (ADD) has 1 operands, and takes 2*"
    ),
}


def test_a_failing_test_shows_its_own_line_and_no_frame_of_the_suite_or_a_runtime(
    pytester: pytest.Pytester,
) -> None:
    fixtures = "make_interpreter, reference_delegate, run_delegate, qnn_backend"
    tests = [f"def test_{at}({fixtures}):\n    {each}\n" for at, each in enumerate(MISTAKES)]
    said = failed(pytester, f"import msgspec\n{GRAPH}" + "\n\n".join(tests), "-rN")
    parts = said.split("\n____")[1:]
    assert len(parts) == len(MISTAKES)
    for part, (line, error) in zip(parts, MISTAKES.items(), strict=True):
        matcher = pytest.LineMatcher(part.splitlines())
        matcher.fnmatch_lines([f"> *{line.replace('[', '[[]')}", f"E *{error}", "test_*.py:*"])
        frames = [shown for shown in part.splitlines() if ".py:" in shown and not shown.startswith("E ")]
        assert len(frames) == 1, part


def test_all_frames_are_there_with_full_trace(pytester: pytest.Pytester) -> None:
    body = f"{GRAPH}def test(make_interpreter):\n    make_interpreter(b'no model')\n"
    assert "tflite/live/__init__.py:" in failed(pytester, body, "--full-trace")


def test_a_test_may_fail_where_pytest_has_no_terminal(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test(): assert False")
    # What the option --full-trace is of is not there.
    result = pytester.runpytest("-p", "no:cacheprovider", "-p", "no:terminal")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_where_no_frame_is_the_authors_the_suites_are_shown(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_memory, "qnn_session", None)
    pytester.makepyfile("def test(qnn_backend): pass")
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixtures/memory.py:*", "E *TypeError: 'NoneType' object is not callable"])


def test_without_a_runtime_one_sentence_says_so_and_the_memory_half_is_judged(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_installed", lambda _: False)
    suite = ("-p", "no:cacheprovider", "--pyargs", "pytest_qnn.conformance", "--qnn-profile=quick")
    both = pytester.runpytest_inprocess(*suite, "--qnn-rule=PART-01,REG-01")
    assert both.ret == pytest.ExitCode.USAGE_ERROR
    sentence = "no TensorFlow Lite runtime is installed: pip install ai-edge-litert (or tflite-runtime)"
    both.stderr.fnmatch_lines([f"ERROR: --tflite-delegate: reference: {sentence}"])
    memory = pytester.runpytest_inprocess(*suite, "--qnn-rule=REG-01", "--qnn-backend=reference")
    assert memory.parseoutcomes()["passed"] == 1
    pytester.makepyfile("def test_a(make_interpreter): pass\ndef test_b(run_delegate): pass\n")
    own = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rs")
    own.assert_outcomes(skipped=1, errors=1)
    own.stdout.fnmatch_lines([f"SKIPPED*{sentence}"])
    assert own.stdout.str().count(f"--tflite-delegate: reference: {sentence}") == 1


@pytest.mark.usefixtures("fakes")
def test_the_sentence_of_a_rule_stands_below_its_test_with_v(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_rules=fake_suite.suite("REG-01", "REG-06") + "\n\ndef test_own_1(): pass\n")
    shown = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-v")
    lines = shown.stdout.lines
    at = next(
        place for place, line in enumerate(lines) if line.startswith("test_rules.py::test_reg_01 PASSED")
    )
    assert lines[at + 1].startswith("    REG-01 MUST: ")
    assert not lines[at + 2].startswith("    ")
    assert sum(line.startswith("    REG-") for line in lines) == 2
    for quiet in ("-q", "--verbosity=0"):
        assert "    REG-" not in pytester.runpytest_inprocess("-p", "no:cacheprovider", quiet).stdout.str()

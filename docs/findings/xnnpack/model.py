"""What the scripts of this folder share: models, and what a runtime computes with and without XNNPACK.

The models are written with the schema that the wheel of ai-edge-litert brings; nothing of the suite is used.
A script ends with 0 where XNNPACK's part of the graph works, 1 where it does not, 2 where it cannot run.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    import flatbuffers
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema
except ImportError as missing:
    print(f"cannot run: {missing}")
    sys.exit(2)

Node = tuple[int, str, dict[str, Any], list[int], list[int]]
"""Builtin operator, its options (a name of BuiltinOptions and the members' values), inputs, outputs."""


def tensor(shape: tuple[int, ...], kind: int = schema.TensorType.FLOAT32, data: Any = None) -> Any:
    """A tensor of ``shape``; a constant where ``data`` (a numpy array) is given."""
    made = schema.TensorT()
    made.shape, made.type, made.data = list(shape), kind, data
    return made


def model(tensors: list[Any], nodes: list[Node], inputs: list[int], outputs: list[int]) -> bytes:
    """A .tflite file of one subgraph."""
    made, graph = schema.ModelT(), schema.SubGraphT()
    made.version, made.buffers, made.operatorCodes, made.subgraphs = 3, [schema.BufferT()], [], [graph]
    for number, each in enumerate(tensors):
        each.name, each.buffer = f"t{number}", 0
        if each.data is not None:
            each.buffer = len(made.buffers)
            made.buffers.append(schema.BufferT())
            made.buffers[-1].data = np.frombuffer(each.data.tobytes(), np.uint8)
    graph.tensors, graph.inputs, graph.outputs = tensors, inputs, outputs
    graph.operators = [_operator(made, node) for node in nodes]
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _operator(made: Any, node: Node) -> Any:
    builtin, kind, members, inputs, outputs = node
    code, each = schema.OperatorCodeT(), schema.OperatorT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), 1
    made.operatorCodes.append(code)
    each.opcodeIndex, each.inputs, each.outputs = len(made.operatorCodes) - 1, inputs, outputs
    if kind:
        each.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        each.builtinOptions = getattr(schema, f"{kind}T")()
        for name, value in members.items():
            setattr(each.builtinOptions, name, value)
    return each


def computed(content: bytes, runtime: str, *, xnnpack: bool) -> Any:
    """The first output for inputs 0, 1, 2, ..., with or without the runtime's default delegate."""
    module = importlib.import_module(f"{runtime}.interpreter")
    resolver = module.OpResolverType
    kind = resolver.AUTO if xnnpack else resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = module.Interpreter(model_content=content, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        values = np.arange(np.prod(each["shape"], dtype=int), dtype=each["dtype"])
        interpreter.set_tensor(each["index"], values.reshape(each["shape"]))
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def answer(runtime: str, case: str, content: bytes) -> str:
    """What two processes say: of the model without XNNPACK, and with it; empty where they agree."""
    told = []
    for xnnpack in (False, True):
        code = (
            "import sys, model; values = model.computed(sys.stdin.buffer.read(), "
            f"{runtime!r}, xnnpack={xnnpack}); print(values.ravel()[:8].tolist())"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            input=content,
            capture_output=True,
            cwd=Path(__file__).parent,
            timeout=60,
            check=False,
        )
        lines = (done.stdout if done.returncode == 0 else done.stderr).decode().strip().splitlines()
        told.append((done.returncode, lines[-1] if lines else ""))
    (_, alone), (status, seen) = told
    if told[0][0]:
        print(f"cannot run: {case} without XNNPACK: {alone}")
        sys.exit(2)
    if status < 0:
        seen = f"the process died of signal {-status}"
    print(f"{case}\nexpected: {alone}\nseen:     {seen}")
    return "" if seen == alone else seen


def end(runtime: str, cases: dict[str, bytes]) -> None:
    """Print each case, and end the process."""
    wrong = [case for case, content in cases.items() if answer(runtime, case, content)]
    sys.exit(1 if wrong else 0)

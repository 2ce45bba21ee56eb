"""What the scripts of this folder share: models, and what a runtime computes with and without XNNPACK.

The models are written with the schema that the wheel of ai-edge-litert brings; nothing of the suite is used.
A script ends with 0 where XNNPACK's part of the graph works, 1 where it does not, 2 where it cannot run. With
``--write FOLDER`` it writes its models for the program in C (``runtimes/run.c``).
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import mmap
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    import flatbuffers
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema
except ImportError as missing:
    print(f"cannot run: {missing}")
    sys.exit(2)

PAGE = mmap.PAGESIZE
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
    graph.operators = operators(made, nodes)
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def operators(made: Any, nodes: list[Node]) -> list[Any]:
    """The nodes, whose codes are entered into the model."""
    made.operatorCodes = made.operatorCodes or []
    return [_operator(made, node) for node in nodes]


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


def computed(
    content: bytes,
    runtime: str,
    *,
    xnnpack: bool,
    at_once: bool = False,
    again: bool = False,
    reference: bool = False,
    last: bool = False,
) -> Any:
    """The first output for inputs 0, 1, 2, ..., with or without the runtime's default delegate.

    ``again``: of a second time, with inputs 1, 2, 3, ... ``reference``: by the reference kernels.

    ``at_once``: XNNPACK is applied as an application in C does it, before tensors are allocated, where this
    runtime exports its functions; as the default delegate it is applied while they are.

    ``last``: of a file, behind whose last page is one that nobody may touch.
    """
    module = importlib.import_module(f"{runtime}.interpreter")
    resolver = module.OpResolverType
    delegate = _delegate(runtime) if xnnpack and at_once else None
    is_default = xnnpack and delegate is None
    alone = resolver.BUILTIN_REF if reference else resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    kind = resolver.AUTO if is_default else alone
    if last:
        with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
            file.write(content)
            file.flush()
            _leave_room(len(content))
            interpreter = module.Interpreter(model_path=file.name, experimental_op_resolver_type=kind)
            _demand_nothing_behind(file.name)
    else:
        interpreter = module.Interpreter(model_content=content, experimental_op_resolver_type=kind)
    if delegate is not None:
        interpreter._interpreter.ModifyGraphWithDelegate(delegate)
    interpreter.allocate_tensors()
    for first in range(1 + again):
        for each in interpreter.get_input_details():
            values = np.arange(first, first + np.prod(each["shape"], dtype=int)).astype(each["dtype"])
            interpreter.set_tensor(each["index"], values.reshape(each["shape"]))
        interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def _leave_room(size: int) -> None:
    """Unmap so many bytes below a page that nobody may touch: the system maps there what fits."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3],
    )
    libc.mmap.argtypes += [ctypes.c_long]
    begin = libc.mmap(None, size + PAGE, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    libc.munmap(ctypes.c_void_p(begin), ctypes.c_size_t(size))


def _demand_nothing_behind(path: str) -> None:
    mappings = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    for this, behind in itertools.pairwise(mappings):
        if this[-1] == path and this[0].split("-")[1] == behind[0].split("-")[0] and behind[1] != "---p":
            print("cannot run: another mapping is behind the file")
            sys.exit(2)


def _delegate(runtime: str) -> int | None:
    """A TfLiteXNNPackDelegateCreate of the runtime's own library; None: it exports none."""
    try:
        wrapper = importlib.import_module(f"{runtime}._pywrap_tensorflow_interpreter_wrapper")
        library = ctypes.CDLL(wrapper.__file__)
        default, create = library.TfLiteXNNPackDelegateOptionsDefault, library.TfLiteXNNPackDelegateCreate
    except (ImportError, AttributeError):
        return None
    options = (
        ctypes.c_int32 * 64
    )()  # larger than the struct of any version, which is returned through memory
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(ctypes.cast(default, ctypes.c_void_p).value)(
        ctypes.addressof(options)
    )
    create.restype = ctypes.c_void_p
    made: int | None = create(ctypes.byref(options))
    return made


def answer(runtime: str, case: str, content: bytes, *, at_once: bool = False, last: bool = False) -> str:
    """What two processes say: of the model without XNNPACK, and with it; empty where they agree.

    They say the shape of the result and its first numbers. Where the CPU has no such kernel, and says so, the
    process with XNNPACK has to live, and may say anything.
    """
    told: list[tuple[int, str]] = []
    for xnnpack in (False, True):
        code = (
            "import sys, model; values = model.computed(sys.stdin.buffer.read(), "
            f"{runtime!r}, xnnpack={xnnpack}, at_once={at_once}, last={last}); "
            "print(list(values.shape), values.ravel()[:8].tolist())"
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
        raised = [line for line in lines if line.startswith("RuntimeError: ")]
        told.append((done.returncode, (raised or lines or [""])[-1]))
    (_, alone), (status, seen) = told
    refused = told[0][0] and alone.startswith("RuntimeError: ")
    if told[0][0] and not refused:
        print(f"cannot run: {case} without XNNPACK: {alone}")
        sys.exit(2)
    if status < 0:
        seen = f"the process died of signal {-status}"
    print(f"{case}\nexpected: {alone}\nseen:     {seen}")
    return "" if seen == alone or (refused and status >= 0) else seen


def write(folder: Path, cases: dict[str, bytes], way: str = "") -> None:
    """Write each case's model as a file, and print what ``runtimes/run.c`` takes behind LIBRARY."""
    folder.mkdir(parents=True, exist_ok=True)
    for case, content in cases.items():
        path = folder / f"{re.sub('[^A-Za-z0-9]+', '-', case).strip('-')}.tflite"
        path.write_bytes(content)
        print(f"{path} {way}".rstrip())


def end(runtime: str, cases: dict[str, bytes], *, at_once: bool = False, way: str = "") -> None:
    """Print each case, and end the process; with ``--write FOLDER`` for a runtime, write the models."""
    if runtime == "--write":
        write(Path(sys.argv[2]), cases, way)
        return
    last = way == "last"
    wrong = [
        case for case, content in cases.items() if answer(runtime, case, content, at_once=at_once, last=last)
    ]
    sys.exit(1 if wrong else 0)

"""The two TensorFlow Lite runtimes behind one interface. Both may be used in one process.

The canary tells whether this build of a runtime keeps its private state where the layouts say.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import struct
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.graph.graph import Graph, Node, Tensor
from pytest_qnn.tflite.graph.model import emit
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.runtime.state import context_of, delegates_applied, private_plan
from pytest_qnn.tflite.runtime.symbols import function_offsets, load_address

RuntimeName = Literal["auto", "tflite_runtime", "ai_edge_litert"]

_DISTRIBUTIONS = {"tflite_runtime": "tflite-runtime", "ai_edge_litert": "ai-edge-litert"}
_LIBRARIES = {
    "tflite_runtime": "_pywrap_tensorflow_interpreter_wrapper.so",
    "ai_edge_litert": "libpywrap_litert_common.so",
}


RAISED: Final = (RuntimeError, ValueError, MemoryError, IndexError, OverflowError)
"""What calls to a runtime raise: its own errors, and what its binding makes of a delegate's C++ exceptions
(the last three: std::bad_alloc, std::out_of_range, std::overflow_error)."""


class RuntimeMissing(Exception):  # noqa: N818 - a finding about the environment
    """No runtime of the wanted name can be imported; the text is one sentence."""


@dataclasses.dataclass(frozen=True, eq=False)
class Runtime:
    """One imported runtime."""

    name: str
    version: str
    module: ModuleType
    """Its ``interpreter`` module."""
    library: Path
    """The library that holds the interpreter's C++ code."""

    def interpreter(
        self,
        model: bytes,
        *,
        default_delegates: bool = False,
        delegates: Sequence[Any] = (),
        reference_kernels: bool = False,
        threads: int = 1,
        own: bool = False,
        preserve: bool = False,
    ) -> Any:
        """An Interpreter of ``model``, without XNNPACK unless ``default_delegates``.

        It has one thread unless more are asked for: runtimes otherwise start and end a thread pool with each
        convolution's first invoke, which costs more than all the rest of a case. With ``own`` the bytes of
        ``model`` are used as they are, and a delegate may write to them; else a copy of them. ``preserve``:
        experimental_preserve_all_tensors.

        Raises:
            ValueError: the runtime refuses the model.
            RuntimeError: a delegate refuses the graph.
        """
        types = self.module.OpResolverType
        return self.module.Interpreter(
            model_content=model if own else bytes(memoryview(model)),
            experimental_delegates=list(delegates) or None,
            num_threads=threads,
            experimental_preserve_all_tensors=preserve,
            experimental_op_resolver_type=(
                types.BUILTIN_REF
                if reference_kernels
                else types.BUILTIN
                if default_delegates
                else types.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            ),
        )

    def symbol(self, name: str) -> int:
        """The address of the function called ``name`` (mangled for C++).

        Raises:
            LookupError: this build of the runtime has no such symbol.
        """
        if name not in self._offsets:
            raise LookupError(f"{self.name} {self.version} has no symbol {name}")
        return self._base + self._offsets[name]

    def has_symbol(self, name: str) -> bool:
        """The runtime's own code has a function of this name."""
        return name in self._offsets

    @functools.cached_property
    def observed(self) -> bool:
        """The canary holds: private state may be read. Checked at first use, once per process."""
        return holds(self)

    @functools.cached_property
    def _offsets(self) -> dict[str, int]:
        return function_offsets(self.library)

    @functools.cached_property
    def _base(self) -> int:
        return load_address(self.library)


def load_runtime(name: RuntimeName | str = "auto") -> Runtime:
    """Import a runtime; ``auto`` takes tflite_runtime, or else ai_edge_litert.

    Raises:
        RuntimeMissing: it is not installed, or cannot be imported.
    """
    if name != "auto":
        return _load(name)
    for candidate in _DISTRIBUTIONS:
        if _installed(candidate):
            return _load(candidate)
    raise RuntimeMissing(
        "no TensorFlow Lite runtime is installed: pip install ai-edge-litert (or tflite-runtime)"
    )


def runtime_of(interpreter: Any) -> Runtime:
    """The runtime of an interpreter, also of a class that is derived from the runtime's.

    Raises:
        RuntimeMissing: it is neither tflite_runtime's nor ai_edge_litert's.
    """
    __tracebackhide__ = True
    for kind in type(interpreter).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in _DISTRIBUTIONS:
            return load_runtime(package)
    raise RuntimeMissing(
        f"an interpreter is one of {' or '.join(_DISTRIBUTIONS)}, and not {interpreter!r:.80}"
    )


def _installed(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ImportError:  # an import hook forbids it
        return False


@functools.cache
def _load(name: str) -> Runtime:
    distribution = _DISTRIBUTIONS.get(name)
    if distribution is None:
        raise RuntimeMissing(f"{name} is not a runtime: it is auto, tflite_runtime or ai_edge_litert")
    if not _installed(name):
        raise RuntimeMissing(f"the runtime {name} is not installed: pip install {distribution}")
    try:
        module = importlib.import_module(f"{name}.interpreter")
        package = importlib.import_module(name)
    except ImportError as error:
        raise RuntimeMissing(f"the runtime {name} cannot be imported: {error}") from None
    folder = Path(next(iter(package.__path__)))
    return Runtime(name, metadata.version(distribution), module, folder / _LIBRARIES[name])


_GRAPH: Final = Graph(
    tensors=(Tensor((2,)), Tensor((2,)), Tensor((2,))),
    nodes=(Node("NEG", (0,), (1,)), Node("ABS", (1,), (2,))),
    inputs=(0,),
    outputs=(2,),
)


def holds(runtime: Runtime) -> bool:
    """Whether plan, nodes and delegates of an interpreter can be read from its memory."""
    model = emit(_GRAPH)
    interpreter = runtime.interpreter(model)
    delegate = ReferenceDelegate(claim=(1,))
    try:
        return _layout_holds(interpreter) and _delegation_shows(interpreter, delegate)
    finally:
        del interpreter
        delegate.close()


def _layout_holds(interpreter: Any) -> bool:
    """The private vectors look as they must for an untouched two-node model."""
    try:
        context = _word(interpreter._native_handle() + layouts.INTERPRETER_CONTEXT)
        subgraph = _word(context + layouts.Context.impl_.offset)
        if _word(context) != len(_GRAPH.tensors):
            return False
        plan = _read(_word(subgraph + layouts.SUBGRAPH_PLAN), 8)
        begin, end = struct.unpack("=QQ", _read(subgraph + layouts.SUBGRAPH_PLAN, 16))
        first, last = struct.unpack("=QQ", _read(subgraph + layouts.SUBGRAPH_NODES, 16))
        inputs = _read(_word(first + layouts.NODE_STRIDE), 8)
        delegates = struct.unpack("=QQ", _read(subgraph + layouts.SUBGRAPH_DELEGATES, 16))
    except (OSError, struct.error):
        return False
    return (
        end - begin == 8
        and struct.unpack("=2i", plan) == (0, 1)
        and last - first == 2 * layouts.NODE_STRIDE
        and struct.unpack("=2i", inputs) == (1, 1)
        and delegates[0] == delegates[1]
    )


def _delegation_shows(interpreter: Any, delegate: ReferenceDelegate) -> bool:
    """A delegate that claims the second node is seen to own a kernel in its place."""
    interpreter._interpreter.ModifyGraphWithDelegate(delegate.address)
    context = context_of(interpreter)
    plan = private_plan(context, {delegate.address: 7})
    seen = [(node.index, node.op, node.inputs, node.outputs, node.owner) for node in plan]
    return (
        seen == [(0, 59, (0,), (1,), -1), (2, layouts.BUILTIN_DELEGATE, (1,), (2,), 7)]
        and delegates_applied(context) == (delegate.address,)
        and not delegate.errors
    )


def _word(address: int) -> int:
    value: int = struct.unpack("=Q", _read(address, 8))[0]
    return value


def _read(address: int, count: int) -> bytes:
    """Bytes of this process. Raises OSError for memory that is not mapped."""
    handle = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return os.pread(handle, count, address)
    finally:
        os.close(handle)

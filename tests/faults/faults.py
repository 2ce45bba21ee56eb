"""30 libraries in C with one fault each: one for each kind of misbehaviour of a plain case, and six more.

Each is a conforming library of which one piece is replaced: the example delegate, or the example backend. The
owner of each was written down from docs/reference/rules.md before any was judged (docs/measured/blame.md).
The six were planted by one who knew no check, and other rules were accused of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_qnn.core.rule import Subject

_EXAMPLES = Path(__file__).parents[2] / "examples"
_SOURCES: dict[Subject, Path] = {
    "delegate": _EXAMPLES / "delegate_repo" / "src" / "arithmetic_delegate.c",
    "memory": _EXAMPLES / "qnn_backend" / "src" / "example_backend.c",
}
_FIRST = "#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n"
_FAULTY_ADDRESS = "*(volatile int*)8 = 1;"
_LOOPS = "for (volatile int on = 1; on;) {}"
_SLEEPS = "for (;;) sleep(60);"
TIMEOUT = 10.0
"""Seconds; less where a fault is a hang."""


class Fault(NamedTuple):
    """One replacement in a conforming library."""

    subject: Subject
    what: str
    """The fault, as a sentence."""
    owner: str
    """The rule whose sentence it breaks."""
    piece: str
    """What is replaced; it stands in the source once."""
    by: str
    timeout: float = TIMEOUT
    """Seconds without an answer or processor time after which a case hangs."""
    also: tuple[tuple[str, str], ...] = ()
    """Further pieces, each with what stands in its place."""


_STEP = "    const size_t count = out.tensor->bytes / (out.tensor->type == kFloat32 ? sizeof(float) : 1);\n"
_KERNEL_PREPARED = "  return node->user_data ? kOk : kError;\n"


def _computing(deed: str) -> str:
    """The deed, whenever a MUL is computed."""
    return f"    if (step->op == kBuiltinMul) {{ {deed} }}\n{_STEP}"


_ELEMENTWISE = """\
static void elementwise(const Step* step, const Operand* in, Operand out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
"""
_SAME_SHAPES = "    if (is_elementwise(op) && !same_shape(in, out)) return false;\n"

DELEGATES: dict[str, Fault] = {
    "delegate-number-of-operator": Fault(
        "delegate",
        "float32 SUB computes b - a.",
        "NUM-10",
        "step->op == kBuiltinSub ? a - b :",
        "step->op == kBuiltinSub ? (out.tensor->type == kFloat32 ? b - a : a - b) :",
    ),
    "delegate-number-at-rank": Fault(
        "delegate",
        "float32 ADD of rank 3 is off by 1.",
        "PART-03",
        "step->op == kBuiltinAdd ? a + b :",
        "step->op == kBuiltinAdd ? a + b + (out.tensor->type == kFloat32 && out.tensor->dims->size == 3) :",
    ),
    "delegate-shape": Fault(
        "delegate",
        "The kernel of a MUL makes its output flat in its prepare.",
        "PART-03",
        _KERNEL_PREPARED,
        """\
  const Kernel* kernel = node->user_data;
  if (kernel && kernel->steps[kernel->steps_size - 1].op == kBuiltinMul) {
    Tensor* out = &context->tensors[kernel->steps[kernel->steps_size - 1].output];
    IntArray* flat = malloc(2 * sizeof(int));
    flat->size = 1;
    flat->data[0] = 1;
    for (int i = 0; i < out->dims->size; ++i) flat->data[0] *= out->dims->data[i];
    return context->resize_tensor(context, out, flat);
  }
  return kernel ? kOk : kError;
""",
    ),
    "delegate-code": Fault(
        "delegate",
        "The invoke of a MUL computes it and returns an error.",
        "PART-04",
        _STEP,
        _computing("if (out.tensor->bytes) elementwise(step, in, out, 1); return kError;"),
    ),
    "delegate-dies-in-create": Fault(
        "delegate",
        "tflite_plugin_create_delegate writes to a bad address.",
        "ABI-02",
        "  if (delegate) delegate->prepare = delegate_prepare;\n",
        f"  {_FAULTY_ADDRESS}\n  if (delegate) delegate->prepare = delegate_prepare;\n",
    ),
    "delegate-dies-in-prepare": Fault(
        "delegate",
        "Prepare writes to a bad address in a graph with a MUL.",
        "RUN-01",
        "    if (is_supported(context, node, registration)) claimed",
        f"    if (registration->builtin_code == kBuiltinMul) {_FAULTY_ADDRESS}\n"
        "    if (is_supported(context, node, registration)) claimed",
    ),
    "delegate-dies-in-init": Fault(
        "delegate",
        "The init of a kernel with a MUL writes to a bad address.",
        "RUN-01",
        "  step->activation = activation_of(node);\n",
        f"  step->activation = activation_of(node);\n  if (step->op == kBuiltinMul) {_FAULTY_ADDRESS}\n",
    ),
    "delegate-dies-in-kernel-prepare": Fault(
        "delegate",
        "The prepare of a kernel that begins with a MUL writes to a bad address.",
        "RUN-01",
        _KERNEL_PREPARED,
        "  const Kernel* kernel = node->user_data;\n"
        f"  if (kernel && kernel->steps[0].op == kBuiltinMul) {_FAULTY_ADDRESS}\n{_KERNEL_PREPARED}",
    ),
    "delegate-aborts-in-invoke": Fault(
        "delegate",
        "The invoke of a MUL writes a message and aborts.",
        "RUN-01",
        _STEP,
        _computing('fprintf(stderr, "delegate.c:12: no MUL\\n"); abort();'),
    ),
    "delegate-dies-in-free": Fault(
        "delegate",
        "The free of a kernel that begins with a MUL writes to a bad address.",
        "RUN-01",
        "  if (!kernel) return;\n",
        "  if (!kernel) return;\n"
        f"  if (kernel->steps && kernel->steps[0].op == kBuiltinMul) {_FAULTY_ADDRESS}\n",
    ),
    "delegate-dies-in-destroy": Fault(
        "delegate",
        "tflite_plugin_destroy_delegate writes to a bad address.",
        "RUN-01",
        "  free(delegate);\n}\n",
        f"  if (delegate) {_FAULTY_ADDRESS}\n  free(delegate);\n}}\n",
    ),
    "delegate-sleeps-in-invoke": Fault(
        "delegate",
        "The invoke of a MUL never returns, and uses no processor time.",
        "RUN-01",
        _STEP,
        _computing(_SLEEPS),
        timeout=1.0,
    ),
}

_REGISTERED = "  *made = adopt(calloc(1, sizeof(Memory)), kMemory, context);\n"
_EXECUTED = "  if (!code) compute(owner, data);\n"

DELEGATES |= {
    "delegate-leaves-the-last": Fault(
        "delegate",
        "ADD, SUB and MUL do not write the last of several elements.",
        "DET-04",
        _ELEMENTWISE,
        _ELEMENTWISE.replace("i < count", "i + (count > 1) < count"),
    ),
    "delegate-writes-one-more": Fault(
        "delegate",
        "ADD, SUB and MUL write an element behind their output.",
        "MEM-03",
        _ELEMENTWISE,
        _ELEMENTWISE.replace("i < count", "i <= count"),
    ),
    "delegate-broadcasts-flat": Fault(
        "delegate",
        "float32 ADD, SUB and MUL of operands of two shapes take elements by turns of the smaller one.",
        "NUM-10",
        _SAME_SHAPES,
        _SAME_SHAPES.replace("is_elementwise(op)", "is_elementwise(op) && out->type != kFloat32"),
        also=(
            (
                "    const float a = load(in[0], i), b = load(in[1], i);\n",
                """\
    const size_t wide = out.tensor->type == kFloat32 ? sizeof(float) : 1;
    const float a = load(in[0], i % (in[0].tensor->bytes / wide));
    const float b = load(in[1], i % (in[1].tensor->bytes / wide));
""",
            ),
        ),
    ),
}

BACKENDS: dict[str, Fault] = {
    "qnn-number-of-operator": Fault(
        "memory",
        "ElementWiseSubtract computes b - a.",
        "EXE-21",
        "return a - b;",
        "return b - a;",
    ),
    "qnn-code": Fault(
        "memory",
        "QnnGraph_finalize carries out what it is asked for, and answers 6022, of graphs of one input.",
        "PRE-11",
        "  owner->finalised = 1;\n  return 0;\n",
        "  owner->finalised = 1;\n  return owner->steps[0].operator->inputs == 1 ? 6022 : 0;\n",
    ),
    "qnn-dies-in-backend-create": Fault(
        "memory",
        "QnnBackend_create writes to a bad address.",
        "IF-12",
        "  const Object* made = adopt(calloc(1, sizeof(Object)), kBackend, NULL);\n",
        f"  {_FAULTY_ADDRESS}\n  const Object* made = NULL;\n",
    ),
    "qnn-dies-in-context-create": Fault(
        "memory",
        "QnnContext_create writes to a bad address.",
        "CTX-09",
        "  Object* made = adopt(calloc(1, sizeof(Object)), kContext, owner);\n",
        f"  {_FAULTY_ADDRESS}\n  Object* made = adopt(calloc(1, sizeof(Object)), kContext, owner);\n",
    ),
    "qnn-dies-in-graph-create": Fault(
        "memory",
        "QnnGraph_create writes to a bad address.",
        "PRE-10",
        "  Graph* made = adopt(calloc(1, sizeof(Graph)), kGraph, owner);\n",
        f"  {_FAULTY_ADDRESS}\n  Graph* made = adopt(calloc(1, sizeof(Graph)), kGraph, owner);\n",
    ),
    "qnn-dies-in-finalize": Fault(
        "memory",
        "QnnGraph_finalize of a graph of two inputs writes to a bad address.",
        "PRE-11",
        "  owner->finalised = 1;\n",
        f"  if (owner->steps[0].operator->inputs == 2) {_FAULTY_ADDRESS}\n  owner->finalised = 1;\n",
    ),
    "qnn-aborts-in-execute": Fault(
        "memory",
        "QnnGraph_execute of ElementWiseMultiply writes a message and aborts.",
        "EXE-21",
        _EXECUTED,
        "  if (owner->steps[0].operator->of == multiply) {\n"
        '    fprintf(stderr, "backend.c:12: no product\\n");\n    abort();\n  }\n' + _EXECUTED,
    ),
    "qnn-dies-in-register": Fault(
        "memory",
        "QnnMem_register of valid memory writes to a bad address.",
        "REG-01",
        _REGISTERED,
        f"  {_FAULTY_ADDRESS}\n{_REGISTERED}",
    ),
    "qnn-dies-in-deregister": Fault(
        "memory",
        "QnnMem_deRegister of a live handle writes to a bad address.",
        "DRG-01",
        "    if (found) end(found);\n",
        f"    if (found) {_FAULTY_ADDRESS}\n    if (found) end(found);\n",
    ),
    "qnn-dies-in-context-free": Fault(
        "memory",
        "QnnContext_free of a live context writes to a bad address.",
        "CTX-01",
        "  if (profile) return 5000;\n",
        f"  if (profile) return 5000;\n  {_FAULTY_ADDRESS}\n",
    ),
    "qnn-loops-in-execute": Fault(
        "memory",
        "QnnGraph_execute of Relu never returns, and computes.",
        "EXE-21",
        _EXECUTED,
        f"  if (owner->steps[0].operator->of == relu) {_LOOPS}\n{_EXECUTED}",
        timeout=0.4,
    ),
    "qnn-sleeps-in-register": Fault(
        "memory",
        "QnnMem_register of valid memory never returns, and uses no processor time.",
        "REG-01",
        _REGISTERED,
        f"  {_SLEEPS}\n{_REGISTERED}",
        timeout=1.0,
    ),
}
BACKENDS |= {
    "qnn-writes-one-more": Fault(
        "memory",
        "QnnGraph_execute writes an element behind each output.",
        "EXE-10",
        "for (size_t i = 0; i < count; ++i) {",
        "for (size_t i = 0; i <= count; ++i) {",
    ),
    "qnn-asks-no-descriptor": Fault(
        "memory",
        "QnnMem_register does not look at what the file descriptor is: of a pipe it says 8000.",
        "REG-14",
        "  if (given->fd < 0 || fstat(given->fd, &file) || !S_ISREG(file.st_mode)) return 8003;\n",
        "  memset(&file, 0, sizeof file);\n  if (fstat(given->fd, &file)) file.st_size = 0;\n",
    ),
    "qnn-maps-a-copy": Fault(
        "memory",
        "QnnMem_register maps the buffer as a private copy: the client sees no result.",
        "EXE-01",
        "PROT_READ | PROT_WRITE, MAP_SHARED, given->fd, 0)",
        "PROT_READ | PROT_WRITE, MAP_PRIVATE, given->fd, 0)",
    ),
}

FAULTS: dict[str, Fault] = dict(
    sorted((BACKENDS | DELEGATES).items(), key=lambda named: named[1].timeout, reverse=True)
)
"""By name; those that hang, which cost most, at the end."""


def faulty(name: str) -> str:
    """The source with a fault.

    Raises:
        ValueError: what it replaces does not stand in the conforming source once.
    """
    return replaced(name, FAULTS[name])


def replaced(name: str, fault: Fault) -> str:
    """The source with this fault.

    Raises:
        ValueError: what it replaces does not stand in the conforming source once.
    """
    source = conforming(fault.subject)
    for piece, by in ((fault.piece, fault.by), *fault.also):
        if source.count(piece) != 1:
            raise ValueError(f"{name}: what it replaces stands {source.count(piece)} times")
        source = source.replace(piece, by)
    return source


def conforming(subject: Subject) -> str:
    """The source of one of the two conforming libraries."""
    return _SOURCES[subject].read_text()


def built(name: str, folder: Path) -> Path:
    """Build the library with a fault into the folder."""
    return build(folder, FAULTS[name].subject, name, faulty(name))


def build(
    folder: Path,
    subject: Subject,
    name: str,
    source: str = "",
    *,
    beside: Path | None = None,
    libraries: Sequence[str] = (),
) -> Path:
    """Build one of the two conforming libraries, or another source in its place.

    ``beside`` is an object file that is linked to it, ``libraries`` are further ones (``-lNAME``).
    """
    written = folder / f"{name}.c"
    written.write_text(_FIRST + (source or conforming(subject)))
    library = folder / f"lib{name}.so"
    flags = ["-shared", "-fPIC", "-O0", "-g", "-w", *(f"-I{path.parent}" for path in _SOURCES.values())]
    linked = [str(written), *([str(beside)] if beside else []), "-lm", "-lpthread", "-ldl", *libraries]
    subprocess.run(["gcc", *flags, "-o", str(library), *linked], check=True, capture_output=True, timeout=60)
    return library

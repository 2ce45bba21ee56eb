"""The example delegate with one fault each in what memory it uses, which shows somewhere else.

They were written from the sentences of the rules MEM-05, MEM-14 and MEM-15, each as a mistake in C.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.faults import faults
from tests.faults.faults import Fault

_KERNEL: Final = "  void** inside; /* per step; NULL where its output lives in the runtime */\n"
_OPERAND: Final = "  return (Operand){tensor, inside ? inside : tensor->data};\n"
_COMPUTED: Final = "    (is_elementwise(step->op) ? elementwise : fully_connected)(step, in, out, count);\n"
_INVOKE: Final = "static int kernel_invoke(Context* context, Node* node) {\n"
_DESTROYED: Final = "  free(delegate);\n}\n"


def _fault(what: str, owner: str, piece: str, by: str, *also: tuple[str, str]) -> Fault:
    return Fault("delegate", what, owner, piece, by, also=also)


LOST: Final[dict[str, Fault]] = {
    "keeps-addresses": _fault(
        "A kernel keeps the addresses that its tensors have when it is invoked first.",
        "MEM-05",
        _OPERAND,
        "  void** kept = &((Kernel*)kernel)->kept[index % 256];\n"
        "  if (!*kept) *kept = tensor->data;\n"
        "  return (Operand){tensor, inside ? inside : *kept};\n",
        (_KERNEL, f"{_KERNEL}  void* kept[256];\n"),
    ),
    "clears-at-its-end": _fault(
        "The delegate clears its last result when it is destroyed.",
        "MEM-14",
        _COMPUTED,
        f"{_COMPUTED}    last = out.data;\n    last_bytes = out.tensor->bytes;\n",
        (_INVOKE, f"static void* last;\nstatic size_t last_bytes;\n\n{_INVOKE}"),
        (_DESTROYED, f"  if (last) memset(last, 0, last_bytes);\n  last = NULL;\n{_DESTROYED}"),
    ),
    "requests-elements": _fault(
        "Each step has work memory of as many bytes as it has elements, and writes eight for each.",
        "MEM-15",
        _COMPUTED,
        f"    char* work = malloc(count + 1);\n    memset(work, 0xA5, 8 * count);\n"
        f"{_COMPUTED}    free(work);\n",
    ),
    "uses-freed-work": _fault(
        "Each step clears the work memory that the one before has freed.",
        "MEM-15",
        _COMPUTED,
        f"    static char* work;\n    static size_t last;\n    if (work) memset(work, 0, last);\n"
        f"    work = malloc(8 * count + 1);\n    last = 8 * count;\n{_COMPUTED}    free(work);\n",
    ),
    "reads-freed-units": _fault(
        "Each step multiplies its first float by a unit that it has freed.",
        "MEM-15",
        _COMPUTED,
        f"    float* units = malloc(2 * sizeof(float));\n    units[0] = units[1] = 1;\n    free(units);\n"
        f"{_COMPUTED}    if (out.tensor->type == kFloat32 && count) *(float*)out.data *= units[0];\n",
    ),
}
"""By name."""


def built(name: str, folder: Path) -> Path:
    """Build the library with a fault into the folder.

    Raises:
        ValueError: what the fault replaces does not stand in the source once.
    """
    return faults.build(folder, "delegate", name, faults.replaced(name, LOST[name]))

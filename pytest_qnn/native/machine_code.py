"""The machine code of C sources beside this file, for who uses it without a compiler.

    python -m pytest_qnn.native.machine_code crash_handler

prints that of `crash_handler.c`, in base64. `pytest_qnn/isolation/evidence/crash_handler.py` has it as text,
`refusals.py`, `call_threads.py` and `checked_heap.py` of `pytest_qnn/isolation/host` have those of the
sources of these names: they are made again when their source changes.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SOURCES: Final = {
    name: Path(__file__).with_name(f"{name}.c")
    for name in ("crash_handler", "refusals", "call_threads", "checked_heap")
}
_FLAGS: Final = (
    *(
        "-std=c11",
        "-Os",
        "-fPIC",
        "-ffreestanding",
        "-fno-builtin",
        "-mgeneral-regs-only",
        "-fno-jump-tables",
        "-Wall",
        "-Wextra",
    ),
    *("-Werror", "-fno-stack-protector", "-fcf-protection=none", "-fno-asynchronous-unwind-tables"),
)
_LAYOUT: Final = "SECTIONS { . = 0; .code : { *(.entry) *(.text*) *(.tail) } /DISCARD/ : { *(*) } }"
"""For the linker: the entry first, and nothing but the code."""


def compiled(source: Path) -> bytes:
    """The machine code of a source, for Linux on x86-64.

    Raises:
        OSError: there is no gcc, or no ld.
        subprocess.CalledProcessError: it does not compile.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "layout").write_text(_LAYOUT)
        _run(["gcc", *_FLAGS, "-c", "-o", f"{folder}/object", str(source)])
        _run(
            [
                "ld",
                "-T",
                f"{folder}/layout",
                "--oformat",
                "binary",
                "-o",
                f"{folder}/code",
                f"{folder}/object",
            ]
        )
        return (folder / "code").read_bytes()


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    print(base64.b64encode(compiled(SOURCES[sys.argv[1]])).decode())

"""The machine code of `crash_handler.c`, for `pytest_qnn/isolation/evidence/crash_handler.py`.

    python -m pytest_qnn.native.crash_handler

prints it in base64. Whoever uses the code needs no compiler: it is made when its source changes.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_suffix(".c")
_FLAGS: Final = (
    *(
        "-std=c11",
        "-Os",
        "-fPIC",
        "-ffreestanding",
        "-fno-builtin",
        "-mgeneral-regs-only",
        "-Wall",
        "-Wextra",
    ),
    *("-Werror", "-fno-stack-protector", "-fcf-protection=none", "-fno-asynchronous-unwind-tables"),
)
_LAYOUT: Final = "SECTIONS { . = 0; .code : { *(.entry) *(.text*) *(.tail) } /DISCARD/ : { *(*) } }"
"""For the linker: the entry first, and nothing but the code."""


def compiled(source: Path) -> bytes:
    """The machine code of the handler's source.

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
    print(base64.b64encode(compiled(SOURCE)).decode())

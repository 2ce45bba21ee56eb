"""Shows a finding on a TensorFlow Lite delegate, with the runtime and numpy alone."""

import ctypes
import importlib
import json
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

HERE = Path(__file__).resolve().parent
PLAN: dict[str, Any] = {}
"""What is done, step by step, and what is looked at; made from the case."""
SECONDS = 30


def runtime() -> Any:
    """The interpreter's module of the runtime that is installed."""
    names = [PLAN["runtime"], "tflite_runtime", "ai_edge_litert"]
    for name in names:
        try:
            return importlib.import_module(f"{name}.interpreter")
        except ImportError:  # noqa: PERF203
            continue
    raise SystemExit("neither tflite_runtime nor ai_edge_litert is installed")


class Failed(Exception):  # noqa: N818 - what it says
    """A step failed; the text is the runtime's."""


class Player:
    """Carries out the steps."""

    def __init__(self, library: str, options: dict[str, str], judge: TextIO) -> None:
        self.judge = judge
        self.module = runtime()
        self.library, self.options = library, options
        self.arrays: Any = np.load(HERE / "reproduce.npz", allow_pickle=False)
        self.delegates: dict[str, Any] = {}
        self.interpreters: dict[str, Any] = {}
        self.results: list[dict[str, Any]] = []
        self.words = control_words()

    def play(self, steps: Sequence[Sequence[Any]]) -> None:
        """Carry out the steps in order; one that fails is told of."""
        for number, (name, *arguments) in enumerate(steps):
            self.tell(begun=number, name=name)
            try:
                getattr(self, name)(*arguments)
            except (RuntimeError, ValueError, OSError) as error:
                self.tell(failed=number, name=name, text=str(error))
                raise Failed(str(error)) from None
            self.look(name)

    def look(self, name: str) -> None:
        """Tell of the control words of the floating-point unit, where they are no more those of the start."""
        words = control_words()
        if words != self.words:
            self.tell(control=words, name=name)

    def tell(self, **said: Any) -> None:
        """A line for the process that judges."""
        self.judge.write(json.dumps(said) + "\n")
        self.judge.flush()

    def delegate(self, name: str, options: dict[str, str]) -> None:
        """Make a delegate of the library."""
        self.delegates[name] = self.module.load_delegate(self.library, self.options | options)

    def open(self, name: str, model: str, delegates: Sequence[str], resolver: str, threads: int) -> None:
        """Make an interpreter, with delegates in order."""
        kinds = {"bare": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "default": "AUTO", "reference": "BUILTIN_REF"}
        self.interpreters[name] = self.module.Interpreter(
            model_path=str(HERE / model),
            experimental_delegates=[self.delegates[each] for each in delegates] or None,
            experimental_op_resolver_type=getattr(self.module.OpResolverType, kinds[resolver]),
            num_threads=threads,
        )

    def allocate(self, name: str) -> None:
        """allocate_tensors."""
        self.interpreters[name].allocate_tensors()

    def resize(self, name: str, tensor: int, shape: Sequence[int], strict: bool) -> None:
        """resize_tensor_input."""
        self.interpreters[name].resize_tensor_input(tensor, shape, strict=strict)

    def set(
        self, name: str, tensors: Sequence[int], arrays: Sequence[str], shapes: Sequence[Sequence[int]] = ()
    ) -> None:
        """set_tensor of each; with shapes the contents are repeated."""
        for tensor, array, shape in zip(tensors, arrays, shapes or [()] * len(arrays), strict=True):
            values = self.arrays[array]
            self.interpreters[name].set_tensor(tensor, np.resize(values, shape) if shapes else values)

    def poison(self, name: str, tensors: Sequence[int], byte: int) -> None:
        """Fill outputs with a byte, so that what is not written shows."""
        for tensor in tensors:
            view = self.interpreters[name].tensor(tensor)()
            if view.size and view.shape:
                view.view(np.uint8)[...] = byte
            del view

    def invoke(self, name: str) -> None:
        """Compute."""
        self.interpreters[name].invoke()

    def read(self, name: str, tensor: int, index: Sequence[int]) -> None:
        """An element of a tensor, and the tensor's shape."""
        values = self.interpreters[name].get_tensor(tensor)
        inside = len(index) == values.ndim and all(
            at < size for at, size in zip(index, values.shape, strict=True)
        )
        element = float(values[tuple(index)]) if inside else None
        self.tell(read=tensor, element=repr(element), shape=list(values.shape))

    def close(self, name: str) -> None:
        """End an interpreter."""
        del self.interpreters[name]

    def destroy(self, name: str) -> None:
        """End a delegate."""
        del self.delegates[name]

    def repeat(self, times: int, steps: Sequence[Sequence[Any]]) -> None:
        """The steps, so many times."""
        for _ in range(times):
            for name, *arguments in steps:
                getattr(self, name)(*arguments)

    def measure(self) -> None:
        """What the process holds."""
        self.tell(
            measured={
                "fds": len(os.listdir("/proc/self/fd")),
                "threads": len(os.listdir("/proc/self/task")),
                "mappings": len(Path("/proc/self/maps").read_text(errors="replace").splitlines()),
                "malloc": malloc_in_use(),
            }
        )


def control_words() -> list[int]:
    """The x87 control word and the control bits of MXCSR of this thread; empty where there are none."""
    if platform.machine() != "x86_64":
        return []
    environment = ctypes.create_string_buffer(32)  # fenv_t of x86-64
    ctypes.CDLL("libm.so.6").fegetenv(environment)
    x87, mxcsr = struct.unpack_from("<H26xI", environment)
    return [x87 & 0x0F7F, mxcsr & 0xFFC0]


def malloc_in_use() -> int:
    """Bytes that glibc's malloc has given out; 0 where it cannot be asked."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return 0
    function.restype = Mallinfo2
    found = function()
    return int(found.hblkhd + found.uordblks)


class Mallinfo2(ctypes.Structure):
    """glibc's struct mallinfo2: ten numbers of type size_t."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )


def child(library: str, options: dict[str, str]) -> int:
    """Carry out the steps, in a process of their own."""
    # What a library prints is none of the lines that are judged.
    judge = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    player = Player(library, options, judge)
    try:
        player.play(PLAN["steps"])
    except Failed:
        return 0
    if PLAN.get("ends"):  # in good order, with whatever is alive
        player.tell(done=True)
        ctypes.CDLL(None).exit(0)
    player.interpreters.clear()
    player.delegates.clear()
    player.look("the end")
    player.tell(done=True)
    return 0


def told(output: bytes) -> list[dict[str, Any]]:
    """The lines of the child; the last one may be cut off."""
    lines = []
    for line in output.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # noqa: PERF203
            continue
    return lines


def judged(status: int | None, lines: list[dict[str, Any]]) -> int:
    """1: what was found is seen, 0: it is not, 2: it cannot be told."""
    look = PLAN["look"]
    done = any(each.get("done") for each in lines)
    failed = next((each for each in lines if "failed" in each), None)
    if status is None:
        return 1 if look["kind"] == "hang" else 2
    if status < 0:
        print(f"the process died of signal {-status}")
        return 1 if look["kind"] == "signal" and look["signal"] == -status else 2
    if failed is not None:
        print(f"{failed['name']} fails: {failed['text'].encode('unicode_escape').decode()}")
        if failed["name"] == "delegate":  # it cannot be loaded, or does not take its options
            return 2
    if look["kind"] == "status":
        # -1: whichever step it was that failed.
        return int(failed is not None and look["step"] in (-1, failed["failed"])) if failed or done else 2
    if look["kind"] in ("signal", "hang"):
        return 0 if done or failed else 2
    judges = {"element": of_element, "shape": of_shape, "growth": of_growth, "control": of_control}
    return judges[look["kind"]](look, lines)


def of_shape(look: dict[str, Any], lines: list[dict[str, Any]]) -> int:
    """Whether the tensor has the shape that was found, and not the one that was expected."""
    reads = [each for each in lines if "read" in each]
    if not reads:
        return 2
    print(f"tensor {reads[-1]['read']}: shape {reads[-1]['shape']}")
    print(f"  expected {look['expected']}, found then {look['seen']}")
    return int(reads[-1]["shape"] == look["seen"])


def of_element(look: dict[str, Any], lines: list[dict[str, Any]]) -> int:
    """Whether the element is off by more than it may be."""
    reads = [each for each in lines if "read" in each]
    if not reads:
        return 2
    print(f"tensor {reads[-1]['read']} of shape {reads[-1]['shape']}, element {look['index']}:")
    print(f"  expected {look['expected']} +- {look['tolerance']}, found then {look['seen']}")
    print(f"  seen now {reads[-1]['element']}")
    if reads[-1]["element"] == "None":
        return 2
    seen, expected = float(reads[-1]["element"]), float(look["expected"])
    good = seen == expected or abs(seen - expected) <= float(look["tolerance"])
    return 0 if good or (np.isnan(seen) and np.isnan(expected)) else 1


def of_control(look: dict[str, Any], lines: list[dict[str, Any]]) -> int:
    """Whether a step has left the control words that were found, and the first that did."""
    changed = [each for each in lines if "control" in each]
    for each in changed[:1]:
        x87, mxcsr = each["control"]
        print(f"{each['name']} leaves x87 control word {x87:#x}, MXCSR {mxcsr:#x}")
    if any(each["control"] == look["words"] for each in changed):
        return 1
    return 0 if any("done" in each or "failed" in each for each in lines) else 2


def of_growth(look: dict[str, Any], lines: list[dict[str, Any]]) -> int:
    """Whether what the process holds has grown by as much as a leak makes it grow."""
    found = [each["measured"][look["what"]] for each in lines if "measured" in each]
    if len(found) <= look["last"]:
        return 2
    grown = found[look["last"]] - found[look["first"]]
    print(f"{look['what']}: {grown} more after {look['turns']} turns; a leak is {look['least']}")
    return int(grown >= look["least"])


def main(arguments: Sequence[str]) -> int:
    """Run the steps in a child, and judge."""
    if arguments[:1] == ["--child"]:
        return child(arguments[1], json.loads(arguments[2]))
    if not arguments:
        print("usage: python reproduce.py DELEGATE.so [KEY=VALUE ...]")
        return 2
    if not all("=" in each for each in arguments[1:]):
        print("an option of the delegate is written KEY=VALUE")
        return 2
    options = dict(each.split("=", 1) for each in arguments[1:])
    command = [sys.executable, str(HERE / "reproduce.py"), "--child", arguments[0], json.dumps(options)]
    status: int | None = None
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS, check=False)
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    lines = told(output)
    for line in lines:
        print(json.dumps(line))
    result = judged(status, lines)
    # Then: when it was found. What is seen now stands above.
    print(f"\nexpected:  {PLAN['expected']}\nseen then: {PLAN['seen']}")
    words = ["0: this is not seen here", "1: this is seen here", "2: whether it is so cannot be told here"]
    print(words[result])
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

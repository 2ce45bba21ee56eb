"""The gallery's external delegates: plugin.c, once for each freedom, built when they are asked for."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

HEADER = "tflite/delegates/external/external_delegate_interface.h"
_HERE = Path(__file__).parent
_ABI = Path(__file__).parents[3] / "examples" / "delegate_repo" / "src"
_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-ffp-contract=off",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
)


@dataclasses.dataclass(frozen=True)
class PluginOddity:
    """A conforming library; as `tests.gallery.tflite.odd.Oddity`."""

    name: str
    freedom: str
    source: str
    seen: str
    meant: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """For the compiler, besides its macro."""

    @property
    def macro(self) -> str:
        """What plugin.c is compiled with."""
        return f"-DODD_{self.name.removeprefix('c-').upper().replace('-', '_')}"


PLUGINS: dict[str, PluginOddity] = {
    one.name: one
    for one in (
        PluginOddity(
            "c-stateless",
            "its kernels have invoke alone, and find what they compute by their node",
            "common.h, TfLiteRegistration.init may be NULL; tflite/core/subgraph.cc, AddNodeWithParameters",
            "no callback before invoke",
        ),
        PluginOddity(
            "c-worker",
            "computes on a thread of the delegate's, from create to destroy",
            "facts/tflite-delegates.md 12, THR-05: no thread is left after destroy",
            "one more thread",
        ),
        PluginOddity(
            "c-reaper",
            "gives a delegate's memory back on another thread 20 ms after destroy, and stays loaded",
            "legal-choices.md: what is given back by a worker within a second of the call is given back",
            "memory and a thread outlive destroy by 20 ms; the library cannot be unloaded",
            flags=("-Wl,-z,nodelete",),
        ),
        PluginOddity(
            "c-slots",
            "has 256 delegates in static memory, and refuses a further one with a reason",
            HEADER + ": 'On success, returns a non-null value', whatever memory it is in",
            "no memory is taken; NULL when all are in use",
        ),
        PluginOddity(
            "c-one",
            "has one delegate in static memory, and refuses another with a reason while it lives",
            HEADER + ": NULL, with a report, is an answer of create",
            "NULL for a second delegate",
            meant=("OWN-06",),
        ),
        PluginOddity(
            "c-mapped",
            "maps memory for each kernel and each result inside it",
            "common.h: no document says which allocator a kernel uses",
            "mappings come and go",
        ),
        PluginOddity(
            "c-slow",
            "takes 2 ms for create, 2 ms for Prepare and 1 ms for each init",
            "no document limits the time that a callback takes; legal-choices.md",
            "making and applying a delegate takes longer",
        ),
        PluginOddity(
            "c-cache",
            "keeps what it made of the last 32 partitions, for all delegates of the process",
            "seed 004: state of the process; legal-choices.md: a bounded pool that is kept is no leak",
            "memory of the first partitions is not given back",
        ),
        PluginOddity(
            "c-first-invoke",
            "takes memory for what is inside a partition in the first invoke after a prepare",
            "common.h, TfLiteRegistration.init: one-time allocations should, not must, be made there",
            "the first invoke allocates",
        ),
        PluginOddity(
            "c-per-operator",
            "claims by a call for each operator, with different functions and versions, and no name",
            "facts/tflite-delegates.md: several Replace calls within one Prepare are legal; WithoutName",
            "kernels of one operator each",
            ("PART-15", "LIFE-13"),
        ),
        PluginOddity(
            "c-fma",
            "rounds a product and the sum that takes it once",
            "ISO C 6.5, contracted expressions; seed 003: what is inside a partition is the delegate's",
            "last bits of a MUL and ADD in one partition",
            ("NUM-01",),
            flags=("-lm",),
        ),
        PluginOddity(
            "c-dynamic",
            "allows dynamic tensors, claims NEG, ABS and RELU, and resizes its outputs in prepare",
            "common.h, kTfLiteDelegateFlagsAllowDynamicTensors",
            "kernels stay while shapes change",
        ),
        PluginOddity(
            "c-handles",
            "keeps its results in numbered buffers, from 0, and copies them when they are asked for",
            "common.h, TfLiteDelegate.CopyFromBufferHandle; CopyToBufferHandle may be NULL",
            "outputs are stale until they are read",
        ),
        PluginOddity(
            "c-options",
            "has three options, and refuses others with two reports that have percent signs",
            HEADER + ": 'with the detailed information reported by calling report_error if provided'",
            "a long text of the exception",
        ),
        PluginOddity(
            "c-thread-local",
            "has a block of memory for each thread that invokes, which grows and goes with the thread",
            "common.h names no thread for any callback",
            "memory stays with the thread",
        ),
        PluginOddity(
            "c-constructor",
            "opens a device file when it is loaded",
            "seed 003: 'any initialization code needed', with no word on when",
            "an open file as long as it is loaded",
        ),
        PluginOddity(
            "c-interior",
            "gives a TfLiteDelegate that lies within a larger object, and is stripped",
            HEADER + ": destroy is given what create returned; common.h, data_: the delegate's own",
            "nothing",
            flags=("-s", "-static-libgcc"),
        ),
        PluginOddity(
            "c-long-partitions",
            "previews its claim and leaves partitions of one node to the CPU",
            "facts/tflite-delegates.md 11, 31: TestDelegationWithPartitionPreview of delegate_test.cc",
            "single nodes stay on the CPU",
        ),
    )
}


@functools.cache
def _folder() -> Path:
    """Where the libraries of this process are; removed with it."""
    folder = Path(tempfile.mkdtemp(prefix="gallery-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def library(name: str) -> Path:
    """The library of an oddity, with its counter beside it.

    Raises:
        CalledProcessError: the compiler fails.
    """
    one, path = PLUGINS[name], _folder() / f"lib{name}.so"
    _counter(name).write_bytes(bytes(8))
    macros = (one.macro, f'-DMET_FILE="{_counter(name)}"')
    command = ["gcc", *_FLAGS, f"-I{_ABI}", *macros, "-o", str(path), str(_HERE / "plugin.c")]
    subprocess.run([*command, *one.flags, "-lpthread", "-lm"], check=True, timeout=120)
    return path


def _counter(name: str) -> Path:
    return _folder() / f"{name}.met"


def met(name: str) -> int:
    """How often the library has used its freedom, in whatever process."""
    counter = _counter(name)
    return int(struct.unpack("q", counter.read_bytes())[0]) if counter.exists() else 0

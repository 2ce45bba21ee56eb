"""A library whose heap is checked: what it may do with blocks and mappings, and what ends its process."""

from __future__ import annotations

import contextlib
import platform
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import native_plugins
import pytest
from fast_run import later

from pytest_qnn.core.engine import judge
from pytest_qnn.core.profile import Profile
from pytest_qnn.core.verdict import Outcome, Verdict
from pytest_qnn.isolation.host import checked_heap
from pytest_qnn.native import machine_code
from pytest_qnn.qnn.target import open_memory_target
from pytest_qnn.rules import catalogue
from pytest_qnn.tflite.target import open_delegate_target
from tests.faults import faults

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64" or sys.platform != "linux", reason="the machine code is of x86-64"
    ),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)"),
]

SOURCE = """
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <vector>

#define DOES(name) extern "C" int name()
static volatile char sink;
static char* bytes(size_t n) { return static_cast<char*>(malloc(n)); }
static char* pages(size_t n) {
  return static_cast<char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
struct alignas(64) Wide { char content[70]; };

// Each gives 0 where all is as it should be.
DOES(uses_all_of_it) {
  for (size_t n = 0; n < 300; ++n) {
    char* p = bytes(n);
    memset(p, 1, n);
    if (malloc_usable_size(p) < n || reinterpret_cast<size_t>(p) % 16) return 1;
    free(p);
  }
  free(nullptr);
  return 0;
}
DOES(has_another_size) {
  char* p = static_cast<char*>(realloc(nullptr, 10));
  memset(p, 7, 10);
  p = static_cast<char*>(realloc(p, 5000));
  for (int i = 0; i < 10; ++i) if (p[i] != 7) return 1;
  memset(p, 8, 5000);
  p = static_cast<char*>(reallocarray(p, 3, 5));
  for (int i = 0; i < 15; ++i) if (p[i] != 8) return 2;
  free(p);
  return 0;
}
DOES(is_aligned_and_zero) {
  void* p = nullptr;
  if (posix_memalign(&p, 256, 100) || reinterpret_cast<size_t>(p) % 256) return 1;
  free(p);
  p = aligned_alloc(1024, 2048);
  if (reinterpret_cast<size_t>(p) % 1024) return 2;
  free(p);
  char* zero = static_cast<char*>(calloc(11, 13));
  for (int i = 0; i < 11 * 13; ++i) if (zero[i]) return 3;
  free(zero);
  char* text = strdup("hello");
  char* part = strndup(text, 3);
  if (strcmp(text, "hello") || strcmp(part, "hel")) return 4;
  free(text);
  free(part);
  return 0;
}
DOES(is_of_cpp) {
  std::string text(100, 'x');
  for (int i = 0; i < 100; ++i) text += text.substr(0, 7);
  std::vector<std::string> many(50, text);
  many.erase(many.begin(), many.begin() + 20);
  Wide* wide = new Wide[3];
  if (reinterpret_cast<size_t>(wide) % 64) return 1;
  delete[] wide;
  int* one = new (std::nothrow) int(5);
  delete one;
  return many.size() != 30 || many[7] != text;
}
DOES(maps_at_a_place_again) {
  char* p = pages(8192);
  munmap(p, 4096);
  munmap(p + 4096, 4096);
  const int fixed = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
  p = static_cast<char*>(mmap(p, 4096, PROT_READ | PROT_WRITE, fixed, -1, 0));
  memset(p, 1, 4096);
  return munmap(p, 4096);
}
DOES(writes_a_byte_behind) { char* p = bytes(33); p[33] = 1; free(p); return 1; }
DOES(writes_far_behind) { char* volatile p = bytes(33); p[48] = 1; return 1; }
DOES(reads_behind) { char* volatile p = bytes(64); sink = p[64]; return 1; }
DOES(writes_before) { char* p = bytes(8); p[-1] = 1; free(p); return 1; }
DOES(reads_freed) { char* volatile p = bytes(8); free(p); sink = p[3]; return 1; }
DOES(frees_twice) { char* volatile p = bytes(8); free(p); free(p); return 1; }
DOES(frees_the_middle) { char* volatile p = bytes(8); free(p + 1); return 1; }
DOES(reads_what_grew) { char* volatile p = bytes(8); bytes(1); sink = *(char*)realloc(p, 99) + *p; return 1; }
DOES(deletes_twice) { int* volatile p = new int; delete p; delete p; return 1; }
DOES(unmaps_twice) { char* p = pages(8192); munmap(p, 8192); munmap(p + 4096, 4096); return 1; }
DOES(reads_unmapped) { char* volatile p = pages(4096); munmap(p, 4096); sink = *p; return 1; }
"""
RIGHT = ["uses_all_of_it", "has_another_size", "is_aligned_and_zero", "is_of_cpp", "maps_at_a_place_again"]
WRONG = {
    "writes_a_byte_behind": (signal.SIGABRT, "written behind the end of a block; it has 33 B"),
    "writes_far_behind": (signal.SIGSEGV, ""),
    "reads_behind": (signal.SIGSEGV, ""),
    "writes_before": (signal.SIGABRT, "written before the beginning of a block; it has 8 B"),
    "reads_freed": (signal.SIGSEGV, ""),
    "frees_twice": (signal.SIGABRT, "a block is freed twice; it has 8 B"),
    "frees_the_middle": (signal.SIGABRT, "what is freed is no beginning of a block"),
    "reads_what_grew": (signal.SIGSEGV, ""),
    "deletes_twice": (signal.SIGABRT, "a block is freed twice; it has 4 B"),
    "unmaps_twice": (signal.SIGABRT, "a mapping is unmapped twice; it has 4096 B"),
    "reads_unmapped": (signal.SIGSEGV, ""),
}
"""What it does -> how the process ends, and what it says."""
PROGRAM = """
import ctypes, os, sys
from pytest_qnn.isolation.host.checked_heap import CheckedHeap, seen

path, *names = sys.argv[1:]
library = ctypes.CDLL(path)
heap = CheckedHeap(library, path)
for name in names:
    if not (child := os.fork()):
        before = getattr(library, name)() if name == "uses_all_of_it" else 0
        with heap.during():
            code = getattr(library, name)()
        os._exit(100 if before or code or not any(seen()) else 0)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print("behind", name, file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """What became of each process, and what it said."""
    folder = tmp_path_factory.mktemp("heap")
    (folder / "source.cpp").write_text(SOURCE)
    library = folder / "library.so"
    command = ["g++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(folder / "source.cpp")], check=True)
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(library), *RIGHT, *WRONG]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    said: dict[str, str] = {}
    rest = done.stderr
    for name in (*RIGHT, *WRONG):
        said[name], _, rest = rest.partition(f"behind {name}\n")
    codes = dict(line.split() for line in done.stdout.splitlines())
    return {name: (int(codes[name]), said[name]) for name in codes}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_allowed_goes_on_as_ever(ends: dict[str, tuple[int, str]], name: str) -> None:
    assert ends[name] == (0, "")


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_allowed_ends_the_process(ends: dict[str, tuple[int, str]], name: str) -> None:
    how, said = WRONG[name]
    code, text = ends[name]
    assert code == -how
    assert (said in text) if said else not text


def test_the_machine_code_is_that_of_its_source() -> None:
    assert machine_code.compiled(machine_code.SOURCES["checked_heap"]) == checked_heap.CODE


LESS = {
    "IN_INVOKE": "char* volatile work = malloc(out->bytes - 1); work[out->bytes - 1] = 1; free((void*)work)"
}
KEPT = {
    "IN_PREPARE": "static char* volatile last; if (last) last[0] = 1; last = malloc(40); free((void*)last)"
}


def judged(folder: Path, runtime: str, mode: str = "auto", **macros: str) -> Verdict:
    library = native_plugins.plugin(folder, **macros)
    target = open_delegate_target([(str(library), {})], runtime, mode, 10.0)
    try:
        return judge(catalogue()["MEM-15"], target, Profile("few", 6, 6), seed=1)
    finally:
        target.close()


@pytest.mark.parametrize("runtime", ["tflite_runtime", later("ai_edge_litert")])
def test_a_plugin_that_does_not_exceed_its_blocks_passes(tmp_path: Path, runtime: str) -> None:
    verdict = judged(tmp_path, runtime)
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.examined > 10


@pytest.mark.parametrize(
    ("macros", "seen"),
    [
        (LESS, "of a block"),
        later(KEPT, "behind the end of a block that was requested, or in one that was freed"),
    ],
)
def test_a_plugin_that_does_is_found_where_it_does(tmp_path: Path, macros: dict[str, str], seen: str) -> None:
    verdict = judged(tmp_path, "ai_edge_litert", **macros)
    assert verdict.outcome is Outcome.CRASH, verdict
    assert verdict.finding is not None
    assert seen in verdict.finding.seen
    assert any("libplugin" in frame.file for frame in verdict.finding.evidence.frames)


MAPPED = "munmap(((Memory*)ended)->data, ((Memory*)ended)->length);"
UNMAPS_TWICE = f"{{ {MAPPED} {MAPPED} }}"
NAMED = "char* copy = strdup(name);"
WITHOUT_END = "char* copy = malloc(strlen(name)); if (copy) strcpy(copy, name);"


@pytest.mark.parametrize(
    ("piece", "by", "seen"),
    [
        (NAMED, NAMED, None),
        (MAPPED, UNMAPS_TWICE, "a mapping is unmapped twice"),
        later(NAMED, WITHOUT_END, "of a block"),
    ],
)
def test_a_backend_in_c_is_judged(tmp_path: Path, piece: str, by: str, seen: str | None) -> None:
    source = faults.conforming("memory")
    assert source.count(piece) == 1
    library = faults.build(tmp_path, "memory", "heap", source.replace(piece, by))
    target = open_memory_target(str(library), "emulated", "auto", 10.0)
    try:
        verdict = judge(catalogue()["IF-17"], target, Profile("few", 10, 10), seed=1)
    finally:
        target.close()
    assert verdict.outcome is (Outcome.CRASH if seen else Outcome.PASS), verdict
    if seen is None:
        assert verdict.examined > 100
    else:
        assert verdict.finding is not None
        assert seen in verdict.finding.seen
        assert any("libheap" in frame.file for frame in verdict.finding.evidence.frames)


def test_without_a_process_of_its_own_it_is_not_judged(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "tflite_runtime", "off", **LESS)
    assert verdict.outcome is Outcome.UNSUPPORTED, verdict


@pytest.mark.parametrize("rule_id", ["MEM-15", "IF-17"])
def test_where_there_is_no_place_for_blocks_it_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, rule_id: str
) -> None:
    monkeypatch.setattr(checked_heap, "_CODE_AT", [])
    monkeypatch.setattr(checked_heap, "_reserved", lambda *_: 0)
    if rule_id == "IF-17":
        target: Any = open_memory_target("reference", "emulated", "off", 10.0)
    else:
        target = open_delegate_target([("reference", {})], "auto", "off", 10.0)
    with contextlib.closing(target):
        verdict = judge(catalogue()[rule_id], target, Profile("few", 4, 4), seed=1)
    assert verdict.outcome is Outcome.UNSUPPORTED, verdict
    assert verdict.reason == "what a library does with its heap cannot be checked: there is no space for it"
    # What was there before the refusal, or comes after it, is as it would be without.
    monkeypatch.undo()
    with contextlib.closing(open_memory_target("reference", "emulated", "off", 10.0)) as again:
        assert judge(catalogue()["IF-17"], again, Profile("few", 4, 4), seed=1).outcome is Outcome.PASS

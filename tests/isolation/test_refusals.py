"""Requests of a library that are refused: the nth and no other, of the library and of nobody else."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import subprocess
import sys
import textwrap

import pytest

from pytest_qnn.isolation.host import refusals
from pytest_qnn.native import machine_code

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64" or sys.platform != "linux", reason="the machine code is of x86-64"
    ),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)"),
]

SOURCE = """
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <pthread.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

static void* nothing(void*) { return nullptr; }
static void* (*volatile kept)(size_t) = malloc;

// How many of `count` requests of a kind fail, and in `error` what the last that failed has set or returned.
extern "C" int asks(const char* kind, int count, int* error) {
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    errno = 0;
    int code = -1;
    bool ok = true;
    if (!strcmp(kind, "malloc")) {
      void* got = malloc(16);
      ok = got != nullptr;
      free(got);
    } else if (!strcmp(kind, "variable")) {
      void* got = kept(16);
      ok = got != nullptr;
      free(got);
    } else if (!strcmp(kind, "posix_memalign")) {
      void* got = nullptr;
      code = posix_memalign(&got, 64, 64);
      ok = code == 0;
      free(got);
    } else if (!strcmp(kind, "new")) {
      try {
        delete[] new char[100];
      } catch (const std::bad_alloc&) {
        ok = false;
      }
    } else if (!strcmp(kind, "nothrow")) {
      char* got = new (std::nothrow) char[100];
      ok = got != nullptr;
      delete[] got;
    } else if (!strcmp(kind, "mmap")) {
      void* got = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ok = got != MAP_FAILED;
      if (ok) munmap(got, 4096);
    } else if (!strcmp(kind, "dup") || !strcmp(kind, "fcntl")) {
      int got = *kind == 'd' ? dup(0) : fcntl(0, F_DUPFD_CLOEXEC, 0);
      ok = got >= 0;
      if (ok) close(got);
    } else if (!strcmp(kind, "flags")) {
      ok = fcntl(0, F_GETFD) >= 0;
    } else {
      pthread_t thread;
      code = pthread_create(&thread, nullptr, nothing, nullptr);
      ok = code == 0;
      if (ok) pthread_join(thread, nullptr);
    }
    if (ok) continue;
    ++failed;
    *error = code > 0 ? code : errno;
  }
  return failed;
}

extern "C" void throws() {
  static char* volatile made;
  made = new char[100];
  throw std::runtime_error("not by us");
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    folder = tmp_path_factory.mktemp("asking")
    (folder / "asking.cc").write_text(SOURCE)
    path = folder / "libasking.so"
    command = ["g++", "-O1", "-shared", "-fPIC", "-pthread", "-Wl,-z,relro,-z,now", "-fno-builtin"]
    subprocess.run([*command, "-o", path, folder / "asking.cc"], check=True)
    ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(path), str(path)


def asks(library: ctypes.CDLL, kind: str, count: int) -> tuple[int, int]:
    error = ctypes.c_int()
    failed: int = library.asks(kind.encode(), count, ctypes.byref(error))
    return failed, error.value


KINDS: tuple[tuple[refusals.Wanted, str, int], ...] = (
    ("memory", "malloc", errno.ENOMEM),
    ("memory", "variable", errno.ENOMEM),
    ("memory", "posix_memalign", errno.ENOMEM),
    ("new", "new", 0),
    ("memory", "nothrow", 0),
    ("mapping", "mmap", errno.ENOMEM),
    ("descriptor", "dup", errno.EMFILE),
    ("descriptor", "fcntl", errno.EMFILE),
    ("thread", "pthread_create", errno.EAGAIN),
)


@pytest.mark.parametrize(("wanted", "kind", "error"), KINDS)
def test_the_nth_request_is_refused_and_if_it_lasts_those_behind_it(
    library: tuple[ctypes.CDLL, str], wanted: refusals.Wanted, kind: str, error: int
) -> None:
    loaded, path = library
    refusing = refusals.Refusals(loaded, path)
    for nth, lasting, failed in ((1, False, 1), (3, False, 1), (3, True, 3), (6, True, 0)):
        with refusing.during(wanted, nth, lasting=lasting):
            assert asks(loaded, kind, 5) == (failed, error if failed else 0)
        assert refusing.asked >= 5
        assert refusing.refused == failed
    assert asks(loaded, kind, 5) == (0, 0)


@pytest.mark.parametrize("kind", ["malloc", "mmap", "dup", "pthread_create"])
def test_what_is_not_wanted_and_what_others_ask_for_is_not_refused(
    library: tuple[ctypes.CDLL, str], kind: str
) -> None:
    loaded, path = library
    refusing = refusals.Refusals(loaded, path)
    other: refusals.Wanted = "mapping" if kind != "mmap" else "memory"
    with refusing.during(other, 1, lasting=True):
        assert asks(loaded, kind, 3) == (0, 0)
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        assert libc.malloc(16)
        os.close(os.dup(0))


def test_commands_of_fcntl_that_make_no_descriptor_are_no_requests(library: tuple[ctypes.CDLL, str]) -> None:
    loaded, path = library
    refusing = refusals.Refusals(loaded, path)
    with refusing.during("descriptor", 1, lasting=True):
        assert asks(loaded, "flags", 3) == (0, 0)
    assert (refusing.asked, refusing.refused) == (0, 0)


def test_an_exception_that_nobody_catches_ends_the_process(library: tuple[ctypes.CDLL, str]) -> None:
    script = f"""
        import ctypes
        from pytest_qnn.isolation.host.refusals import Refusals
        ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL({library[1]!r})
        with Refusals(library, {library[1]!r}).during("new", 1, lasting=False):
            library.throws()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -6
    assert "std::bad_alloc" in done.stderr


def test_the_machine_code_is_that_of_the_source() -> None:
    version = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout
    if version.strip() != "12.2.0":
        pytest.skip("another compiler makes other code of the same source")
    assert machine_code.compiled(machine_code.SOURCES["refusals"]) == refusals.CODE


def test_another_machine_is_said_to_lack_it(
    library: tuple[ctypes.CDLL, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_CODE_AT", [])
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(refusals.Lacking, match="x86-64"):
        refusals.Refusals(*library)

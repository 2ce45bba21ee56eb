"""What a fault in C++ needs: memory by operator new, with and without a way out for its exception."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = """
#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>
extern "C" void* throwing(std::size_t size) { return std::memset(operator new(size), 0, size); }
extern "C" void* catching(std::size_t size) {
  try {
    return throwing(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
extern "C" void out_of_range() { throw std::out_of_range("the third of two steps"); }
extern "C" void give_back(void* memory) { operator delete(memory); }
"""
"""In one way an exception leaves the function that asks for memory, in the other none does."""


def compiled(name: str, folder: Path) -> Path:
    """The object file of these functions, made by g++."""
    beside = folder / f"{name}-new.o"
    written = folder / f"{name}-new.cc"
    written.write_text(_SOURCE)
    subprocess.run(["g++", "-fPIC", "-O0", "-c", "-o", beside, written], check=True, timeout=60)
    return beside

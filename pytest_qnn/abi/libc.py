"""The few functions of the C library that Python does not offer, or not on plain addresses."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_long, c_size_t, c_void_p

PROT_READ, PROT_WRITE = 1, 2
MAP_SHARED, MAP_ANONYMOUS = 0x01, 0x20
MAP_FAILED = ctypes.c_void_p(-1).value
M_MMAP_THRESHOLD = -3

_LIBC = ctypes.CDLL(None, use_errno=True)

mmap = _LIBC.mmap
mmap.restype, mmap.argtypes = c_void_p, (c_void_p, c_size_t, c_int, c_int, c_int, c_long)
munmap = _LIBC.munmap
munmap.restype, munmap.argtypes = c_int, (c_void_p, c_size_t)
mincore = _LIBC.mincore
mincore.restype, mincore.argtypes = c_int, (c_void_p, c_size_t, c_void_p)
mallopt = getattr(_LIBC, "mallopt", None)
"""glibc only."""

"""The C interface of libcdsprpc.so's shared memory allocator, as in the public rpcmem.h of fastrpc."""

from __future__ import annotations

from ctypes import c_int, c_size_t, c_uint32, c_void_p
from typing import Any

HEAP_ID_SYSTEM = 25
"""RPCMEM_HEAP_ID_SYSTEM."""
DEFAULT_FLAGS = 1
"""RPCMEM_DEFAULT_FLAGS: cached."""
INT_MAX = 2**31 - 1
"""The size is a C int: larger requests cannot be made through rpcmem_alloc."""

PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rpcmem_alloc": (c_void_p, (c_int, c_uint32, c_int)),
    "rpcmem_free": (None, (c_void_p,)),
    "rpcmem_to_fd": (c_int, (c_void_p,)),
}
"""Result and argument types by symbol."""
ALLOC2: tuple[Any, tuple[Any, ...]] = (c_void_p, (c_int, c_uint32, c_size_t))
"""Result and argument types of rpcmem_alloc2, which newer libraries export as well."""

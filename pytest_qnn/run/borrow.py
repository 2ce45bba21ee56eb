"""Watch what a delegate's Prepare borrows: the contexts of other subgraphs."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Final

from pytest_qnn.abi import peek, tflite

Seen = Callable[[bool, int, int], None]
"""(acquire, index of the subgraph, status)."""

_ACQUIRE: Final = tflite.Context.AcquireSubgraphContext.offset
_RELEASE: Final = tflite.Context.ReleaseSubgraphContext.offset


@contextlib.contextmanager
def watched(context: int, seen: Seen) -> Iterator[None]:
    """While the block runs, tell ``seen`` of each call of the two functions on this context."""
    own = peek.pointer(context + _ACQUIRE), peek.pointer(context + _RELEASE)
    _watching[context] = (tflite.AcquireSubgraph(own[0]), tflite.ReleaseSubgraph(own[1]), seen)
    peek.set_pointer(context + _ACQUIRE, _HOOKS[0])
    peek.set_pointer(context + _RELEASE, _HOOKS[1])
    try:
        yield
    finally:
        del _watching[context]
        peek.set_pointer(context + _ACQUIRE, own[0])
        peek.set_pointer(context + _RELEASE, own[1])


_watching: Final[dict[int, tuple[Callable[..., int], Callable[..., int], Seen]]] = {}


def _on_acquire(context: int, index: int, answer: int) -> int:
    acquire, _, seen = _watching[context]
    status = acquire(context, index, answer)
    seen(True, index, status)
    return status


def _on_release(context: int, index: int) -> int:
    _, release, seen = _watching[context]
    status = release(context, index)
    seen(False, index, status)
    return status


_keep: Final = (tflite.AcquireSubgraph(_on_acquire), tflite.ReleaseSubgraph(_on_release))
_HOOKS: Final = tuple(ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in _keep)

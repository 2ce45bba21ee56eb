"""What an oddity is: a conforming delegate that uses a freedom, and how often it was seen to use it."""

from __future__ import annotations

import ctypes
import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import address_of

DelegateT = TypeVar("DelegateT", bound=ReferenceDelegate)


@dataclasses.dataclass(frozen=True)
class Oddity:
    """A conforming delegate."""

    name: str
    freedom: str
    """What it does that others do not."""
    source: str
    """What leaves it that freedom."""
    seen: str
    """What a client sees of it."""
    delegate: type[ReferenceDelegate]
    meant: tuple[str, ...] = ()
    """SHOULD rules that find what the oddity means."""


ODDITIES: dict[str, Oddity] = {}
"""Those in Python, by name."""
MET: Counter[str] = Counter()
"""By name: how often it did in this process what is odd about it."""


def oddity(
    name: str, freedom: str, source: str, seen: str, *meant: str
) -> Callable[[type[DelegateT]], type[DelegateT]]:
    """Enter a class of delegates; see `Oddity`."""

    def enter(delegate: type[DelegateT]) -> type[DelegateT]:
        ODDITIES[name] = Oddity(name, freedom, source, seen, delegate, meant)
        delegate.ODDITY = name  # type: ignore[attr-defined]
        return delegate

    return enter


def note(delegate: ReferenceDelegate, times: int = 1) -> None:
    """It has just used its freedom."""
    MET[delegate.ODDITY] += times  # type: ignore[attr-defined]


def tensor(context: int, index: int) -> layouts.Tensor:
    """A tensor of the runtime, to read and to write."""
    return layouts.Tensor.from_address(address_of(context, index))


def function(context: int, name: str, form: Any) -> Any:
    """A function of the TfLiteContext."""
    return form(getattr(layouts.Context.from_address(context), name))


def pointer_to(callback: Any) -> int:
    """The address of a C callback."""
    return ctypes.cast(callback, ctypes.c_void_p).value or 0

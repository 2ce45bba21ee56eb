"""What the arguments of public strategies have to be."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def asked(strategy: Callable[..., T], ranges: Mapping[str, tuple[int, int]]) -> Callable[..., T]:
    """A public function that makes a strategy, which says at once what is wrong with an argument.

    Args:
        strategy: the function, whose annotations are looked at as they are written.
        ranges: by parameter the least and the largest number, where the function itself does not see to it.

    Raises:
        TypeError: by the function that is returned: an argument of another type than the annotation's.
        ValueError: by that function: a number out of its range.
    """
    signature = inspect.signature(strategy)

    @functools.wraps(strategy)
    def checked(*args: Any, **kwargs: Any) -> T:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            wanted = str(signature.parameters[name].annotation)
            if not _fits(value, wanted):
                raise TypeError(f"{strategy.__name__}: {name} is {_NAMED.get(wanted, wanted)}, not {value!r}")
            if name in ranges and not ranges[name][0] <= value <= ranges[name][1]:
                least, most = ranges[name]
                raise ValueError(f"{strategy.__name__}: {name} is {least} to {most}, not {value}")
        return strategy(*args, **kwargs)

    return checked


_NAMED = {
    "int": "a whole number",
    "bool": "True or False",
    "Sequence[Op] | None": "a sequence of operators' names, or None",
    "Sequence[DType]": 'a sequence of "float32" and "int8"',
    "MemoryFacts": "the facts of a QNN target (memory_target.facts)",
}


def _fits(value: Any, wanted: str) -> bool:
    match wanted:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "Sequence[DType]":
            return _are_names(value) and set(value) <= {"float32", "int8"}
        case "Sequence[Op] | None":
            return value is None or _are_names(value)
        case _:
            return type(value).__name__ == wanted


def _are_names(value: Any) -> bool:
    is_several = isinstance(value, Collection) and not isinstance(value, str)
    return is_several and all(isinstance(each, str) for each in value)

"""What a case must be before anything is allocated or run for it, where it comes from a file.

The strategies make no other cases. The limits are far above what they make, and far below what would
exhaust a machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from pytest_qnn.cases.delegate import DelegateCase
from pytest_qnn.cases.memory import MemoryCase
from pytest_qnn.cases.plugin import PluginCase
from pytest_qnn.cases.script import ScriptCase
from pytest_qnn.cases.valid_delegate import check_delegate
from pytest_qnn.cases.valid_memory import check_memory
from pytest_qnn.cases.valid_plugin import check_plugin
from pytest_qnn.cases.valid_script import check_script
from pytest_qnn.core.bounds import need, shown

WORD = re.compile(r"[A-Za-z0-9_-]{0,40}")
"""A symbolic name of an object, or one of the words that an enumeration allows (``minus-one``)."""


def check(case: MemoryCase | DelegateCase | ScriptCase | PluginCase) -> None:
    """Check names, numbers, sizes and structure.

    Raises:
        pytest_qnn.core.bounds.BadCase: the case must not be run.
    """
    for text in _texts(case):
        need(WORD.fullmatch(text), f"{shown(text)} is no name")
    if isinstance(case, MemoryCase):
        check_memory(case)
    elif isinstance(case, ScriptCase):
        check_script(case)
    elif isinstance(case, PluginCase):
        check_plugin(case)
    else:
        check_delegate(case)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a structure, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _texts(getattr(value, field))

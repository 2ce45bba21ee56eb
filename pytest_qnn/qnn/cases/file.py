"""A case of QNN memory in a case file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_qnn.core.case_file import CaseFile, check_names
from pytest_qnn.qnn.cases.case import MemoryCase
from pytest_qnn.qnn.cases.valid import check_memory


class MemoryCaseFile(CaseFile, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="memory"):
    """A case of QNN and rpcmem calls."""

    case: MemoryCase


KINDS = MemoryCaseFile
"""The type of any case file of this half."""


def with_case(case: str, common: Mapping[str, Any]) -> MemoryCaseFile:
    """The file of a case given as JSON text, and of everything else that such a file says."""
    return MemoryCaseFile(**common, case=msgspec.json.decode(case, type=MemoryCase))


def check_case(case: MemoryCase) -> None:
    """Check names, numbers, sizes and structure.

    Raises:
        pytest_qnn.core.bounds.BadCase: the case must not be run.
    """
    check_names(case)
    check_memory(case)

"""The cases of delegates in a case file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from pytest_qnn.core.case_file import CaseFile, check_names
from pytest_qnn.tflite.cases.delegate import DelegateCase
from pytest_qnn.tflite.cases.domain import DomainCase, check_domain
from pytest_qnn.tflite.cases.plugin import PluginCase
from pytest_qnn.tflite.cases.script import ScriptCase
from pytest_qnn.tflite.cases.valid import check_delegate, check_plugin, check_script


class DelegateCaseFile(CaseFile, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="delegate"):
    """A case of a graph and the delegates applied to it."""

    case: DelegateCase


class ScriptCaseFile(CaseFile, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="delegate-script"):
    """A case of steps on interpreters and delegates."""

    case: ScriptCase


class PluginCaseFile(CaseFile, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="delegate-plugin"):
    """A case of calls of an external delegate's two functions."""

    case: PluginCase


class DomainCaseFile(CaseFile, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="delegate-domain"):
    """A case of cells of the input domain."""

    case: DomainCase


AnyFile: TypeAlias = DelegateCaseFile | ScriptCaseFile | PluginCaseFile | DomainCaseFile
KINDS = AnyFile
"""The type of any case file of this half."""


def with_case(case: str, common: Mapping[str, Any]) -> AnyFile:
    """The file of a case given as JSON text, and of everything else that such a file says."""
    fields = msgspec.json.decode(case, type=dict[str, msgspec.Raw])
    if "cells" in fields:
        return DomainCaseFile(**common, case=msgspec.json.decode(case, type=DomainCase))
    if "graphs" in fields:
        return ScriptCaseFile(**common, case=msgspec.json.decode(case, type=ScriptCase))
    if "steps" in fields:
        return PluginCaseFile(**common, case=msgspec.json.decode(case, type=PluginCase))
    return DelegateCaseFile(**common, case=msgspec.json.decode(case, type=DelegateCase))


def check_case(case: DelegateCase | ScriptCase | PluginCase | DomainCase) -> None:
    """Check names, numbers, sizes and structure.

    Raises:
        pytest_qnn.core.bounds.BadCase: the case must not be run.
    """
    if isinstance(case, DomainCase):
        check_domain(case)
        return
    check_names(case)
    if isinstance(case, ScriptCase):
        check_script(case)
    elif isinstance(case, PluginCase):
        check_plugin(case)
    else:
        check_delegate(case)

"""case.json: a finding with its minimal case, schema 2, and how it is read and checked.

Nothing in such a file is ever executed: it is decoded into typed, plain data, and what is to be run is
checked for size and structure before anything is allocated or run for it. The strategies make no other cases;
the limits are far above what they make, and far below what would exhaust a machine.
The kinds of case are in ``cases/file.py`` of each half; a file of one half loads nothing of the other.
`report/case.schema.json` is made from these types: ``python -m pytest_qnn.case_file``.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from pytest_qnn.core import json_schema as json_schema_of
from pytest_qnn.core import regular_file
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import one_line
from pytest_qnn.core.rule import Subject

if TYPE_CHECKING:
    from pytest_qnn.qnn.cases.file import MemoryCaseFile
    from pytest_qnn.tflite.cases.file import DelegateCaseFile, DomainCaseFile, PluginCaseFile, ScriptCaseFile

    AnyCaseFile: TypeAlias = (
        MemoryCaseFile | DelegateCaseFile | ScriptCaseFile | PluginCaseFile | DomainCaseFile
    )

SCHEMA = 2
OLDEST = 1
"""The oldest schema that is read; `_FIELDS` and `_VALUES` say what was renamed since."""
NAME = "case.json"
"""What the file is called in a finding's folder."""
LARGEST_FILE = 1 << 21
"""Bytes. The largest cases that the strategies make have a few thousand."""
_LONGEST_REASON = 300
"""Characters of what is said of a file: its own words may be part of it."""


class _Header(msgspec.Struct):
    schema: int
    subject: Any = None


def _half(subject: object) -> ModuleType:
    """What knows the cases with this ``subject`` in their files, and refuses any other word."""
    name = "qnn" if subject == "memory" else "tflite"
    return importlib.import_module(f"pytest_qnn.{name}.cases.file")


def with_case(subject: Subject, case: str, common: Mapping[str, Any]) -> AnyCaseFile:
    """The file of a case given as JSON text, and of everything else that such a file says."""
    made: AnyCaseFile = _half(subject).with_case(case, common)
    return made


def encode(content: AnyCaseFile) -> bytes:
    """The file's bytes: JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def read(path: Path) -> AnyCaseFile:
    """Read and check a case file, or the one in a finding's folder.

    Raises:
        BadOption: with one sentence that says what is wrong with it.
    """
    try:
        text = raw(path)
    except (OSError, ValueError) as error:
        reason = one_line(str(error), _LONGEST_REASON)
        raise BadOption(f"--qnn-replay: {path} cannot be read: {reason}") from None
    try:
        return decode(text)
    except BadOption as error:
        raise BadOption(f"--qnn-replay: {path} {error}") from None


def raw(path: Path) -> bytes:
    """The bytes of the file, or of the one in the folder; of a larger one than `LARGEST_FILE` one byte more.

    Raises:
        OSError: it cannot be read, or not without waiting, or is not a regular file.
        ValueError: the path has a null byte.
    """
    return regular_file.read(path, LARGEST_FILE, NAME)


def decode(text: bytes) -> AnyCaseFile:
    """The content of a case file, fit to be run.

    Raises:
        BadOption: with the end of a sentence that begins with the file's name.
    """
    if len(text) > LARGEST_FILE:
        raise BadOption(f"has more than {LARGEST_FILE} bytes, and no case file of pytest-qnn has")
    try:
        header = msgspec.json.decode(text, type=_Header)
        schema = header.schema
        if not OLDEST <= schema <= SCHEMA:
            number = schema if schema.bit_length() <= 64 else "too great to print"
            raise BadOption(f"has schema {number}, and this pytest-qnn reads schemas {OLDEST} to {SCHEMA}")
        if schema < SCHEMA:
            text = _translated(text)
        half = _half(header.subject)
        content: AnyCaseFile = msgspec.json.decode(text, type=half.KINDS)
        half.check_case(content.case)
    except BadOption:
        raise
    # ValueError: BadCase, a text that is no UTF-8, and a number of too many digits.
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        reason = one_line(str(error), _LONGEST_REASON)
        raise BadOption(f"is not a case file of pytest-qnn: {reason}") from None
    return content


_FIELDS = {"delegate": {"twin": "baseline"}}
"""By a file's ``subject``: fields of its case that were renamed in schema 2, old -> new."""
_VALUES = {
    "delegate": ("look", {"lent": "lifetimes"}),
    "delegate-script": ("do", {"hollow": "unallocate", "lend": "pass-to-constructor"}),
    "delegate-plugin": ("do", {"spoil": "overwrite-arguments"}),
}
"""By ``subject``: the field, of the case or of a step anywhere in it, whose values were renamed, and how."""


def _translated(text: bytes) -> bytes:
    """A file of schema 1 as one of schema 2; what is no such file stays as bad as it is."""
    content = msgspec.json.decode(text)
    subject, case = content.get("subject"), content.get("case")
    if isinstance(case, dict) and isinstance(subject, str):
        for old, new in _FIELDS.get(subject, {}).items():
            if old in case:
                case[new] = case.pop(old)
        if subject in _VALUES:
            _rename_values(case, *_VALUES[subject])
    return msgspec.json.encode(content | {"schema": SCHEMA})


def _rename_values(value: Any, field: str, names: Mapping[str, str]) -> None:
    """Rename in place, however deep: a step can hold steps."""
    if isinstance(value, list):
        for part in value:
            _rename_values(part, field, names)
    elif isinstance(value, dict):
        found = value.get(field)
        if isinstance(found, str):
            value[field] = names.get(found, found)
        elif isinstance(found, list):
            value[field] = [names.get(word, word) if isinstance(word, str) else word for word in found]
        for part in value.values():
            _rename_values(part, field, names)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a case file, as JSON data."""
    kinds = _half("memory").KINDS | _half("delegate").KINDS
    return json_schema_of.made_of(kinds, "A case file of pytest-qnn, schema 2")


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1))

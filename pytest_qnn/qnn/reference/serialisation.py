"""Serialisation targets of the companion: files into which clients have the events of their profiles written.

The format is our own: a line of JSON that names the client, then one for each call that was measured.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.reference.objects import QnnError

_INVALID = Error.SYSTEM_CONTEXT_ERROR_INVALID_ARGUMENT
"""QNN_SYSTEM_PROFILE_ERROR_INVALID_ARGUMENT has the same code."""
_BAD_HANDLE = Error.SYSTEM_CONTEXT_ERROR_INVALID_HANDLE
_FILE = 1
"""QnnSystemProfile_SerializationTargetType_t."""
_MAX_MESSAGES, _HEADER = 0, 1
"""QnnSystemProfile_SerializationTargetConfigType_t."""
_EXTENDED = 1
"""QnnSystemProfile_EventDataType_t."""


@dataclasses.dataclass
class Target:
    """A file, and how many more messages it takes; None: any number."""

    path: Path
    left: int | None = None


class SerialisationTargets:
    """The QnnSystemProfile functions."""

    def __init__(self) -> None:
        self._targets: dict[int, Target] = {}
        self._serial = itertools.count(1 << 32)

    def methods(self) -> dict[str, Callable[..., None]]:
        """By the name of the table's entry."""
        return {
            "systemProfileCreateSerializationTarget": self.create,
            "systemProfileSerializeEventData": self.serialise,
            "systemProfileFreeSerializationTarget": self.free,
        }

    def create(self, target: Any, configs: Any, count: int, out: Any) -> None:
        """QnnSystemProfile_createSerializationTarget: 30001 for anything but a file; it is appended to."""
        if target.type != _FILE or not target.fileName or not out or (count and not configs):
            raise QnnError(_INVALID)
        made = Target(Path(os.fsdecode(target.fileDirectory or b""), os.fsdecode(target.fileName)))
        for config in configs[:count] if count else ():
            if config.type == _MAX_MESSAGES:
                made.left = config.maxNumMessages
            elif config.type == _HEADER:
                _write(made.path, [_header(config.serializationHeader)])
            else:
                raise QnnError(_INVALID)
        out[0] = handle = next(self._serial)
        self._targets[handle] = made

    def serialise(self, target: int | None, data: Any, count: int) -> None:
        """QnnSystemProfile_serializeEventData."""
        found = self._targets.get(target or 0)
        if found is None:
            raise QnnError(_BAD_HANDLE)
        if count and not all(data[:count]):
            raise QnnError(_INVALID)
        messages = [_measured(each.contents) for each in (data[:count] if count else ())]
        if found.left is not None:
            messages = messages[: found.left]
            found.left -= len(messages)
        _write(found.path, messages)

    def free(self, target: int | None) -> None:
        """QnnSystemProfile_freeSerializationTarget."""
        if self._targets.pop(target or 0, None) is None:
            raise QnnError(_BAD_HANDLE)


def _write(path: Path, messages: list[dict[str, Any]]) -> None:
    """Append lines. Raises QnnError 30001 where there is no such folder, or no right to write there."""
    try:
        with path.open("ab") as file:
            file.writelines(msgspec.json.encode(message) + b"\n" for message in messages)
    except OSError:
        raise QnnError(_INVALID) from None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _header(given: Any) -> dict[str, Any]:
    return {
        "application": _text(given.appName),
        "application_version": _text(given.appVersion),
        "backend_version": _text(given.backendVersion),
    }


def _measured(given: Any) -> dict[str, Any]:
    """A QnnSystemProfile_ProfileData_t: the call, and its events; times as the client gave them."""
    header = given.header
    return {
        "method": header.methodType,
        "graph": _text(header.graphName),
        "start": header.startTime,
        "stop": header.stopTime,
        "events": list(_events(given.profilingEvents, given.numProfilingEvents)),
    }


def _events(given: Any, count: int) -> Iterator[dict[str, Any]]:
    for event in given[:count] if count else ():
        extended = event.type == _EXTENDED
        data = event.extendedEventData if extended else event.eventData
        yield {
            "type": data.type,
            "unit": data.unit,
            "value": data.value.uint64Value if extended else data.value,
            "identifier": _text(data.identifier),
            "events": list(_events(event.profileSubEventData, event.numSubEvents)),
        }

"""Contexts out of lists of binaries: QnnContext_createFromBinaryListAsync.

The contexts are made before the call returns; a thread of its own notifies the client of them, one after the
other, outside the lock of the table.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import threading
from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.layouts import (
    VERSION_1,
    ContextNotifyType,
    ContextParams,
    ContextParamsV1,
    Notify,
)
from pytest_qnn.qnn.reference.objects import Context, QnnError
from pytest_qnn.qnn.reference.signals import Signals

_ENTRIES = ctypes.POINTER(ctypes.POINTER(ContextParams))


@dataclasses.dataclass(frozen=True)
class Made:
    """A context of a list, with whom to notify of it."""

    context: Context
    notify: Any
    parameter: int | None


class Lists(Signals):
    """contextCreateFromBinaryListAsync, where the personality has it."""

    def context_create_from_binary_list_async(
        self,
        backend: int | None,
        device: int | None,
        listed: int | None,
        config: int | None,
        signal: int | None,
    ) -> None:
        """All contexts of the list, or none of them; options of the list stand above those of a context."""
        if not self.personality.lists:
            raise QnnError(Error.CONTEXT_ERROR_UNSUPPORTED_FEATURE)
        self.require("backend", backend, Error.CONTEXT_ERROR_INVALID_HANDLE)
        if signal:
            self.require("signal", signal, Error.CONTEXT_ERROR_INVALID_HANDLE)
        entries = _listed(listed)
        made: list[Made] = []
        try:
            # One by one: what is there when the next one fails has to go.
            for each in entries:
                made.append(self.make_listed(backend, device, each, config))  # noqa: PERF401
            self.start_notifying(made)
        except BaseException:
            for one in made:
                self.free_context(one.context)
            raise

    def start_notifying(self, made: list[Made]) -> None:
        """Hook: begin to notify of the contexts of a list that is accepted; 1002 without a thread for it."""
        try:
            threading.Thread(target=notify, args=(made,), name="qnn-lists", daemon=True).start()
        except RuntimeError:
            raise QnnError(Error.COMMON_ERROR_MEM_ALLOC) from None

    def make_listed(
        self, backend: int | None, device: int | None, entry: ContextParamsV1, of_list: int | None
    ) -> Made:
        """Hook: one context of a list."""
        out = ctypes.c_void_p()
        config = self.listed_config(entry.config, of_list)
        self.check_elsewhere(config)
        place = (entry.binaryBuffer, entry.binaryBufferSize, ctypes.pointer(out), entry.profile)
        self.context_create_from_binary(backend, device, config, *place)
        context = self.contexts[out.value or 0]
        self.made_elsewhere(context)
        # A copy: what a field of a struct gives reads the client's memory whenever it is called.
        notify = Notify(ctypes.cast(entry.notifyFunc, ctypes.c_void_p).value or 0)
        return Made(context, notify, entry.notifyParam)

    def listed_config(self, own: int | None, of_list: int | None) -> int | None:
        """Hook: the options that a context of a list is made with."""
        return of_list or own


def _listed(listed: int | None) -> list[ContextParamsV1]:
    """The entries up to NULL; 5000 for none, for a bad version, and without a binary or a notifyFunc."""
    entries = ctypes.cast(listed or 0, _ENTRIES)
    found = list(itertools.takewhile(bool, (entries[i] for i in itertools.count()))) if listed else []
    bodies = [each.contents.v1 for each in found if each.contents.version == VERSION_1]
    whole = bodies and len(bodies) == len(found)
    if not whole or not all(each.binaryBuffer and each.notifyFunc for each in bodies):
        raise QnnError(Error.CONTEXT_ERROR_INVALID_ARGUMENT)
    return bodies


def notify(made: list[Made]) -> None:
    """Notify of contexts that are there, one after the other."""
    for each in made:
        each.notify(each.context.handle, None, None, ContextNotifyType.CONTEXT_INIT, each.parameter, 0)

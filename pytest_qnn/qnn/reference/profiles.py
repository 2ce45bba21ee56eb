"""Profiles of the reference backend: how long a graph took to finalise or to execute."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.execute import Execution
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

FINALIZE, EXECUTE = 300, 400
"""QnnProfile_EventType_t."""
_IDENTIFIERS = {FINALIZE: b"finalize", EXECUTE: b"execute"}
_MICROSECONDS = 1
"""QnnProfile_EventUnit_t."""
_LEVELS = (1, 2)
"""QnnProfile_Level_t: basic and detailed, which are the same here: a graph is computed in one go."""
_BAD_HANDLE = Error.PROFILE_ERROR_INVALID_HANDLE
_Ids = ctypes.POINTER(ctypes.c_uint64)


@dataclasses.dataclass(eq=False)
class Event:
    """One thing that was measured."""

    type: int
    microseconds: int
    identifier: bytes


@dataclasses.dataclass(eq=False)
class Profile:
    """A profile, with the ids of the events of the call that was given it last."""

    backend: int
    ids: Any = dataclasses.field(default_factory=ctypes.c_uint64 * 0)
    """The array that clients look at until the next such call, or the profile's end."""


class Profiles(Execution):
    """QnnProfile; graphFinalize and graphExecute take a profile, each gives it one event."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.profiles: dict[int, Profile] = {}
        self.events: dict[int, Event] = {}
        self._tables["profile"], self._tables["event"] = self.profiles, self.events

    def profile_create(self, backend: int | None, level: int, out: Any) -> None:
        """QnnProfile_create."""
        self.require("backend", backend, _BAD_HANDLE)
        if not out or level not in _LEVELS:
            raise QnnError(Error.PROFILE_ERROR_INVALID_ARGUMENT)
        out[0] = handle = self.mint("profile")
        self.profiles[handle] = Profile(backend or 0)

    def profile_set_config(self, profile: int | None, config: int | None) -> None:
        """QnnProfile_setConfig: there is no option (1000)."""
        self.require("profile", profile, _BAD_HANDLE)
        if context_config(config):
            raise QnnError(Error.PROFILE_ERROR_UNSUPPORTED)

    def profile_get_events(self, profile: int | None, ids: Any, count: Any) -> None:
        """QnnProfile_getEvents."""
        found: Profile = self.require("profile", profile, _BAD_HANDLE)
        if not ids or not count:
            raise QnnError(Error.PROFILE_ERROR_INVALID_ARGUMENT)
        ids[0], count[0] = ctypes.cast(found.ids, _Ids), len(found.ids)

    def profile_get_sub_events(self, event: int, ids: Any, count: Any) -> None:
        """QnnProfile_getSubEvents: no event has any."""
        self.require("event", event, _BAD_HANDLE)
        if not ids or not count:
            raise QnnError(Error.PROFILE_ERROR_INVALID_ARGUMENT)
        ids[0], count[0] = _Ids(), 0

    def profile_get_event_data(self, event: int, data: Any) -> None:
        """QnnProfile_getEventData, in microseconds."""
        found: Event = self.require("event", event, _BAD_HANDLE)
        if not data:
            raise QnnError(Error.PROFILE_ERROR_INVALID_ARGUMENT)
        data[0].type, data[0].unit = found.type, _MICROSECONDS
        data[0].value, data[0].identifier = found.microseconds, found.identifier

    def profile_free(self, profile: int | None) -> None:
        """QnnProfile_free: its events go with it."""
        self.clear_profile(self.require("profile", profile, _BAD_HANDLE))
        del self.profiles[profile or 0]

    def clear_profile(self, profile: Profile) -> None:
        """Hook: end the events of a profile."""
        for event in profile.ids:
            self.events.pop(event, None)
        profile.ids = (ctypes.c_uint64 * 0)()

    def backend_free(self, backend: int | None) -> None:
        """Profiles go with their backend."""
        super().backend_free(backend)
        for handle, profile in list(self.profiles.items()):
            if profile.backend == backend:
                self.clear_profile(profile)
                del self.profiles[handle]

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        """With a profile: 6000 for one that is none."""
        with self._measured(graph, profile, FINALIZE):
            super().graph_finalize(graph, None, signal)

    def graph_execute(
        self,
        graph: int | None,
        inputs: Any,
        num_inputs: int,
        outputs: Any,
        num_outputs: int,
        profile: int | None,
        signal: int | None,
    ) -> None:
        """With a profile: 6000 for one that is none."""
        arguments = (graph, inputs, num_inputs, outputs, num_outputs, None, signal)
        if not profile:
            super().graph_execute(*arguments)
            return
        with self._measured(graph, profile, EXECUTE):
            super().graph_execute(*arguments)

    @contextlib.contextmanager
    def _measured(self, graph: int | None, profile: int | None, kind: int) -> Iterator[None]:
        """What happens within becomes the one event of the profile, if there is a profile."""
        if not profile:
            yield
            return
        self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
        given: Profile = self.require("profile", profile, Error.GRAPH_ERROR_INVALID_ARGUMENT)
        self.clear_profile(given)
        begun = time.perf_counter_ns()
        yield
        spent = (time.perf_counter_ns() - begun) // 1000
        handle = self.mint("event")
        self.events[handle] = Event(kind, spent, _IDENTIFIERS[kind])
        given.ids = (ctypes.c_uint64 * 1)(handle)

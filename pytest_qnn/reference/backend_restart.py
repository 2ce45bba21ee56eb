"""The reference backend's subsystem restart, which on a device follows the crash of its processor."""

from __future__ import annotations

from typing import Any

from pytest_qnn.abi.qnn_codes import Error
from pytest_qnn.reference.backend_external import ExternalBuffers
from pytest_qnn.reference.backend_objects import Kind, QnnError
from pytest_qnn.reference.personalities import DEFAULT, Personality

_GONE: tuple[Kind, ...] = ("context", "graph", "mem")


class Restarts(ExternalBuffers):
    """What a restart takes, and what is still done for a client who gives its handles back.

    Source: documentation of the SDK, version 2.13, subsystem restart.
    """

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.lost: set[tuple[Kind, int]] = set()
        """Handles of before, until they are given back."""

    def restart(self) -> None:
        """Hook: contexts, graphs and registrations are gone; their handles answer 1007 from now on."""
        with self.lock:
            self.lost |= {(kind, value) for kind in _GONE for value in self._tables[kind]}
            for context in list(self.contexts.values()):
                self.free_context(context)

    def mint(self, kind: Kind) -> int:
        """A value that is handed out again means the new object."""
        value = super().mint(kind)
        self.lost.discard((kind, value))
        return value

    def require(self, kind: Kind, value: int | None, code: int) -> Any:
        """1007 for what a restart took."""
        if (kind, value) in self.lost:
            raise QnnError(Error.COMMON_ERROR_SYSTEM_COMMUNICATION)
        return super().require(kind, value, code)

    def context_free(self, context: int | None, profile: int | None) -> None:
        """A context of before is given back with success."""
        if not self._given_back("context", context):
            super().context_free(context, profile)

    def deregister_one(self, handle: int | None) -> bool:
        """A memory handle of before is given back with success."""
        return self._given_back("mem", handle) or super().deregister_one(handle)

    def _given_back(self, kind: Kind, value: int | None) -> bool:
        if value is None or (kind, value) not in self.lost:
            return False
        self.lost.discard((kind, value))
        return True

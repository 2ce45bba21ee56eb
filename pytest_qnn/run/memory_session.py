"""A QNN session: log, backend and device, opened in this order and closed in the reverse order."""

from __future__ import annotations

from pytest_qnn.abi.qnn_codes import Error, low
from pytest_qnn.run.qnn_client import NullFunction, QnnClient

_LOG_LEVEL_ERROR = 1
_OPTIONAL = frozenset({"logCreate", "deviceCreate"})
"""Calls a session can do without: where they are NULL or answer "not supported", the handle is NULL."""


class Session:
    """Opened by the first step that needs it.

    A call of `_OPTIONAL` that answers 1000 (not supported) is in ``codes`` but keeps nothing from working.
    """

    def __init__(self, client: QnnClient) -> None:
        self.client = client
        self.opened = False
        """An attempt was made."""
        self.failure = ""
        """Why the session could not be opened; empty: it is open, or was not tried."""
        self.codes: list[tuple[str, int]] = []
        self._handles: dict[str, int] = {}

    @property
    def backend(self) -> int | None:
        """The backend's handle, None without one."""
        return self._handles.get("backendCreate")

    @property
    def device(self) -> int | None:
        """The device's handle, None where the backend has no devices."""
        return self._handles.get("deviceCreate")

    def handles(self) -> set[int]:
        """The values of the handles that are open."""
        return set(self._handles.values())

    def open(self) -> bool:
        """Open once; True if the session is open."""
        if not self.opened:
            self.opened = True
            self._open()
        return not self.failure

    def close(self) -> list[tuple[str, int]]:
        """Free what was created; the codes in order."""
        codes = []
        for created, freed in (
            ("deviceCreate", "deviceFree"),
            ("backendCreate", "backendFree"),
            ("logCreate", "logFree"),
        ):
            handle = self._handles.pop(created, None)
            if handle is not None:
                try:
                    codes.append((freed, self.client.call(freed, handle)))
                except NullFunction:
                    continue
        return codes

    def end(self, what: str) -> int | None:
        """Free the device or the backend now; None: there is none."""
        handle = self._handles.get(f"{what}Create")
        if handle is None:
            return None
        code = self.client.call(f"{what}Free", handle)
        if code == 0:
            del self._handles[f"{what}Create"]
        return code

    def _open(self) -> None:
        self.codes.append(("getProviders", self.client.code))
        if self.client.interface is None:
            self.failure = f"getProviders gave no provider (code {self.client.code})"
            return
        if not self._create("logCreate", None, _LOG_LEVEL_ERROR):
            return
        log = self._handles.get("logCreate")
        if self._create("backendCreate", log, None):
            self._create("deviceCreate", log, None)

    def _create(self, name: str, *arguments: int | None) -> bool:
        try:
            code, handle = self.client.create(name, *arguments)
        except NullFunction as null:
            if name in _OPTIONAL:
                return True
            self.failure = str(null)
            return False
        self.codes.append((name, code))
        if code == 0:
            self._handles[name] = handle
        elif not (name in _OPTIONAL and low(code) == Error.COMMON_ERROR_NOT_SUPPORTED):
            self.failure = f"{name} gave {code}"
        return not self.failure

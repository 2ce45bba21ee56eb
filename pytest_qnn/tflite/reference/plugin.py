"""The plugin interface of the reference delegate, without a library.

The two functions of an external delegate library are C callbacks in this process, and are called as those of
a real library are, through their addresses.

Options are parsed strictly: ``num_threads`` from 1 to 64, ``profiling`` true or false.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.cases.plugin import CREATE, DESTROY
from pytest_qnn.tflite.reference.delegate import ReferenceDelegate

SAMPLE_OPTIONS: Final = (("num_threads", "2"), ("profiling", "False"))
"""Options that the reference takes, for rules that need some."""

_MOST_THREADS = 64
_TRUTH = {"true": True, "false": False}


class Emulated(Protocol):
    """A delegate as its library keeps it."""

    @property
    def address(self) -> int:
        """The TfLiteDelegate's address."""

    def close(self) -> None:
        """End it."""


class BadOption(Exception):  # noqa: N818 - a refusal, not an error
    """An option is refused; the text says which and why."""


class EmulatedPlugin:
    """A plugin library in Python. Every step is a small method, so that a mutant overrides one of them.

    Args:
        delegate: makes the delegates.
    """

    exports: tuple[str, ...] = (CREATE, DESTROY)
    """What the library would say of its dynamic symbols: the defined ones, and the undefined ones."""
    undefined: tuple[str, ...] = ()
    load_error: str = ""
    """What the loader would say of the library."""

    def __init__(self, delegate: Callable[[], Emulated] = ReferenceDelegate) -> None:
        self.live: dict[int, Emulated] = {}
        """Address -> delegate, in the order of creation."""
        self.errors: list[BaseException] = []
        self._graves: deque[Emulated] = deque(maxlen=16)
        """The last ones that ended: a late call of theirs is answered with an error, and does not crash."""
        self._delegate = delegate
        self._callbacks = layouts.PluginCreate(self._create), layouts.PluginDestroy(self._destroy)
        self.create_address, self.destroy_address = (
            ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in self._callbacks
        )

    # What the library does.

    def create(self, keys: int, values: int, count: int, report: int) -> int:
        """The address of a new delegate; 0 after a report of what is wrong."""
        try:
            options = self.read_options(keys, values, count)
            flags = self.flags_of(options)
        except BadOption as error:
            self.report(report, str(error))
            return 0
        return self.make(options, flags, report)

    def read_options(self, keys: int, values: int, count: int) -> dict[str, str]:
        """The options as text.

        Raises:
            BadOption: one is no UTF-8.
        """
        return {
            self.decode(peek.pointer(keys + 8 * index)): self.decode(peek.pointer(values + 8 * index))
            for index in range(count)
        }

    def decode(self, address: int) -> str:
        """A C string as text."""
        try:
            return ctypes.string_at(address).decode()
        except UnicodeDecodeError:
            raise BadOption("an option is no UTF-8") from None

    def flags_of(self, options: dict[str, str]) -> int:
        """Check every option; TfLiteDelegateFlags that they ask for.

        Raises:
            BadOption: a key is unknown, or a value is not of its kind.
        """
        flags = 0
        for key, value in options.items():
            if key == "num_threads":
                self.number(key, value)
            elif key == "profiling":
                flags |= layouts.FLAG_PER_OPERATOR_PROFILING * self.truth(key, value)
            else:
                self.unknown(key)
        return flags

    def unknown(self, key: str) -> None:
        """Refuse an option that there is not."""
        raise BadOption(f"there is no option {key!r}")

    def number(self, key: str, value: str) -> int:
        """A number of threads."""
        if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= _MOST_THREADS):
            raise BadOption(f"{key} is {value!r}, not a number from 1 to {_MOST_THREADS}")
        return int(value)

    def truth(self, key: str, value: str) -> bool:
        """A truth value, as Python or C writes it."""
        if value.lower() not in _TRUTH:
            raise BadOption(f"{key} is {value!r}, neither true nor false")
        return _TRUTH[value.lower()]

    def report(self, function: int, text: str) -> None:
        """Call report_error, if there is one."""
        if function:
            layouts.PluginReport(function)(text.encode())

    def make(self, options: dict[str, str], flags: int, report: int) -> int:  # noqa: ARG002 - for mutants
        """A new delegate; its address."""
        delegate = self._delegate()
        layouts.Delegate.from_address(delegate.address).flags |= flags
        self.live[delegate.address] = delegate
        return delegate.address

    def destroy(self, address: int) -> None:
        """End a delegate; NULL is nothing to end."""
        if address:
            delegate = self.live.pop(address)
            delegate.close()
            self._graves.append(delegate)

    # No exception leaves a callback.

    def _create(self, keys: int | None, values: int | None, count: int, report: int | None) -> int:
        try:
            return self.create(keys or 0, values or 0, count, report or 0)
        except BaseException as error:
            self.errors.append(error.with_traceback(None))
            return 0

    def _destroy(self, address: int | None) -> None:
        try:
            self.destroy(address or 0)
        except BaseException as error:
            self.errors.append(error.with_traceback(None))

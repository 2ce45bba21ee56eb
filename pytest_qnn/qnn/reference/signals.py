"""Signals of the reference backend: a client may make them and give them to calls, and always comes too late.

A call holds the lock of the table until it has ended, so whoever triggers a signal finds it idle.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

from pytest_qnn.qnn.abi.codes import Error
from pytest_qnn.qnn.abi.layouts import SignalConfig
from pytest_qnn.qnn.reference.binaries import Binaries
from pytest_qnn.qnn.reference.core import context_config
from pytest_qnn.qnn.reference.execute import Execution
from pytest_qnn.qnn.reference.objects import QnnError
from pytest_qnn.qnn.reference.personalities import DEFAULT, Personality

_ABORT, _TIMEOUT = 1, 2
"""QnnSignal_ConfigOption_t."""
_BAD_HANDLE = Error.SIGNAL_ERROR_INVALID_HANDLE


@dataclasses.dataclass(eq=False)
class Signal:
    """A signal, and whether it is one that can be triggered."""

    backend: int
    aborts: bool = False


class Signals(Binaries, Execution):
    """QnnSignal; graphFinalize, graphExecute and contextCreateFromBinaryWithSignal take a signal."""

    def __init__(self, personality: Personality = DEFAULT) -> None:
        super().__init__(personality)
        self.signals: dict[int, Signal] = {}
        self._tables["signal"] = self.signals

    def signal_create(self, backend: int | None, config: int | None, out: Any) -> None:
        """QnnSignal_create."""
        self.require("backend", backend, _BAD_HANDLE)
        if not out:
            raise QnnError(Error.SIGNAL_ERROR_INVALID_ARGUMENT)
        made = Signal(backend or 0, aborts=_aborts(config))
        out[0] = handle = self.mint("signal")
        self.signals[handle] = made

    def signal_set_config(self, signal: int | None, config: int | None) -> None:
        """QnnSignal_setConfig; NULL takes back what was set."""
        found: Signal = self.require("signal", signal, _BAD_HANDLE)
        found.aborts = _aborts(config)

    def signal_trigger(self, signal: int | None) -> None:
        """QnnSignal_trigger: 9005 for a signal that does not abort, 9001 for any other: no call runs."""
        found: Signal = self.require("signal", signal, _BAD_HANDLE)
        if not found.aborts:
            raise QnnError(Error.SIGNAL_ERROR_INCOMPATIBLE_SIGNAL_TYPE)
        raise QnnError(Error.SIGNAL_ERROR_SIGNAL_IDLE)

    def signal_free(self, signal: int | None) -> None:
        """QnnSignal_free."""
        self.require("signal", signal, _BAD_HANDLE)
        del self.signals[signal or 0]

    def backend_free(self, backend: int | None) -> None:
        """Signals go with their backend."""
        super().backend_free(backend)
        for handle in [each for each, signal in self.signals.items() if signal.backend == backend]:
            del self.signals[handle]

    def graph_finalize(self, graph: int | None, profile: int | None, signal: int | None) -> None:
        """With a signal: 6000 for one that is none."""
        self._given(graph, signal)
        super().graph_finalize(graph, profile, None)

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
        """With a signal: 6000 for one that is none."""
        self._given(graph, signal)
        super().graph_execute(graph, inputs, num_inputs, outputs, num_outputs, profile, None)

    def _given(self, graph: int | None, signal: int | None) -> None:
        if signal:
            self.require("graph", graph, Error.GRAPH_ERROR_INVALID_HANDLE)
            self.require("signal", signal, Error.GRAPH_ERROR_INVALID_ARGUMENT)

    def context_create_from_binary_with_signal(self, backend: int | None, *arguments: Any) -> None:
        """QnnContext_createFromBinaryWithSignal: 5002 for a signal that is none."""
        *others, signal = arguments
        self.require_binaries()
        if signal:
            self.require("signal", signal, Error.CONTEXT_ERROR_INVALID_HANDLE)
        _, config, _, _, out, _ = others
        self.check_elsewhere(config)
        self.context_create_from_binary(backend, *others)
        self.made_elsewhere(self.contexts[out[0]])


def _aborts(config: int | None) -> bool:
    """Whether the last option of a list is that to abort; 1000 for a timeout, 9002 for what is no option."""
    aborts = False
    for entry in context_config(config):
        # Of the two configurations only the first member, the option, is read.
        option = SignalConfig.from_address(ctypes.addressof(entry)).option
        if option == _TIMEOUT:
            raise QnnError(Error.SIGNAL_ERROR_UNSUPPORTED)
        if option != _ABORT:
            raise QnnError(Error.SIGNAL_ERROR_INVALID_ARGUMENT)
        aborts = True
    return aborts

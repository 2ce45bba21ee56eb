"""Makes the reference of the TensorFlow Lite QNN delegate, and mutants of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pytest_qnn.isolation.worker import Unusable
from pytest_qnn.qnn.runner.sources import MemorySource
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.mutants import QNN
from pytest_qnn.tflite.mutants import named as mutant_named
from pytest_qnn.tflite.qnn_delegate.custom_tensors import QnnParts
from pytest_qnn.tflite.qnn_delegate.delegate import QnnDelegate
from pytest_qnn.tflite.qnn_delegate.partition import QnnFailed
from pytest_qnn.tflite.qnn_delegate.shared_memory import CUSTOM_MEMORY
from pytest_qnn.tflite.runner.delegates import DelegateFactory, DelegateUnusable, is_steerable
from pytest_qnn.tflite.runner.qnn_interface import BACKEND_TYPE


def factory(spec: str, options: Mapping[str, str]) -> QnnFactory:
    """The factory for ``qnn-reference``, or for ``mutant:NAME`` of a mutant of it.

    Raises:
        DelegateUnusable: an option is wrong, or the backend cannot be used.
    """
    mutant = mutant_named(spec.removeprefix("mutant:")) if spec.startswith("mutant:") else None
    return QnnFactory(spec, options, mutant.of(QNN) if mutant is not None else None)


class QnnFactory:
    """The reference of the TensorFlow Lite QNN delegate, on the backend that its option names.

    Attributes:
        custom_memory: that of the process, or a mutant's own.
        has_own_interface: TfLiteQnnDelegateCreate is there, emulated.
        options: those that its own interface makes delegates with.
    """

    has_own_interface = True
    options: Mapping[str, str] = MappingProxyType({BACKEND_TYPE: "htp"})

    def __init__(self, name: str, options: Mapping[str, str], parts: QnnParts | None = None) -> None:
        self.name = name
        self._check(options)
        self._parts = parts or QnnParts()
        self.custom_memory = parts.memory() if parts else CUSTOM_MEMORY
        self._interface = self._parts.interface()
        backend = options.get("backend", self._parts.backend or "reference")
        try:
            self._source = MemorySource(backend, "emulated")
        except Unusable as error:
            raise DelegateUnusable(str(error)) from None

    def make(self, application: Application) -> QnnDelegate:
        """As every `DelegateFactory` does."""
        self._check(dict(application.options))
        arguments: dict[str, Any] = {}
        if is_steerable(self.name):
            arguments |= {"claim": application.claim}
            arguments |= {"fault": application.fault} if application.fault else {}
        made = self._source, self.custom_memory, self._parts.tensors, self._parts.report()
        try:
            return QnnDelegate(*made, **arguments)
        except QnnFailed as error:
            raise DelegateUnusable(f"the delegate {self.name} has no backend: {error}") from None

    def by_own_interface(self, options: Mapping[str, str]) -> DelegateFactory:
        """Makes the same delegates by TfLiteQnnDelegateCreate."""
        return _OwnFactory(self.name, lambda made: self._interface.create(options, lambda: self.make(made)))

    def _check(self, options: Mapping[str, str]) -> None:
        unknown = next((key for key in options if key != "backend"), None)
        if unknown is not None:
            raise DelegateUnusable(f"the delegate {self.name} has the option backend only, not {unknown}")


class _OwnFactory:
    def __init__(self, name: str, make: Callable[[Application], QnnDelegate]) -> None:
        self.name = name
        self.make = make

"""From a specification string to delegates: the reference, its mutants, XNNPACK, a plugin library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pytest_qnn.cases.delegate import Application
from pytest_qnn.mutants import table as mutants
from pytest_qnn.reference.delegate import ReferenceDelegate
from pytest_qnn.run.runtime import Runtime


class DelegateUnusable(Exception):  # noqa: N818 - a finding about what was named
    """The delegate cannot be used; the text is one clear sentence."""


class LiveDelegate(Protocol):
    """A native TfLiteDelegate, valid until it is closed."""

    @property
    def address(self) -> int:
        """The TfLiteDelegate's address."""

    def close(self) -> None:
        """Destroy it. Every interpreter that it was applied to is gone already."""


class DelegateFactory(Protocol):
    """Makes one delegate for each application."""

    @property
    def name(self) -> str:
        """The specification string."""

    def make(self, application: Application) -> LiveDelegate:
        """A new delegate.

        Raises:
            DelegateUnusable: it cannot be made.
        """


def delegate_factory(spec: str, options: Mapping[str, str], runtime: Runtime) -> DelegateFactory:
    """The factory for a specification: ``reference``, ``mutant:NAME``, ``xnnpack`` or a plugin's path.

    Raises:
        DelegateUnusable: the specification names nothing that can be used on this runtime.
    """
    if spec == "reference" or spec.startswith("mutant:"):
        if options:
            raise DelegateUnusable(
                f"the delegate {spec} takes no options, but {next(iter(options))} was given"
            )
        return _PythonFactory(spec, _python_delegate(spec))
    if spec == "xnnpack":
        return _XnnpackFactory(runtime, options)
    return _PluginFactory(spec, options, runtime)


def _python_delegate(spec: str) -> Callable[..., ReferenceDelegate]:
    kind, _, name = spec.partition(":")
    if kind == "reference":
        return ReferenceDelegate
    mutant = mutants().get(name)
    if mutant is None:
        raise DelegateUnusable(f"there is no mutant called {name!r}")
    if mutant.subject != "delegate":
        raise DelegateUnusable(f"the mutant {name} is no delegate but a QNN backend")
    return mutant.delegate or ReferenceDelegate  # a `distort` mutant changes the trace, not the delegate


class _PythonFactory:
    def __init__(self, name: str, create: Callable[..., ReferenceDelegate]) -> None:
        self.name = name
        self._create = create

    def make(self, application: Application) -> LiveDelegate:
        return self._create(claim=application.claim)


class _Xnnpack:
    def __init__(self, address: int, delete: Callable[[int], None]) -> None:
        self.address = address
        self._delete = delete

    def close(self) -> None:
        self._delete(self.address)


class _XnnpackFactory:
    """The XNNPACK that is linked into the runtime, driven through its C functions."""

    name = "xnnpack"

    def __init__(self, runtime: Runtime, options: Mapping[str, str]) -> None:
        try:
            default, create, delete = (
                runtime.symbol(f"TfLiteXNNPackDelegate{function}")
                for function in ("OptionsDefault", "Create", "Delete")
            )
        except (LookupError, OSError, ValueError) as error:
            raise DelegateUnusable(f"xnnpack cannot be reached on this runtime: {error}") from None
        # The options struct differs between the runtimes in size and in all but its first member.
        self._options = (ctypes.c_int32 * 64)()
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(default)(ctypes.addressof(self._options))
        if options:
            self._options[0] = _threads(options)
        self._create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(create)
        self._delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(delete)

    def make(self, _application: Application) -> LiveDelegate:
        address = self._create(ctypes.addressof(self._options))
        if not address:
            raise DelegateUnusable("TfLiteXNNPackDelegateCreate returned NULL")
        return _Xnnpack(address, self._delete)


def _threads(options: Mapping[str, str]) -> int:
    """The only option of xnnpack, ``num_threads``."""
    unknown = [key for key in options if key != "num_threads"]
    if unknown:
        raise DelegateUnusable(f"xnnpack has the option num_threads only, not {unknown[0]}")
    value = options["num_threads"]
    if not value.isdecimal():
        raise DelegateUnusable(f"xnnpack's num_threads must be a number, not {value!r}")
    return int(value)


class _Plugin:
    """A delegate that the runtime's own ``Delegate`` object owns."""

    def __init__(self, owner: Any) -> None:
        self.address: int = owner._get_native_delegate_pointer()
        self._owner = owner

    def close(self) -> None:
        self._owner = None


class _PluginFactory:
    """An external delegate library, loaded as users load it."""

    def __init__(self, path: str, options: Mapping[str, str], runtime: Runtime) -> None:
        self.name = path
        self._options = dict(options)
        self._class = runtime.module.Delegate
        if not Path(path).is_file():
            raise DelegateUnusable(f"there is no delegate library {path}")
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            reason = str(error).removeprefix(f"{path}: ")
            raise DelegateUnusable(f"{path} cannot be loaded as a library: {reason}") from None
        for function in ("tflite_plugin_create_delegate", "tflite_plugin_destroy_delegate"):
            if not hasattr(library, function):
                raise DelegateUnusable(f"{path} is no delegate plugin: it exports no {function}")

    def make(self, _application: Application) -> LiveDelegate:
        """Do what ``load_delegate`` does, but for one thing.

        When create returned NULL, the runtime's object would call destroy with NULL (RT-11), which is
        not what is judged here.
        """
        owner = self._class.__new__(self._class)
        try:
            owner.__init__(self.name, self._options)
        except (OSError, ValueError) as error:
            owner._library = None
            said = f": {error}" if str(error) else " and reported no error"
            raise DelegateUnusable(
                f"tflite_plugin_create_delegate of {self.name} returned NULL{said}"
            ) from None
        return _Plugin(owner)


class _ProbeFactory:
    """The suite's own delegate, which does as the application says."""

    name = "probe"

    def make(self, application: Application) -> LiveDelegate:
        return ReferenceDelegate(
            claim=application.claim, name="probe", fault=application.fault, flags=application.flags
        )


PROBE: DelegateFactory = _ProbeFactory()

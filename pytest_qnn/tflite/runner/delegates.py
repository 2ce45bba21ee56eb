"""From a specification string to delegates: the reference, its mutants, XNNPACK, a plugin library."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pytest_qnn.core.forms import DIRECT, QNN_DELEGATE
from pytest_qnn.core.printable import heard
from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.isolation.host import library_files
from pytest_qnn.isolation.host.checked_heap import CheckedHeap, Heap
from pytest_qnn.isolation.host.refusals import Lacking, Refusals, Refusing
from pytest_qnn.isolation.host.requests import Requests
from pytest_qnn.isolation.observe import control_words
from pytest_qnn.tflite.abi import layouts, peek
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.cases.plugin import CREATE, DESTROY
from pytest_qnn.tflite.mutants import DELEGATE, QNN
from pytest_qnn.tflite.mutants import named as mutant_named
from pytest_qnn.tflite.reference.adding import AddsTensors
from pytest_qnn.tflite.reference.delegate import HEAP, REQUESTS, NoMemory, ReferenceDelegate
from pytest_qnn.tflite.reference.dynamic import DynamicOutputs
from pytest_qnn.tflite.reference.personalities import PERSONALITIES
from pytest_qnn.tflite.reference.plugin import SAMPLE_OPTIONS
from pytest_qnn.tflite.runner import qnn_interface
from pytest_qnn.tflite.runner.plugin.symbols import UNDEFINED_SYMBOL, broken, is_plugin, other_kind
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.trace import NOT_REPORTED

_QNN_FACTORY = "pytest_qnn.tflite.qnn_delegate.factory"
"""The module that makes the reference of the QNN delegate: the only one that needs both halves."""
_MOST_OPENED = 1000
"""More often than any case opens a library."""
_dlopen = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)(("dlopen", ctypes.CDLL(None)))
_dlclose = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(("dlclose", ctypes.CDLL(None)))


class DelegateUnusable(Exception):  # noqa: N818 - a finding about what was named
    """The delegate cannot be used; the text is one clear sentence."""


class NoDelegate(DelegateUnusable):
    """The library is a plugin, and its create has returned NULL."""


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
    """The factory for a specification: ``reference``, ``mutant:NAME``, ``xnnpack`` or a library's path.

    A library that is no plugin but has the QNN delegate's own interface is used by that, and so is every one
    with ``direct:`` before its path.

    Raises:
        DelegateUnusable: the specification names nothing that can be used on this runtime.
    """
    if _needs_qnn(spec):
        # Nobody but its user needs a QNN client.
        made: DelegateFactory = importlib.import_module(_QNN_FACTORY).factory(spec, options)
        return made
    if spec == "reference" or spec.startswith(("reference:", "mutant:")):
        return _PythonFactory(spec, _python_delegate(spec), options)
    if spec == "xnnpack":
        return _XnnpackFactory(runtime, options)
    if spec.startswith(DIRECT) or _has_own_interface_only(spec):
        return DirectFactory(spec, options)
    return PluginFactory(spec, options)


def _has_own_interface_only(path: str) -> bool:
    return _has(path) and not is_plugin(Path(path))


def _has(path: str) -> bool:
    try:
        return qnn_interface.has_interface(path)
    except (OSError, ValueError):  # the factory of plugins says it better
        return False


def _needs_qnn(spec: str) -> bool:
    """The reference of the QNN delegate, or a mutant of it."""
    mutant = mutant_named(spec.removeprefix("mutant:")) if spec.startswith("mutant:") else None
    return spec == QNN_DELEGATE or (mutant is not None and mutant.part == QNN)


def _python_delegate(spec: str) -> Callable[..., ReferenceDelegate]:
    kind, _, name = spec.partition(":")
    if kind == "reference" and name:
        if name not in PERSONALITIES:
            raise DelegateUnusable(f"{name} is none of the reference's variants: {', '.join(PERSONALITIES)}")
        return PERSONALITIES[name].delegate
    if kind == "reference":
        return ReferenceDelegate
    mutant = mutant_named(name)
    if mutant is None:
        raise DelegateUnusable(f"there is no mutant called {name!r}")
    if mutant.subject != "delegate":
        raise DelegateUnusable(f"the mutant {name} is no delegate but a QNN backend")
    faulty: Callable[..., ReferenceDelegate] | None = mutant.of(DELEGATE)
    return faulty or ReferenceDelegate  # a mutant of the runtime changes the trace, not the delegate


class _PythonFactory:
    def __init__(
        self, name: str, create: Callable[..., ReferenceDelegate], options: Mapping[str, str]
    ) -> None:
        self.name = name
        self._create = create
        self._options = dict(options)
        self._known: tuple[str, ...] = getattr(create, "OPTIONS", ())
        self.refusing: Refusing = REQUESTS
        self.heap: Heap = HEAP
        self._checked(self._options)

    def make(self, application: Application) -> LiveDelegate:
        """Variants of the reference decide by themselves what they claim."""
        options = self._checked(self._options | dict(application.options))
        try:
            arguments: dict[str, Any] = {"options": options} if self._known else {}
            if is_steerable(self.name):
                arguments |= {"claim": application.claim}
                arguments |= {"fault": application.fault} if application.fault else {}
            return self._create(**arguments)
        except NoMemory as error:
            raise NoDelegate(f"the delegate {self.name} cannot be made: {error}") from None
        except ValueError as error:
            raise DelegateUnusable(f"the delegate {self.name} refuses its options: {error}") from None

    def _checked(self, options: dict[str, str]) -> dict[str, str]:
        unknown = next((key for key in options if key not in self._known), None)
        if unknown and not self._known:
            raise DelegateUnusable(f"the delegate {self.name} takes no options, but {unknown} was given")
        if unknown:
            raise DelegateUnusable(f"the delegate {self.name} has no option {unknown}")
        return options


def is_steerable(spec: str) -> bool:
    """The delegate of this specification claims what the case says."""
    return spec == "reference" or spec.startswith("mutant:")


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

    def make(self, application: Application) -> LiveDelegate:
        if application.options:
            _threads(dict(application.options))
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


class _Native:
    """A delegate that a library's function has made; ``kept`` must live as long as it."""

    def __init__(self, address: int, destroy: Callable[[int], None], kept: object = None) -> None:
        self.address = address
        self._destroy = destroy
        self._kept = kept

    def close(self) -> None:
        self._destroy(self.address)


class _Said(threading.local):
    """What create reports, on the thread that calls it."""

    def __init__(self) -> None:
        self.texts: list[str] = []


_said = _Said()
_report = layouts.PluginReport(lambda text: _said.texts.append(heard(text or b"")))


class LibraryFactory:
    """Makes delegates of a library.

    Args:
        spec: the specification string, which ends in the library's path.
        options: of every delegate that it makes.

    Attributes:
        path: of the library.

    Raises:
        DelegateUnusable: there is no such file, it is cut off, or is for another machine.
    """

    def __init__(self, spec: str, options: Mapping[str, str]) -> None:
        self.name = spec
        self.path = spec.removeprefix(DIRECT)
        self.options = dict(options)
        self._refusals: tuple[ctypes.CDLL, Refusals] | None = None
        if not os.path.isfile(self.path):
            raise DelegateUnusable(f"there is no delegate library {self.path}")
        flaw = library_files.flaw(self.path)
        if flaw:
            raise DelegateUnusable(f"{self.path} {flaw}")

    @property
    def refusing(self) -> Refusing:
        """Who can refuse what the library asks the system for; it is loaded for that.

        Raises:
            Lacking: nobody can.
            DelegateUnusable: it cannot be loaded.
        """
        if call_log.active() is None:
            raise Lacking(
                "requests are refused in a process of its own only (not so: --qnn-sandbox=off, --qnn-debug)"
            )
        library = self.loaded()
        known = self._refusals
        if known is None or known[0] is not library:
            known = self._refusals = library, Refusals(library, self.path)
        return known[1]

    @property
    def heap(self) -> Heap:
        """What the library requests; it is loaded for that.

        Raises:
            Lacking: nobody can check it.
            DelegateUnusable: it cannot be loaded.
        """
        if call_log.active() is None:
            raise Lacking(
                "a heap is checked in a process of its own only (not so: --qnn-sandbox=off, --qnn-debug)"
            )
        return CheckedHeap(self.loaded(), self.path)

    def loaded(self) -> ctypes.CDLL:
        """The library. Raises DelegateUnusable."""
        raise NotImplementedError

    @property
    def has_own_interface(self) -> bool:
        """The library has TfLiteQnnDelegateCreate, whichever interface was selected."""
        return _has(self.path)

    def by_own_interface(self, options: Mapping[str, str]) -> DelegateFactory:
        """The same library by its own interface, with what of these options that takes."""
        known = {key: value for key, value in options.items() if key in qnn_interface.OPTIONS}
        return DirectFactory(f"{DIRECT}{self.path}", known)

    def make(self, application: Application) -> LiveDelegate:
        """A new delegate. Raises DelegateUnusable."""
        raise NotImplementedError

    def forget(self) -> None:
        """Let go of the library."""
        raise NotImplementedError

    def unload(self) -> bool:
        """Close the library as often as it was opened; False where the loader keeps it all the same.

        No delegate of it must be left.
        """
        name = self.path.encode()
        self.forget()
        for _ in range(_MOST_OPENED):
            handle = _dlopen(name, os.RTLD_LAZY | os.RTLD_NOLOAD)
            if not handle:
                return True
            # Each dlopen counts: once for this call, and once for an earlier one, Python's or the delegate's.
            _dlclose(handle)
            _dlclose(handle)
        return False


class DirectFactory(LibraryFactory):
    """The library of a QNN delegate, used by the delegate's own interface (seed 000, running example).

    Raises:
        DelegateUnusable: it has no such interface, or an option cannot be put into its struct.
    """

    def __init__(self, spec: str, options: Mapping[str, str]) -> None:
        super().__init__(spec, options)
        self._interface: qnn_interface.QnnInterface | None = None
        self._check(self.options)
        self._load()

    def _check(self, options: Mapping[str, str]) -> None:
        wrong = qnn_interface.wrong_option(options)
        if wrong:
            raise DelegateUnusable(f"the delegate {self.name}: {wrong}")

    def _load(self) -> qnn_interface.QnnInterface:
        if self._interface is None:
            try:
                self._interface = qnn_interface.QnnInterface(self.path)
            except AttributeError:
                missing = ", ".join(qnn_interface.FUNCTIONS)
                raise DelegateUnusable(f"{self.path} does not export all of {missing}") from None
            except OSError as error:
                raise _unloadable(self.path, error) from None
        return self._interface

    def loaded(self) -> ctypes.CDLL:
        """As the base class says."""
        return self._load().library

    def make(self, application: Application) -> LiveDelegate:
        """Do what seed 000's running example does."""
        options = self.options | dict(application.options)
        self._check(options)
        interface = self._load()
        address, kept = interface.create(options)
        if address:
            return _Native(address, interface.delete, kept)
        said = f"{qnn_interface.CREATE} of {self.path} returned NULL"
        if qnn_interface.BACKEND_TYPE in options:
            raise NoDelegate(said)
        wanted = f"--tflite-delegate-option={qnn_interface.BACKEND_TYPE}=htp"
        raise DelegateUnusable(f"{said}: the option {qnn_interface.BACKEND_TYPE} is mandatory ({wanted})")

    def forget(self) -> None:
        """As the base class says."""
        self._interface = self._refusals = None


def _unloadable(path: str, error: OSError) -> DelegateUnusable:
    reason = str(error).removeprefix(f"{path}: ")
    return DelegateUnusable(f"{path} cannot be loaded as a library: {reason}")


class PluginFactory(LibraryFactory):
    """An external delegate library, used as the runtimes' Python `Delegate` does.

    That class is not used itself: it calls destroy with NULL when create has returned NULL (RT-11), passes
    the number of options as an int (RT-12), and makes classes for each delegate, whose memory hides leaks.

    Attributes:
        broken: why it can make no delegate although it is a plugin, for rules about its interface.
        unloadable: that is what the loader says, which refuses it.
    """

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        super().__init__(path, options)
        self._library: ctypes.PyDLL | None = None
        self._create: Callable[..., Any]
        self._destroy: Callable[..., Any]
        other = ""
        try:
            self.broken, other = broken(Path(path)), other_kind(Path(path))
        except (OSError, ValueError):  # the loader says it better
            self.broken = ""
        if other:  # it is not loaded: what that does in such a library nobody has asked for
            raise DelegateUnusable(f"{path} is no delegate plugin: {other}")
        self.unloadable = UNDEFINED_SYMBOL in self.broken
        if not self.broken:
            self._load()

    def _load(self) -> ctypes.PyDLL:
        """The library; as the runtimes do, Python's lock is kept while its functions are called."""
        if self._library is not None:
            return self._library
        try:
            with control_words.loading(self.path):
                library = ctypes.PyDLL(self.name)
        except OSError as error:
            raise _unloadable(self.name, error) from None
        for function in (CREATE, DESTROY):
            if not hasattr(library, function):
                raise DelegateUnusable(f"{self.name} is no delegate plugin: it exports no {function}")
        create, destroy = getattr(library, CREATE), getattr(library, DESTROY)
        create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        create.restype = ctypes.c_void_p
        destroy.argtypes, destroy.restype = [ctypes.c_void_p], None
        self._library = library
        self._create = call_log.noted(CREATE, create, pointer=True)
        self._destroy = call_log.noted(DESTROY, destroy)
        return library

    def loaded(self) -> ctypes.CDLL:
        """As the base class says."""
        return self._load()

    def make(self, application: Application) -> LiveDelegate:
        """Do what ``load_delegate`` does."""
        if self.broken:
            raise DelegateUnusable(f"{self.name}: {self.broken}")
        self._load()
        options = self.options | dict(application.options)
        keys, values = (
            peek.array_type(ctypes.c_char_p, len(options))(*(str(text).encode() for text in texts))
            for texts in (options.keys(), options.values())
        )
        _said.texts.clear()
        address = self._create(keys, values, len(options), _report)
        if not address:
            said = f": {''.join(_said.texts)}" if any(_said.texts) else f" {NOT_REPORTED}"
            raise NoDelegate(f"{CREATE} of {self.name} returned NULL{said}")
        return _Native(address, self._destroy)

    def forget(self) -> None:
        """As the base class says."""
        self._library = self._refusals = None


class _Probe(ReferenceDelegate):
    custom = True
    requests = Requests(NoMemory)


class _DynamicProbe(DynamicOutputs):
    requests = _Probe.requests


class _AddingProbe(AddsTensors):
    requests = _Probe.requests


class _ProbeFactory:
    """The suite's own delegate, which does as the application says."""

    name = "probe"

    def make(self, application: Application) -> LiveDelegate:
        create: Callable[..., LiveDelegate] = _DynamicProbe if application.fault == "dynamic" else _Probe
        if application.added:
            create = functools.partial(_AddingProbe, added=application.added)
        return create(claim=application.claim, name="probe", fault=application.fault, flags=application.flags)


def why_broken(factory: DelegateFactory) -> str:
    """Why a plugin can make no delegate, while its interface can still be judged; empty otherwise."""
    return factory.broken if isinstance(factory, PluginFactory) else ""


def is_unloadable(factory: DelegateFactory) -> bool:
    """The loader refuses a plugin, of which nothing but that can be judged."""
    return isinstance(factory, PluginFactory) and factory.unloadable


def known_options(spec: str, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Options that the plugin interface of a delegate takes, as far as that is known."""
    return SAMPLE_OPTIONS if spec.startswith(("reference", "mutant:")) else tuple(options.items())


PROBE: DelegateFactory = _ProbeFactory()

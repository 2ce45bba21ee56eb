"""The plugin interface of one delegate of a chain: a library's two functions, or the emulated ones."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_qnn.core.forms import QNN_DELEGATE
from pytest_qnn.isolation.evidence import call_log
from pytest_qnn.tflite.abi import layouts
from pytest_qnn.tflite.cases.delegate import Application
from pytest_qnn.tflite.cases.plugin import CREATE, DESTROY
from pytest_qnn.tflite.mutants import PLUGIN, QNN
from pytest_qnn.tflite.mutants import named as mutant_named
from pytest_qnn.tflite.reference.plugin import EmulatedPlugin
from pytest_qnn.tflite.runner import qnn_interface
from pytest_qnn.tflite.runner.delegates import DelegateFactory, DirectFactory
from pytest_qnn.tflite.runner.plugin.symbols import FUNCTIONS, described
from pytest_qnn.tflite.runtime.runtime import Runtime
from pytest_qnn.tflite.trace import LibrarySeen

_MOST_BESIDE = 1000
"""Files of a library's folder that stand beside a copy of it, too."""


class NoCopy(Exception):  # noqa: N818 - a finding about this machine
    """There can be no copy of a library; the text says why."""


class NoInterface(Exception):  # noqa: N818 - a finding about the delegate
    """The delegate has no plugin interface; the text says why."""


def _noted(name: str, function: Any) -> Any:
    return call_log.noted(name, function, pointer=name == CREATE)


class Plugin:
    """A loaded plugin interface.

    Args:
        seen: what its library says of itself.
        create: the address of ``tflite_plugin_create_delegate``; 0: it has none.
        destroy: the same of ``tflite_plugin_destroy_delegate``.
        again: loads a copy of it.
        keep: what must live as long as it.
    """

    def __init__(
        self,
        seen: LibrarySeen,
        create: int,
        destroy: int,
        again: Callable[[], Plugin],
        keep: object,
    ) -> None:
        self.seen = seen
        self.create: Any = _noted(CREATE, layouts.PluginCreate(create)) if create else None
        self.destroy: Any = _noted(DESTROY, layouts.PluginDestroy(destroy)) if destroy else None
        self.again = again
        self._keep = keep


def open_plugin(factory: DelegateFactory, runtime: Runtime) -> Plugin:
    """The interface of what a factory makes.

    Raises:
        NoInterface: there is none.
    """
    if factory.name == "xnnpack":
        raise NoInterface("xnnpack is linked into the runtime and has no plugin interface")
    kind, _, name = factory.name.partition(":")
    mutant = mutant_named(name) if kind == "mutant" else None
    if factory.name == QNN_DELEGATE or (mutant is not None and mutant.of(QNN) is not None):
        raise NoInterface(f"{QNN_DELEGATE} is part of this suite and has no plugin interface")
    if isinstance(factory, DirectFactory):
        raise NoInterface(f"{factory.name} is used by its own interface, {qnn_interface.CREATE}")
    if kind == "reference":
        return _emulated(EmulatedPlugin, factory)
    if kind == "mutant":
        return _emulated((mutant and mutant.of(PLUGIN)) or EmulatedPlugin, factory)
    return _native(Path(factory.name), runtime)


def _emulated(make: Callable[..., EmulatedPlugin], factory: DelegateFactory) -> Plugin:
    plugin = make(lambda: factory.make(Application()))
    seen = LibrarySeen(plugin.exports, plugin.undefined, plugin.load_error)
    create, destroy = (
        address if name in plugin.exports and not plugin.load_error else 0
        for name, address in zip(FUNCTIONS, (plugin.create_address, plugin.destroy_address), strict=True)
    )
    return Plugin(seen, create, destroy, lambda: _emulated(make, factory), plugin)


def _native(path: Path, runtime: Runtime) -> Plugin:
    seen = described(path, runtime)
    if seen.load_error:
        return Plugin(seen, 0, 0, lambda: _copied(path, seen), None)
    return _loaded(path, seen)


def _loaded(path: Path, seen: LibrarySeen) -> Plugin:
    library = ctypes.CDLL(str(path))
    create, destroy = (_address(library, name) for name in FUNCTIONS)
    return Plugin(seen, create, destroy, lambda: _copied(path, seen), library)


def _copied(path: Path, seen: LibrarySeen) -> Plugin:
    """The library once more: the loader takes another file for another library.

    Its folder has all that is beside the library: some look there for others, and for files of theirs.
    """
    folder = _beside(path)
    try:
        plugin = _loaded(Path(folder) / path.name, seen)
    except OSError:
        _remove(folder)
        raise
    weakref.finalize(plugin, _remove, folder)
    return plugin


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _beside(path: Path) -> str:
    """A new folder with a copy of the file, and links to the others of its folder.

    Raises:
        NoCopy: it cannot be made.
    """
    mask = os.umask(0o077)  # the library may have set one with which nobody can read a new file
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="pytest-qnn-copy-")
        shutil.copyfile(path, Path(folder) / path.name)
        with os.scandir(path.parent) as entries:
            for entry in itertools.islice(entries, _MOST_BESIDE):
                if entry.name != path.name:
                    os.symlink(os.path.abspath(entry.path), os.path.join(folder, entry.name))
    except OSError as error:
        _remove(folder)
        raise NoCopy(str(error)) from None
    finally:
        os.umask(mask)
    return folder


def _address(library: ctypes.CDLL, name: str) -> int:
    function = getattr(library, name, None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0

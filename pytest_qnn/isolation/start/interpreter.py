"""How the helper processes are started: a fresh interpreter that runs a module of this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

from pytest_qnn.core.printable import printable

_START = "; ".join(
    (
        "import os, sys",
        "further = sys.argv.pop(1).split(os.pathsep)",
        "sys.path[:] = [*filter(None, sys.path), *(entry for entry in further if entry not in sys.path)]",
        "import runpy",
        'runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)',
    )
)
"""Finds modules where every interpreter of this environment does, and then where this process does.

``python -m`` and PYTHONPATH would put the working directory, and what pytest has added for the user's tests,
before the standard library: a ``platform.py`` there would be taken for Python's own. One line, so that every
shell reads it where ``--qnn-debug`` prints it: dash has no ``$'\\012'``.
"""


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs ``module`` as ``python -m`` does, with these arguments."""
    entries = dict.fromkeys(os.path.abspath(entry) for entry in sys.path if entry)
    return [sys.executable, "-c", _START, os.pathsep.join(entries), module, *arguments]


_ELSEWHERE = ("PYTHONPATH", "PYTHONSTARTUP")
"""What makes an interpreter look for modules elsewhere first."""
_CREDENTIALS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL", "AUTH")
"""Words in the names of variables that are held back."""
_LOADERS = ("LD_", "ADSP_", "QNN_", "VK_", "ASAN_")
"""How the names of variables begin that loaders, drivers and sanitizers read: they are never held back."""


def environment(passed: Collection[str] = ()) -> dict[str, str]:
    """The environment of this process, for a process in which a target is loaded.

    Without what looks like a credential, but for the names in ``passed``: a library that writes its
    environment to a log or sends it to its maker is to find none. It is no barrier: such a process runs as
    the same user, and can read what that user can, /proc/PID/environ of this process too.
    """
    left_out = {*_ELSEWHERE, *_held_back(passed)}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def held_back(passed: Collection[str] = ()) -> tuple[str, ...]:
    """The names that `environment` leaves out for looking like credentials, sorted and fit to be shown."""
    return tuple(sorted(map(printable, _held_back(passed))))


def _held_back(passed: Collection[str]) -> list[str]:
    return [name for name in os.environ if _looks_like_credential(name) and name not in passed]


def _looks_like_credential(name: str) -> bool:
    """One of the words is anywhere in it, in any case.

    Also inside another word: there is no telling where a word begins in MYAPIKEY and GITHUBTOKEN. An AUTHOR
    or KEYBOARD that is held back costs one ``--qnn-env``, a key that travels has to be replaced. (XAUTHORITY,
    which looks like another word, names the file of a credential.)
    """
    if name.startswith(_LOADERS) or name.endswith("_LIBRARY_PATH") or name == "GLIBC_TUNABLES":
        return False
    upper = name.upper()
    return any(word in upper for word in _CREDENTIALS)

"""How the helper processes are started: a fresh interpreter that runs a module of this package."""

from __future__ import annotations

import os
import sys

_START = """\
import os, sys
further = sys.argv.pop(1).split(os.pathsep)
sys.path[:] = [*filter(None, sys.path), *(entry for entry in further if entry not in sys.path)]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Finds modules where every interpreter of this environment does, and then where this process does.

``python -m`` and PYTHONPATH would put the working directory, and what pytest has added for the user's tests,
before the standard library: a ``platform.py`` there would be taken for Python's own.
"""


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs ``module`` as ``python -m`` does, with these arguments."""
    entries = dict.fromkeys(os.path.abspath(entry) for entry in sys.path if entry)
    return [sys.executable, "-c", _START, os.pathsep.join(entries), module, *arguments]


def environment() -> dict[str, str]:
    """The environment of this process, without what makes an interpreter look for modules elsewhere first."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSTARTUP")}

"""Tracebacks of authors' tests: their own lines, and none of the suite or of a runtime.

What an author did wrong is said in the exception's one sentence, at the line that did it. ``--full-trace``
shows all.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

_FIXTURES = ("pytest_qnn.fixtures.delegates", "pytest_qnn.fixtures.memory")
_OURS = ("pytest_qnn.fixtures", "tflite_runtime", "ai_edge_litert")
"""Packages whose frames are hidden with all that they call, beside this one."""
_PYTESTS = ("_pytest", "pluggy")
"""Packages whose frames stand above an author's."""
_STANDARD_LIBRARY = Path(contextlib.__file__).parent


def hide(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Leave out what the suite and the runtimes do, where a frame of the author's own is left.

    Only of tests that use a fixture of the plugin: what this project's own tests find is inside the suite.
    """
    if isinstance(excinfo.value, pytest.skip.Exception) or not _uses_a_fixture(item):
        return
    frames = [frame for frame, _ in traceback.walk_tb(excinfo.tb)]
    for place in _hidden([Path(frame.f_code.co_filename) for frame in frames], item.path):
        # pytest asks each frame for this name. To set a shorter traceback here has no effect: pytest cuts it
        # out of the first one again.
        frames[place].f_locals["__tracebackhide__"] = True


def _uses_a_fixture(item: pytest.Item) -> bool:
    named = set(getattr(item, "fixturenames", ()))
    return any(not named.isdisjoint(vars(importlib.import_module(name))) for name in _FIXTURES)


def _hidden(paths: list[Path], test: Path) -> list[int]:
    """Places of the frames not to be shown, of those whose code is in these files.

    All below the author's own that calls the suite, but for calls back into the test's file.
    """
    ours = (Path(__file__).parents[1], *_folders(_OURS))
    first = next((place for place, path in enumerate(paths) if _is_below(path, ours)), len(paths))
    own = [place for place in range(first) if not _is_between(paths[place])]
    if first == len(paths) or not own:
        return []
    return [place for place in range(own[-1] + 1, len(paths)) if paths[place] != test]


def _is_between(path: Path) -> bool:
    """Whether the file belongs to what stands between authors and the suite: pytest, the standard library."""
    if _STANDARD_LIBRARY in path.parents and "site-packages" not in path.parts:
        return True
    return _is_below(path, tuple(_folders(_PYTESTS)))


def _folders(packages: tuple[str, ...]) -> Iterator[Path]:
    """Of those packages that are loaded."""
    for name in packages:
        if name in sys.modules:
            yield from map(Path, sys.modules[name].__path__)


def _is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    return not set(folders).isdisjoint(path.parents)

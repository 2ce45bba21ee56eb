"""The browser that pages are opened in: Debian's chromium, driven by playwright; and axe-core, from npm."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

INSTALL = (
    "apt-get install chromium npm && pip install -e '.[browser]' && "
    "npm install --prefix \"$(python -c 'import sys; print(sys.prefix)')\" axe-core"
)
AXE = Path(sys.prefix) / "node_modules/axe-core/axe.min.js"
Visit = Callable[..., AbstractContextManager[Any]]
"""Opens the page of a report by name: the fixture `visit`."""


def missing() -> list[str]:
    """What is not installed."""
    found = {
        "chromium": shutil.which("chromium") is not None,
        "playwright": importlib.util.find_spec("playwright") is not None,
        "axe-core": AXE.exists(),
    }
    return [name for name, is_there in found.items() if not is_there]


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window.

    Raises:
        RuntimeError: there is none.
    """
    if missing():
        raise RuntimeError(f"{', '.join(missing())} is missing: {INSTALL}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        # Its sandbox needs another user than root. The pages are our own.
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()

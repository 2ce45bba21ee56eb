from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page as many_findings
from pytest_qnn.report.html import render
from tests.browser import browsers
from tests.browser.browsers import Visit

REPORTS = Path(__file__).with_name("reports")

_LISTEN = """
window.refused = [];
addEventListener("securitypolicyviolation", ({violatedDirective, blockedURI}) => {
  refused.push(`${violatedDirective} ${blockedURI}`);
});
"""


@pytest.fixture(scope="session")
def documents() -> dict[str, dict[str, Any]]:
    """Reports by name: of runs, and one with 150 findings."""
    stored = {path.stem: json.loads(path.read_text()) for path in sorted(REPORTS.glob("*.json"))}
    return {**stored, "many": many_findings.report()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if browsers.missing():
        pytest.skip(f"{', '.join(browsers.missing())} is missing: {browsers.INSTALL}")
    with browsers.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def visit(
    browser: Any, documents: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Visit:
    """Opens the page of a report; at the end nothing has been refused, requested or logged as an error."""
    folder = tmp_path_factory.mktemp("pages")

    @contextlib.contextmanager
    def visited(
        name: str,
        document: dict[str, Any] | None = None,
        comparison: dict[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(render.page(document or documents[name], comparison))
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | options)
        scripted = options.get("java_script_enabled", True)
        if scripted:
            context.add_init_script(_LISTEN)
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: said.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        try:
            yield page
            assert said == []
            assert not scripted or page.evaluate("refused") == []
        finally:
            context.close()

    return visited

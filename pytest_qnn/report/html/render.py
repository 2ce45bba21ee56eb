"""The page's text: templates filled in, with one style and one script, and nothing else that a browser loads.

All text is escaped by jinja2 and made printable afterwards. The page's Content-Security-Policy names the
digests of its one style and its one script, so that a browser obeys no other, whatever a text had in it:
https://www.w3.org/TR/CSP3/#match-element-to-source-list
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pytest_qnn.core.printable import printable
from pytest_qnn.report.html import view
from pytest_qnn.report.html.answer import many
from pytest_qnn.report.terminal import spans

_HERE = Path(__file__).parent


def page(document: Mapping[str, Any], comparison: Mapping[str, Any] | None = None) -> str:
    """The whole page.

    Args:
        document: a report of schema 2.
        comparison: what differs from an earlier report, as JSON data (``compare/schema.json``).
    """
    style, script = _content("style.css"), _content("filter.js")
    text = (
        _environment()
        .get_template("page.html.jinja")
        .render(
            page=view.page(document, comparison),
            policy=_policy(style, script),
            # Both are files of this package.
            style=Markup(style),
            script=Markup(script),
        )
    )
    # Of the page itself no character changes: what stands between its tags is from elsewhere.
    return printable(text)


def _policy(style: str, script: str) -> str:
    """What a browser may load or run: this style, this script, and nothing from anywhere."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _content(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["seconds"] = _seconds
    environment.filters["many"] = many
    environment.filters["moment"] = _moment
    environment.filters["spans"] = spans
    return environment


def _moment(text: str) -> str:
    """``2026-11-24 09:09 UTC``; what is no such time is left as it is."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{found:%Y-%m-%d %H:%M} {found.tzname() or ''}".strip()


def _seconds(value: float) -> str:
    """``0.03 s``, ``12.4 s``, ``3 min 20 s``."""
    if value >= 60:
        return f"{int(value) // 60} min {int(value) % 60} s"
    return f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"

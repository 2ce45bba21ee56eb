"""What is computed of the package's metadata: its description, README.md with absolute links.

README.md has relative links, which lead to the state of the repository that a reader looks at. A package
index shows the text alone, where they would lead nowhere: there they lead to the tag of the version, at the
address that pyproject.toml gives ``Repository``; without one they are text. All else is in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def declared(name: str) -> str:
    """The text that pyproject.toml gives a key. There is no tomllib in Python 3.10."""
    found = re.search(
        rf'^{name} = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise LookupError(f"pyproject.toml has no line that gives {name} a text")
    return found[1]


def repository() -> str:
    """Where the repository is published; empty: nowhere yet."""
    try:
        return declared("Repository")
    except LookupError:
        return ""


def description() -> str:
    """README.md; links without a scheme lead to the tag of this version, or are text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if not repository():
        return re.sub(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:)[^()\s]+\)", r"\1", text)
    base = f"{repository()}/blob/v{declared('version')}/"
    text = re.sub(r"\]\((?!\w+:|#)([^()\s]+)\)", rf"]({base}\1)", text)
    return re.sub(r"\]\((#[^()\s]+)\)", rf"]({base}README.md\1)", text)


setup(long_description=description(), long_description_content_type="text/markdown")

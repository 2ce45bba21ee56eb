"""MkDocs' hook for the site (mkdocs.yml): pages of the repository's top, and links that lead out of docs/.

In the repository a link is relative to its file. In the site a file of ``TOP`` is a page below ``project/``.
Links to other files outside of docs/ lead to the repository at ``repo_url``, or are text where there is none.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOP = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
"""Files beside docs/, and where they are in the site."""
_CODE_OR_LINK = re.compile(
    r"^ *```.*?^ *```[ \t]*$|(?P<ticks>`+).+?(?P=ticks)|\[(?P<text>[^\]\[]*)\]\((?P<to>[^()\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def relinked(markdown: str, source: Path, repository: str | None = None) -> str:
    """The text of a page with links as they are in the site.

    Args:
        markdown: the text, with links relative to ``source``.
        source: the file that it is from, in docs/ or one of ``TOP``.
        repository: the address of the repository, as ``repo_url`` in mkdocs.yml.
    """
    return _CODE_OR_LINK.sub(lambda found: _written(found, source, repository), markdown)


def _written(found: re.Match[str], source: Path, repository: str | None) -> str:
    name, _, anchor = (found["to"] or "").partition("#")
    if not name or re.match(r"\w+:", name):
        return found[0]
    to = Path(os.path.normpath(source.parent / name))
    if page := _page(to):
        address = os.path.relpath(page, Path(_page(source) or source).parent)
        return f"[{found['text']}]({address}{'#' * bool(anchor)}{anchor})"
    if not to.exists():
        return found[0]  # which MkDocs names
    address = f"{(repository or '').rstrip('/')}/blob/main/{to.relative_to(ROOT).as_posix()}"
    return f"[{found['text']}]({address})" if repository else found["text"]


def _page(file: Path) -> str | None:
    """Where a file is in the site; None: it is not there."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    return TOP.get(file.relative_to(ROOT).as_posix()) if file.is_relative_to(ROOT) else None


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add the files of ``TOP`` to the pages."""
    from mkdocs.structure.files import File

    for name, page in TOP.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links as they are in the site."""
    return relinked(markdown, Path(page.file.abs_src_path), config.repo_url)

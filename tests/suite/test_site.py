"""The documentation site: each page is in its navigation, and links that leave docs/ lead somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tools.site_links import DOCS, ROOT, TOP, relinked

HERE = DOCS / "how-to" / "ci.md"


class _Loader(yaml.SafeLoader):
    """Without what only MkDocs needs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)


def pages(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    for entry in nav:
        below = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from [below] if isinstance(below, str) else pages(below)


def test_each_page_is_in_the_navigation_once() -> None:
    expected = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | set(TOP.values())
    listed = list(pages(SITE["nav"]))
    assert set(listed) == expected, "mkdocs.yml, nav"
    assert len(listed) == len(set(listed))


def test_each_page_is_in_the_index() -> None:
    """But the pages that an index of their own lists, those of rules and of decisions."""
    index = (DOCS / "index.md").read_text()
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix()
        if name != "index.md" and not name.startswith(("rules/", "explanation/decisions/")):
            assert f"]({name})" in index, name


@pytest.mark.parametrize(
    ("link", "with_address", "without"),
    [
        ("[a](matrix.md#b)", "[a](matrix.md#b)", "[a](matrix.md#b)"),
        ("[a](#b)", "[a](#b)", "[a](#b)"),
        ("[a](https://b.example/c.md)", "[a](https://b.example/c.md)", "[a](https://b.example/c.md)"),
        ("[a](../../CHANGELOG.md#b)", "[a](../project/changelog.md#b)", "[a](../project/changelog.md#b)"),
        ("[a](../../examples/delegate_repo)", "[a](https://r/blob/main/examples/delegate_repo)", "a"),
        ("`[a](../../LICENSE)`", "`[a](../../LICENSE)`", "`[a](../../LICENSE)`"),
        ("```\n[a](../../LICENSE)\n```", "```\n[a](../../LICENSE)\n```", "```\n[a](../../LICENSE)\n```"),
        ("[a](../../nowhere)", "[a](../../nowhere)", "[a](../../nowhere)"),
    ],
)
def test_a_link_is_as_the_site_needs_it(link: str, with_address: str, without: str) -> None:
    assert relinked(link, HERE, "https://r/") == with_address
    assert relinked(link, HERE) == without


def test_links_of_a_file_beside_docs_lead_into_it() -> None:
    text = relinked("[a](docs/how-to/ci.md#shell) [b](CONTRIBUTING.md)", ROOT / "ARCHITECTURE.md")
    assert text == "[a](../how-to/ci.md#shell) [b](contributing.md)"


def test_nothing_is_fetched_from_another_host() -> None:
    assert SITE["theme"]["font"] is False
    assert SITE["plugins"] == ["search"]
    assert SITE["strict"] is True
    assert not SITE.keys() & {"extra_css", "extra_javascript"}

"""Write the pages of docs/reference that are made from the code: ``python -m tools.reference``."""

from __future__ import annotations

from pathlib import Path

from tools.reference import choices, fixtures, options, schemas, verdicts

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {
    "options.md": options.page,
    "verdicts.md": verdicts.page,
    "choices.md": choices.page,
    "fixtures.md": fixtures.page,
    "report.md": schemas.report,
    "cases.md": schemas.cases,
}
"""By name: what makes its text."""


def main() -> None:
    """Write each page."""
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()

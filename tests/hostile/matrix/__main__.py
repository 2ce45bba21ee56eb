"""Judge rows of the matrix: ``python -m tests.hostile.matrix [--only NAME...] [--jobs N]``."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import msgspec

from tests.hostile.matrix import document
from tests.hostile.matrix.action import SIDES
from tests.hostile.matrix.actions import ACTIONS
from tests.hostile.matrix.row import Row, is_possible, judge

_ROWS = Path(__file__).parents[3] / "docs" / "measured" / "hostile.jsonl"


def known(judged: Path) -> dict[tuple[str, str], Row]:
    """The rows that were judged, the last of each."""
    lines = judged.read_bytes().splitlines() if judged.exists() else []
    rows = (msgspec.json.decode(line, type=Row) for line in lines)
    return {(row.action, row.side): row for row in rows}


def main() -> None:
    """Judge what is asked for, and print what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.matrix", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of the actions' names")
    parser.add_argument("--side", choices=SIDES, help="one half only")
    parser.add_argument("--missing", action="store_true", help="only rows that were not judged yet")
    parser.add_argument("--wrong", action="store_true", help="only rows that were wrong the last time")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=_ROWS, help="file that rows are added to")
    parser.add_argument("--document", type=Path, help="judge nothing, and write this page from the file")
    asked = parser.parse_args()
    if asked.document:
        document.write(known(asked.rows), asked.document)
        return
    impossible = is_possible()
    if impossible:
        parser.exit(4, f"{impossible}\n")
    rows = known(asked.rows)
    chosen = [
        (name, side)
        for name in ACTIONS
        for side in SIDES
        if name.startswith(tuple(asked.only)) and asked.side in {None, side}
        if not (asked.missing and (name, side) in rows)
        if not (asked.wrong and ((name, side) not in rows or not rows[name, side].wrong))
    ]
    with ThreadPoolExecutor(asked.jobs) as pool, asked.rows.open("ab") as file:
        for row in pool.map(lambda pair: judge(*pair), chosen):
            today = msgspec.structs.replace(row, on=date.today().isoformat())
            file.write(msgspec.json.encode(today) + b"\n")
            file.flush()
            print(f"{row.action} {row.side}: {'; '.join(row.wrong) or 'as expected'}", flush=True)


if __name__ == "__main__":
    main()

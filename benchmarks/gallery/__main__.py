"""The gallery of conforming oddities, judged by all rules of a half: docs/measured/gallery.md.

python -m benchmarks.gallery HALF [--only PATTERN]... [--profile default] [--seed 1] [--load K]
                             [--jobs N] [--examples N] [--results FILE] [--left] [--table FILE]

Each target of ``tests/gallery/HALF/targets.py`` is one line of the results, which are appended as they come.
A further call goes on where the last one ended, and judges what was judged before by those rules whose cases
or checks have changed since (`benchmarks.gallery.results`). ``--left`` says how much that is. ``--again``
judges by all rules anew. ``--jobs`` judges several targets at once, all beside the same busy loops.
``--left`` and ``--table`` judge nothing: the latter writes the tables of the half into the document.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import importlib
import multiprocessing
from pathlib import Path
from typing import Any

from benchmarks.gallery import judged_by_name
from benchmarks.gallery.document import document
from benchmarks.gallery.results import (
    HALVES,
    Judged,
    Key,
    Standing,
    keep,
    kept,
    rules_before,
    rules_of,
    standing,
)
from benchmarks.quiet import busy
from pytest_qnn.isolation.processes import die_with_parent


def main() -> None:
    options = _parser().parse_args()
    gallery = importlib.import_module(f"tests.gallery.{options.half}.targets")
    if options.table:
        known = options.table.read_text() if options.table.exists() else ""
        results, before = kept(options.results), rules_before(options.results)
        options.table.write_text(document(gallery, options.half, results, before, known))
        return
    now, wanted = rules_of(options.half), _wanted(options, gallery)
    if options.left:
        pairs = sum(len(rules or now.digests) for rules in wanted.values())
        print(f"{len(wanted)} targets, {pairs} pairs of a target and a rule")
        return
    apart = multiprocessing.get_context("spawn")  # busy loops are no children of a process that judges
    pool = concurrent.futures.ProcessPoolExecutor(options.jobs, apart, die_with_parent)
    with busy(options.load), pool as several:
        running = [several.submit(judged_by_name, key, rules) for key, rules in wanted.items()]
        for ended in concurrent.futures.as_completed(running):
            found = ended.result()
            print(line(found), flush=True)
            if not options.rules:
                keep(options.results, found, now)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description=__doc__.splitlines()[0])
    parser.add_argument("half", choices=HALVES)
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="targets like this; more than once"
    )
    parser.add_argument("--again", action="store_true", help="even what was judged before")
    parser.add_argument("--profile", default="default")
    parser.add_argument("--examples", type=int, default=0, help="for each rule, in place of the profile's")
    parser.add_argument("--rules", default="", help="these rules only; nothing is then kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=int, default=0, metavar="K", help="busy loops beside")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="targets judged at once")
    parser.add_argument("--results", type=Path, default=Path("docs/measured/gallery.jsonl"), metavar="FILE")
    parser.add_argument("--left", action="store_true", help="say how much has not been judged")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the document from the results")
    return parser


def _wanted(options: argparse.Namespace, gallery: Any) -> dict[Key, list[str]]:
    """What is to be judged, and by which rules; none: by all."""
    profile = f"{options.examples} examples" if options.examples else options.profile
    patterns = options.only or ["*"]
    chosen = [name for name in gallery.targets() if any(fnmatch.fnmatch(name, each) for each in patterns)]
    keys = [(options.half, name, profile, options.seed, options.load) for name in chosen]
    if options.again or options.rules:
        return {key: list(filter(None, options.rules.split(","))) for key in keys}
    now = rules_of(options.half)
    known = standing(kept(options.results), rules_before(options.results))
    stale = {key: known.get(key, Standing()).stale(now) for key in keys}
    return {key: rules * (len(rules) < len(now.digests)) for key, rules in stale.items() if rules}


def line(found: Judged) -> str:
    """One target for the terminal."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.outcomes.items()))
    head = f"{found.target}: {counts}; met {found.met} times; {found.seconds:.0f} s of processor time"
    reds = (f"\n  {each.rule} ({each.level}) {each.outcome}: {each.text}" for each in found.red)
    meant = (f"\n  {each.rule} ({each.level}) is meant" for each in found.meant)
    return head + "".join(reds) + "".join(meant)


if __name__ == "__main__":
    main()

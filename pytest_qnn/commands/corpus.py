"""How many cases of each rule a corpus has (--qnn-corpus), and which of them are superfluous.

With ``--minimise`` files are removed beside which there is a smaller case of the same rule, verdict and
fingerprint: those that stand in the files, or with ``--run`` those that the cases show on a target now.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from pytest_qnn import options
from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import printable
from pytest_qnn.core.target import TargetLost
from pytest_qnn.session import corpus


def main(arguments: Sequence[str]) -> int:
    """Count, and remove where that is asked for.

    Returns:
        0; 2: the folder or a file in it cannot be read or removed, or the target not be opened, said in one
        sentence.
    """
    parser = Parser(prog="python -m pytest_qnn corpus", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--minimise", action="store_true", help="remove the superfluous files")
    parser.add_argument(
        "--run", metavar="OPTIONS", help="carry the cases out on the target that these options of pytest name"
    )
    given = parser.parse_args(_joined(arguments))
    if not os.path.isdir(given.folder):  # not pathlib's: see `forms`
        return refuse("corpus", f"there is no folder {str(given.folder)!r}")
    try:
        superfluous = _superfluous(given.folder, given.run)
        lines = [f"{rule_id} {count}" for rule_id, count in corpus.counts(given.folder)]
        for path in superfluous if given.minimise else ():
            path.unlink()
    except (BadOption, TargetLost) as error:
        return refuse("corpus", str(error).removeprefix(f"{corpus.FLAG}: "))
    except OSError as error:
        return refuse("corpus", f"{error.filename!r} cannot be removed: {error.strerror or error}")
    what = "removed" if given.minimise else "superfluous"
    show(map(printable, (*lines, f"{len(superfluous)} {what}")))
    return 0


def _joined(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--run=OPTIONS`` for two words: argparse would take the second for one of ours."""
    if "--run" not in arguments[:-1]:
        return list(arguments)
    place = list(arguments).index("--run")
    return [*arguments[:place], f"--run={arguments[place + 1]}", *arguments[place + 2 :]]


def _superfluous(folder: Path, run: str | None) -> list[Path]:
    """By what stands in the files; with options of pytest, by what the cases show on their target.

    Raises:
        BadOption, TargetLost: as `main` says.
    """
    if run is None:
        return corpus.superfluous(folder)
    parser = Parser(prog="python -m pytest_qnn corpus --run", add_help=False)
    options.declare(parser.add_argument)
    try:
        words = shlex.split(run)
    except ValueError as error:
        raise BadOption(f"--run: {run!r} is no list of options: {error}") from None
    read = options.read(vars(parser.parse_args(words)), {}, Path.cwd())
    with corpus.judged_on(read) as shown:
        return corpus.superfluous(folder, shown)

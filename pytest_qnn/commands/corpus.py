"""How many cases of each rule a corpus has (--qnn-corpus), and which of them are superfluous.

With ``--minimise`` files are removed beside which there is a smaller case of the same rule, verdict and
fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import printable
from pytest_qnn.session import corpus


def main(arguments: Sequence[str]) -> int:
    """Count, and remove where that is asked for.

    Returns:
        0; 2: the folder or a file in it cannot be read or removed, said in one sentence.
    """
    parser = Parser(prog="python -m pytest_qnn corpus", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--minimise", action="store_true", help="remove the superfluous files")
    given = parser.parse_args(arguments)
    if not given.folder.is_dir():
        return refuse("corpus", f"there is no folder {str(given.folder)!r}")
    try:
        superfluous = corpus.superfluous(given.folder)
        lines = [f"{rule_id} {count}" for rule_id, count in corpus.counts(given.folder)]
        for path in superfluous if given.minimise else ():
            path.unlink()
    except BadOption as error:
        return refuse("corpus", str(error).removeprefix(f"{corpus.FLAG}: "))
    except OSError as error:
        return refuse("corpus", f"{error.filename!r} cannot be removed: {error.strerror or error}")
    what = "removed" if given.minimise else "superfluous"
    show(map(printable, (*lines, f"{len(superfluous)} {what}")))
    return 0

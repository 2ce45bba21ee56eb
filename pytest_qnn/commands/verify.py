"""Judge the folder of a certification again, with no target.

Every case is drawn again, from the seed of the release and from what was learned of the target, and every
verdict is judged again from the stored answers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.session.certification import text
from pytest_qnn.session.certification.bundle import BadBundle
from pytest_qnn.session.certification.release import BadErrata
from pytest_qnn.session.certification.verify import verify

_STATUS = (
    "Exit status: 0 certified; 1 something in the folder is false, or a rule is not kept; 2 the folder "
    "cannot be judged; 3 all of it is true, and it is no certification (docs/how-to/certification.md)."
)
_REFUSED = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system")


def main(arguments: Sequence[str]) -> int:
    """Verify and print; returns the exit status."""
    parser = Parser(prog="python -m pytest_qnn verify", description=__doc__, epilog=_STATUS)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what certify has written")
    parser.add_argument("--errata", type=Path, metavar="FILE.json", help="errata newer than this suite")
    given = parser.parse_args(arguments)
    sys.addaudithook(_refuse)
    try:
        found = verify(given.folder, given.errata)
    except (BadBundle, BadErrata) as error:
        return refuse("verify", f"{given.folder}: {error}")
    show(text.verified(found))
    return 1 if found.false or found.violated else 3 if found.missing else 0


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise where a process would be started or a library loaded: nothing here needs one.

    ctypes itself loads the interpreter (None), and numpy may ask it for more of the same.
    """
    loads = event == "ctypes.dlopen" and arguments[0] is not None
    if loads or event in _REFUSED:
        raise RuntimeError(f"verification starts nothing: {event}")

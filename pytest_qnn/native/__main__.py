"""``python -m pytest_qnn.native FOLDER``: build the reference's libraries and print how to use them."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from pytest_qnn.native import BuildFailed, build
from pytest_qnn.qnn.reference.personalities import PERSONALITIES


def main() -> int:
    """Build; print an ``export`` line for each variable that a client's process needs."""
    parser = argparse.ArgumentParser(prog="python -m pytest_qnn.native", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the libraries go")
    parser.add_argument("--personality", default="default", choices=sorted(PERSONALITIES))
    arguments = parser.parse_args()
    if arguments.folder.exists() and not arguments.folder.is_dir():
        parser.error(
            f"{str(arguments.folder)!r} is not a folder: the reference's libraries are written to one"
        )
    try:
        made = build(arguments.folder)
    except (BuildFailed, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"# backend: {made.backend}\n# system:  {made.system}\n# rpcmem:  {made.rpcmem}")
    for name, value in made.environment(arguments.personality).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

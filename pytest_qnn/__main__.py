"""``python -m pytest_qnn COMMAND``: what is done with reports; `pytest_qnn.commands` has the list."""

from __future__ import annotations

import sys

from pytest_qnn import commands

if __name__ == "__main__":
    sys.exit(commands.main(sys.argv[1:]))

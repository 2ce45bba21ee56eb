"""The commands of ``python -m pytest_qnn``.

A command is a module of this package with ``main(arguments) -> exit status`` and a line in `COMMANDS`. It is
imported when it is run; importing this package loads nothing but the standard library.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from pytest_qnn.core.printable import printable, write_out

COMMANDS = {
    "campaign": "judge the targets of a matrix, in shards, on the workers of Dask",
    "certify": "judge a target by the rules of this release, and write a folder that shows it",
    "compare": "what differs between two reports of the suite, or between two targets",
    "corpus": "how many cases a corpus has, and which of them are superfluous",
    "domain": "what was covered of the input domain of delegates: the table of a report",
    "expect": "enter what reports found into a file of known failures",
    "merge": "put the reports of all shards of a campaign together",
    "verify": "judge the folder that certify wrote again, without the target",
}
"""Name of a command, which is its module's, to what it does."""
USAGE_ERROR = 2
"""Exit status, as argparse has it."""
_INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


class Parser(argparse.ArgumentParser):
    """argparse's, with nothing in what it says that a terminal would obey."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the arguments, and end the process with `USAGE_ERROR`."""
        super().error(printable(message))


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names, with the rest of them; returns its exit status."""
    parser = Parser(prog="python -m pytest_qnn", description="What is done with reports of the suite.")
    listed = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        listed.add_parser(name, help=text, add_help=False)
    # What follows the command's name is the command's own.
    command = parser.parse_args(arguments[:1]).command
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 has no sign for some of what reports say.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        run: Callable[[Sequence[str]], int] = importlib.import_module(f"{__name__}.{command}").main
        return run(arguments[1:])
    except _NotShown as error:
        return refuse(command, str(error))
    except KeyboardInterrupt:
        return _INTERRUPTED


class _NotShown(Exception):  # noqa: N818 - it is the user's disk that is full
    """What a command has to say could not be written; the text is a sentence."""


def show(lines: Iterable[str]) -> None:
    """Print lines; see `write_out`.

    Args:
        lines: printable, without their ends.
    """
    why = write_out("".join(f"{line}\n" for line in lines))
    if why:
        raise _NotShown(f"the output cannot be written: {why}")


def refuse(command: str, reason: str) -> int:
    """Say on stderr, in one line, why a command does nothing; returns `USAGE_ERROR`."""
    print(f"{command}: {printable(reason)}", file=sys.stderr)
    return USAGE_ERROR

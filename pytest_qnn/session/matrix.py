"""The targets of ``--qnn-matrix=FILE.toml``: read from the file, and judged one after another.

Each target has a run of pytest of its own: a library that harms a process, or holds on to it, harms no other
target's run.
"""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomlkit
from tomlkit.exceptions import TOMLKitError

from pytest_qnn.core import regular_file
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import printable, shell_line
from pytest_qnn.expect import file
from pytest_qnn.options import Options, Target
from pytest_qnn.session import pytest_process, selection

FLAG = "--qnn-matrix"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_BYTES = 1 << 20
_WORST_FIRST = (3, 4, 2, 1, 5, 0)
"""pytest's exit statuses: an internal error, a usage error, interrupted, failures, no tests, all passed."""
_INTERRUPTED = 2


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target of the matrix."""

    options: tuple[str, ...]
    """As on the command line; relative paths are relative to the file."""
    resources: dict[str, float] = {}
    """For `python -m pytest_qnn campaign`: what a worker must have, and how much of it."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    targets: dict[str, Any]
    """Each one an `Entry`; read one by one, so that what is wrong is said of a target by its name."""


def read(path: Path) -> dict[str, Entry]:
    """The targets of a file by name, in its order.

    Raises:
        BadOption: it cannot be read, is no TOML, or has something else in it.
    """
    try:
        text = regular_file.read(path, _MOST_BYTES).decode()
        listed = msgspec.convert(tomlkit.parse(text).unwrap(), _File).targets
    except OSError as error:
        raise BadOption(f"{FLAG}: {str(path)!r} cannot be read: {error.strerror or error}") from None
    except (TOMLKitError, RecursionError) as error:
        raise BadOption(f"{FLAG}: {str(path)!r} is not TOML: {error}") from None
    except ValueError as error:  # of msgspec, of a file that is too large, and of one that is not UTF-8
        raise BadOption(f"{FLAG}: {str(path)!r}: {error}") from None
    if not listed:
        raise BadOption(f"{FLAG}: {str(path)!r} has no target: [targets.NAME] begins one")
    found = {}
    for name, fields in listed.items():
        if not _NAME.fullmatch(name):
            raise BadOption(
                f"{FLAG}: {str(path)!r}: {name!r} is no name of letters, digits, '.', '_' and '-'"
            )
        try:
            entry = found[name] = msgspec.convert(fields, Entry)
        except msgspec.ValidationError as error:
            raise BadOption(f"{FLAG}: {str(path)!r}, {name}: {error}") from None
        if not all(amount > 0 for amount in entry.resources.values()):
            raise BadOption(f"{FLAG}: {str(path)!r}, {name}: resources are numbers above 0")
    return found


def main(config: pytest.Config, read_options: Callable[..., Options]) -> int | None:
    """Run pytest once for each target, or let this run be that of the target that --qnn-target names.

    Args:
        config: of this run, which was not configured yet.
        read_options: `pytest_qnn.options.read`, given all but a target.

    Returns:
        The worst exit status of the runs; None: this run is of one target, or replays a case.

    Raises:
        BadOption: the file, or the options of any of its targets, are wrong.
    """
    options = read_options()
    if options.matrix is None or options.replay is not None:
        return None
    if options.target is not None:
        path = getattr(config.option, "xmlpath", None)
        if path:
            config.option.xmlpath = str(named(Path(path), options.target))
        return None
    for name in read(options.matrix):
        _check_files(name, of_target(read_options, dataclasses.replace(options, target=name)))
    return run(config, options.matrix, options)


def _check_files(name: str, options: Options) -> None:
    """Look at what a target's run itself looks at first: which rules it selects, and what is expected of it.

    Raises:
        BadOption: no rule is selected, or the file of --qnn-expect is wrong.
    """
    try:
        selection.selected(options.selection, options.halves)
        if options.expect is not None:
            file.read(options.expect)
    except BadOption as error:
        raise BadOption(f"{FLAG}, {name}: {error}") from None


def of_target(read_options: Callable[..., Options], options: Options) -> Options:
    """The options of a run about the target that they name, whose reports have its name. Raises BadOption."""
    if options.matrix is None or options.target is None:
        return options
    found = read(options.matrix)
    if options.target not in found:
        known = ", ".join(found)
        raise BadOption(
            f"--qnn-target: {options.target!r} is not in {str(options.matrix)!r}, which has {known}"
        )
    folder = options.matrix.absolute().parent
    target = Target(options.target, found[options.target].options, folder)
    try:
        own = read_options(target=target)
    except BadOption as error:  # what the run's own options have wrong was said before there was a target
        said = str(error)
        raise BadOption(said if said.startswith(FLAG) else f"{FLAG}, {options.target}: {said}") from None
    reports = tuple(named(path, options.target) for path in options.reports)
    return dataclasses.replace(own, target=options.target, reports=reports)


def named(path: Path, name: str) -> Path:
    """The path of a file that each target has: the target's name stands before the ending."""
    return path.with_name(f"{path.stem}-{name}{path.suffix}")


def run(config: pytest.Config, path: Path, options: Options) -> int:
    """Run pytest for each target, with this run's own arguments; returns the worst exit status."""
    more = []
    if options.seed is None:  # one for all targets
        more = [f"--qnn-seed={random.SystemRandom().randrange(2**32)}"]
    arguments = [*map(str, config.invocation_params.args), *more]
    ended: dict[str, int] = {}
    for name in read(path):
        _say(f"qnn matrix: target {name}")
        command = [*pytest_command(), *arguments, f"--qnn-target={name}"]
        try:
            with pytest_process.exit_on_sigterm():
                ended[name] = pytest_process.status(command, cwd=str(config.invocation_params.dir))
        except KeyboardInterrupt:
            ended[name] = _INTERRUPTED
        if ended[name] == _INTERRUPTED:
            break
    _say(f"qnn matrix: {shell_line([str(path)])}")
    for name, status in ended.items():
        _say(f"  {name}: exit status {status}")
    return worst(list(ended.values()))


def _say(line: str) -> None:
    print(printable(line), flush=True)


def worst(statuses: Sequence[int]) -> int:
    """The exit status of several runs of pytest: the worst; that of a run that a signal ended is 3."""
    return min((each if each in _WORST_FIRST else 3 for each in statuses), key=_WORST_FIRST.index)


def pytest_command() -> list[str]:
    """What starts this environment's pytest, without the working directory among the modules' folders."""
    script = Path(sys.executable).with_name("pytest")
    return [str(script)] if shutil.which(str(script)) else [sys.executable, "-m", "pytest"]

"""Judge the targets of a matrix, in shards, on the workers of Dask (pip install 'pytest-qnn[dask]').

Without ``--scheduler`` the workers are processes of this machine. A target's ``resources`` are what a worker
must have declared to be given its shards (`dask worker ADDRESS --resources board=1`). What a lost worker was
at work on is run again by another one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_qnn.commands import Parser, refuse, show
from pytest_qnn.commands.merge import lines
from pytest_qnn.core import forms
from pytest_qnn.core.printable import printable
from pytest_qnn.options import Target, words_of
from pytest_qnn.report import files, loaded
from pytest_qnn.report.merge import merged, shards
from pytest_qnn.session import matrix, pool
from pytest_qnn.session.pytest_process import RunFailed

_STATUS = (
    "Exit status: 0 or 1, the worst of the targets'; 2 a wrong command line or matrix, a shard that did not "
    "come to its end, or no Dask (docs/how-to/shards.md)."
)


class Task(NamedTuple):
    """One shard of one target."""

    target: str
    number: int
    options: tuple[str, ...]
    """Of pytest."""
    resources: dict[str, float]
    """What a worker must have."""

    def report(self, folder: Path, of: int) -> Path:
        """Where its report is kept."""
        return folder / f"{self.target}-{self.number}-of-{of}.json"


def main(arguments: Sequence[str]) -> int:
    """Run and merge; returns the exit status."""
    given = _parse(arguments)
    try:
        tasks = plan(given)
        dask = importlib.import_module("distributed")
    except forms.BadOption as error:
        return refuse("campaign", str(error))
    except ImportError:
        return refuse("campaign", "distributed is not installed: pip install 'pytest-qnn[dask]'")
    try:
        if given.scheduler:
            dask.comm.resolve_address(given.scheduler)
    except (ValueError, OSError) as error:
        return refuse("campaign", f"--scheduler: {given.scheduler!r}: {error}")
    try:
        with _client(dask, given, tasks) as client:
            failed = _run(dask, client, tasks, given)
    except OSError as error:
        return refuse("campaign", f"{type(error).__name__}: {error}")
    lacking = {task.target for task, _ in failed}
    status = _merge([task for task in tasks if task.target not in lacking], given)
    for task, why in failed:
        status = refuse("campaign", f"{task.target}: shard {task.number}/{given.shards}: {why}")
    return status


def plan(given: argparse.Namespace) -> list[Task]:
    """The tasks of a command line, those of a target one after another. Raises BadOption."""
    common = [f"--qnn-seed={given.seed}", f"--qnn-blocks={given.blocks}", "-p", "no:cacheprovider"]
    tasks = []
    for name, entry in matrix.read(given.matrix).items():
        words = words_of(Target(name, entry.options, given.matrix.absolute().parent))
        for number in range(1, given.shards + 1):
            own = (*common, *given.more, *words, f"--qnn-shard={number}/{given.shards}")
            tasks.append(Task(name, number, own, dict(entry.resources)))
    _check_names(tasks, given.shards)
    return tasks


def _check_names(tasks: Sequence[Task], of: int) -> None:
    """Refuse a target whose report would be written over that of another one's shard. Raises BadOption."""
    of_shards = {task.report(Path(), of): task for task in tasks}
    for name in dict.fromkeys(task.target for task in tasks):
        other = of_shards.get(_report(Path(), name))
        if other is not None:
            raise forms.BadOption(
                f"{name} cannot be a target's name here: {name}.json is the report of shard "
                f"{other.number}/{of} of {other.target}"
            )


def _report(folder: Path, target: str) -> Path:
    """Where the merged report of a target is kept."""
    return folder / f"{target}.json"


@contextlib.contextmanager
def _client(dask: Any, given: argparse.Namespace, tasks: Sequence[Task]) -> Iterator[Any]:
    """A client of the named scheduler, or of workers on this machine that have what all tasks need."""
    if given.scheduler:
        with dask.Client(given.scheduler, set_as_default=False) as client:
            yield client
        return
    needed = {name: amount for task in tasks for name, amount in task.resources.items()}
    most = {name: max(task.resources.get(name, 0.0) for task in tasks) for name in needed}
    with (
        dask.LocalCluster(
            n_workers=given.workers, threads_per_worker=1, dashboard_address=None, resources=most
        ) as cluster,
        dask.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _run(dask: Any, client: Any, tasks: Sequence[Task], given: argparse.Namespace) -> list[tuple[Task, str]]:
    """Have every task run, and keep each report as it comes; why there is none of some tasks."""
    mark = uuid.uuid4().hex  # a key names a result: nothing of another campaign is taken for this one's
    futures: Mapping[Any, Task] = {
        client.submit(
            pool.judge_shard,
            task.options,
            key=f"{task.target}-{task.number}-{mark}",
            pure=False,
            resources=task.resources or None,
        ): task
        for task in tasks
    }
    failed = []
    for future in dask.as_completed(futures, loop=client.loop):
        task, said = futures[future], "judged"
        try:
            files.replace(task.report(given.folder, given.shards), future.result())
        except (
            RunFailed,
            OSError,
            dask.scheduler.KilledWorker,
            dask.client.FutureCancelledError,
        ) as error:
            failed.append((task, f"{type(error).__name__}: {error}"))
            said = "not judged"
        show([printable(f"{task.target}: shard {task.number}/{given.shards} {said}")])
    return failed


def _merge(tasks: Sequence[Task], given: argparse.Namespace) -> int:
    """Merge the shards of each target, and print what they come to; returns the exit status."""
    failed = False
    for name in dict.fromkeys(task.target for task in tasks):
        paths = [task.report(given.folder, given.shards) for task in tasks if task.target == name]
        try:
            found = merged.merge([shards.read(path) for path in paths])
        except loaded.BadReport as error:
            return refuse("campaign", str(error))
        problems = files.write_all([_report(given.folder, name)], found.document)
        if problems:
            return refuse("campaign", problems[0].removeprefix("--qnn-report: "))
        show(map(printable, [f"{name}:", *lines(found), ""]))
        failed |= bool(found.failures)
    return int(failed)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="python -m pytest_qnn campaign", description=__doc__, epilog=_STATUS)
    add = parser.add_argument
    add("matrix", type=Path, metavar="MATRIX.toml", help="the targets, as for --qnn-matrix")
    add("--folder", type=Path, required=True, help="where reports are written: TARGET.json, and each shard's")
    add("--shards", default="1", metavar="N", help="shards of each target")
    add("--blocks", default="1", metavar="B", help="seed blocks of each rule")
    add("--seed", metavar="N", help="seed of all targets (default: a new one, which is printed)")
    add("--scheduler", metavar="ADDRESS", help="of Dask, such as tcp://10.0.0.1:8786")
    add(
        "--workers",
        default="2",
        metavar="W",
        help="without --scheduler: workers on this machine (default: 2)",
    )
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    given = parser.parse_args(list(arguments[:end]))
    given.more = tuple(arguments[end + 1 :])
    try:
        for name in ("shards", "blocks", "workers"):
            setattr(given, name, forms.count(f"--{name}", getattr(given, name)))
        given.seed = forms.seed("--seed", given.seed)
    except forms.BadOption as error:
        parser.error(str(error))
    if not os.path.isdir(given.folder):  # not pathlib's: see `forms`
        parser.error(f"--folder: there is no folder {str(given.folder)!r}")
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(2**32)
        show([f"seed {given.seed}"])
    return given

"""Carry out one case in this process, for a debugger: no sandbox, no fork, no verdict.

    python -m pytest_qnn.session.alone SPEC CASE

``SPEC``: as `pytest_qnn.isolation.worker.WorkerSpec.text` gives it. ``CASE``: a case file. The process ends
by exit(3), through the destructors of what it loaded, so that tools which look for leaks come to their end.
After as many seconds as the environment's ``PYTEST_QNN_ALARM`` says it gets a SIGALRM, for a debugger to
stop at.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pytest_qnn.case_file import read
from pytest_qnn.core.forms import BadOption
from pytest_qnn.core.printable import printable
from pytest_qnn.isolation import processes
from pytest_qnn.isolation.worker import Unusable, make_worker

ALARM = "PYTEST_QNN_ALARM"
"""Seconds from the beginning of the case, as a number."""


def main() -> None:
    """Load the target, carry out the case, end."""
    spec, path = sys.argv[1:3]
    try:
        content = read(Path(path))
        worker = make_worker(spec)
    except (BadOption, Unusable) as error:
        raise SystemExit(printable(f"pytest-qnn: {error}")) from None
    _say(f"the target is loaded; the case of {content.rule} begins")
    signal.setitimer(signal.ITIMER_REAL, float(os.environ.get(ALARM, "0")))
    trace = worker.run(content.case, lambda step: _say(f"step {step}"))
    for step, seen in enumerate(getattr(trace, "steps", ())):
        if getattr(seen, "skipped", ""):
            _say(f"step {step} was left out: {seen.skipped}")
    _say("the case is over; the process ends")
    processes.end_in_order()


def _say(text: str) -> None:
    sys.stdout.write(f"pytest-qnn: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

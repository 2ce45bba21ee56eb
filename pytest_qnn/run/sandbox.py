"""The pytest side of isolation: a supervisor process that runs each case in a child of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import msgspec

from pytest_qnn.run import wire
from pytest_qnn.run.worker import AnySpec, Unusable
from pytest_qnn.trace import Death

_REPLY = msgspec.msgpack.Decoder(wire.Reply)
_READY = msgspec.msgpack.Decoder(wire.Ready)

_LOAD_TIMEOUT = 60.0
"""Seconds that loading a library may take."""
_GRACE = 10.0
"""Seconds beyond a case's own time before the supervisor itself is taken for dead."""


class RunnerFailure(Exception):  # noqa: N818 - carries the child's traceback
    """The runner (not the target) failed in the child: a defect of this project."""


class Sandbox:
    """Starts the supervisor on first use and again whenever a target managed to kill it.

    Args:
        spec: the worker to load in the children.
        mode: ``fork`` or ``spawn`` (see `pytest_qnn.run.supervisor`).
        timeout: seconds for one case.

    """

    def __init__(self, spec: AnySpec, mode: str, timeout: float) -> None:
        self.mode = mode
        self._spec = spec
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def start(self) -> None:
        """Load the target in the supervisor; a target that starts threads when loaded is spawned.

        Raises:
            Unusable: it cannot be loaded; the text is one sentence.
        """
        ready = self._start()
        if self.mode == "fork" and ready.threads > 1:
            self.close()
            self.mode = "spawn"
            self._start()

    def call(self, request: bytes) -> bytes | Death:
        """The child's answer to one request, or how the child died.

        Raises:
            Unusable: the target cannot be loaded (any more).
            RunnerFailure: this project's code failed in the child.
        """
        if self._connection is None:
            self.start()
        assert self._connection is not None
        try:
            wire.send(self._connection, request)
            deadline = time.monotonic() + self._timeout + _GRACE
            reply = _REPLY.decode(wire.receive(self._connection, deadline))
        except TimeoutError:
            self.close()
            return Death("hang", f"no answer within {self._timeout:g} s, not even of the supervisor")
        except (wire.Closed, msgspec.DecodeError):
            self.close()
            return Death("garbage", "the case brought down the process that watched over it")
        if reply.error.startswith("the runner itself failed"):
            raise RunnerFailure(f"{reply.error}\n{reply.detail}")
        if reply.error:
            raise Unusable(reply.error)
        if reply.death:
            return Death(reply.death, reply.detail, reply.step)
        return reply.payload

    def close(self) -> None:
        """End the supervisor and whatever it still runs."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            try:
                self._process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _start(self) -> wire.Ready:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "pytest_qnn.run.supervisor", str(theirs.fileno()), self.mode]
        spec = msgspec.json.encode(self._spec).decode()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(self._timeout), spec],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
            )
        self._connection = ours
        try:
            ready = _READY.decode(wire.receive(ours, time.monotonic() + _LOAD_TIMEOUT))
        except (wire.Closed, msgspec.DecodeError):
            status = self._process.wait()
            self.close()
            raise Unusable(f"the process {_ended(status)} while loading it") from None
        except TimeoutError:
            self._process.kill()
            self.close()
            raise Unusable(f"loading it took more than {_LOAD_TIMEOUT:g} s") from None
        if ready.error:
            self.close()
            raise Unusable(ready.error)
        return ready


def _environment() -> dict[str, str]:
    """The children's environment: ours, with the way to this package and little thread noise."""
    environment = dict(os.environ)
    # numpy's BLAS would start threads in the supervisor, and a process with threads is not to be forked.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return environment


def _ended(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-status).name}"
    return f"ended with exit status {status}"

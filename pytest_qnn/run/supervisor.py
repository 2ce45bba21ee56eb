"""The supervisor: a process of its own that starts a child per case and outlives what the child does.

    python -m pytest_qnn.run.supervisor SOCKET_FD MODE TIMEOUT SPEC_JSON

``fork``: the target is loaded here but never initialised, and every child is a fork. ``spawn``: the
target is loaded in a fresh interpreter per case, for targets that start threads when loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from pytest_qnn.run import wire
from pytest_qnn.run.worker import AnySpec, Unusable, Worker, make_worker

_PR_SET_PDEATHSIG = 1
_REPLY = msgspec.msgpack.Decoder(wire.Reply)


def main() -> None:
    """Serve requests until the pytest process closes the connection."""
    fd, mode, timeout, spec_json = sys.argv[1:5]
    connection = socket.socket(fileno=int(fd))
    spec = msgspec.json.decode(spec_json, type=AnySpec)
    _die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _redirect_standard_streams()
    if mode == "spawn":
        wire.send(connection, msgspec.msgpack.encode(wire.Ready()))
        _serve(connection, float(timeout), lambda slot, request: _spawn(spec_json, slot, request))
        return
    try:
        worker = make_worker(spec)
    except Unusable as error:
        wire.send(connection, msgspec.msgpack.encode(wire.Ready(error=str(error))))
        return
    wire.send(connection, msgspec.msgpack.encode(wire.Ready(threads=len(os.listdir("/proc/self/task")))))
    worker.warm()
    gc.collect()
    gc.freeze()
    _serve(connection, float(timeout), lambda slot, request: _fork(worker, connection, slot, request))


def run_one() -> None:
    """Body of a spawned child: load the target, answer the one request in the slot."""
    spec_json, slot_fd, request_fd = sys.argv[2:5]
    slot = wire.Slot(int(slot_fd))
    request = os.pread(int(request_fd), os.fstat(int(request_fd)).st_size, 0)
    spec = msgspec.json.decode(spec_json, type=AnySpec)
    os._exit(_carry_out(lambda: make_worker(spec), slot, request))


def _carry_out(worker: Callable[[], Worker], slot: wire.Slot, request: bytes) -> int:
    """Child: answer the request; the exit status says that the answer is whole."""
    try:
        reply = wire.Reply(payload=worker().handle(request, slot.step))
    except Unusable as error:
        reply = wire.Reply(error=str(error))
    except Exception as error:
        reply = wire.Reply(error=f"the runner itself failed: {error!r}", detail=traceback.format_exc())
    slot.answer(msgspec.msgpack.encode(reply))
    return 0


Start = Callable[[wire.Slot, bytes], int]


def _serve(connection: socket.socket, timeout: float, start: Start) -> None:
    root = Path(tempfile.mkdtemp(prefix="pytest-qnn-"))
    try:
        while True:
            try:
                request = wire.receive(connection, None)
            except wire.Closed:
                return
            wire.send(connection, msgspec.msgpack.encode(_answer(root, timeout, start, request)))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _answer(root: Path, timeout: float, start: Start, request: bytes) -> wire.Reply:
    room = root / "case"
    room.mkdir(exist_ok=True)
    os.chdir(room)
    slot = wire.Slot.make()
    try:
        status = _await(start(slot, request), timeout)
        step, payload = slot.result()
    finally:
        slot.close()
        os.chdir(root)
        if any(room.iterdir()):
            shutil.rmtree(room, ignore_errors=True)
    if status is None:
        return wire.Reply(death="hang", detail=f"no answer within {timeout:g} s", step=step)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return wire.Reply(death="signal", detail=f"the process died of {name}", step=step)
    code = os.WEXITSTATUS(status)
    if code or payload is None:
        detail = f"the process ended with exit status {code} before the case was over"
        return wire.Reply(death="exit", detail=detail, step=step)
    try:
        return _REPLY.decode(payload)
    except msgspec.DecodeError:
        return wire.Reply(death="garbage", detail="the process left an answer that is none", step=step)


def _await(pid: int, timeout: float) -> int | None:
    """The child's wait status, or None after its process group had to be killed."""
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        ended = bool(poll.poll(timeout * 1000))
    finally:
        os.close(pidfd)
    # Also after a good end: nothing that the case started may outlive it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return status if ended else None


def _fork(worker: Worker, connection: socket.socket, slot: wire.Slot, request: bytes) -> int:
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):  # whoever is first; the child may have gone already
            os.setpgid(pid, pid)
        return pid
    status = 70
    try:
        os.setpgid(0, 0)
        _die_with_parent()
        connection.close()
        gc.disable()
        status = _carry_out(lambda: worker, slot, request)
    finally:
        # Not even our own failure may run the supervisor's code in the child.
        os._exit(status)


def _spawn(spec_json: str, slot: wire.Slot, request: bytes) -> int:
    request_fd = os.memfd_create("pytest-qnn-request")
    try:
        os.pwrite(request_fd, request, 0)
        command = [sys.executable, "-m", "pytest_qnn.run.supervisor", "run", spec_json]
        process = subprocess.Popen(
            [*command, str(slot.fileno()), str(request_fd)],
            pass_fds=(slot.fileno(), request_fd),
            start_new_session=True,
        )
    finally:
        os.close(request_fd)
    # The status is collected by _await; Popen must not want it too.
    process.returncode = 0
    return process.pid


def _redirect_standard_streams() -> None:
    """A target that floods stdout floods nothing; what it says is not evidence."""
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    os.close(sink)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    run_one() if sys.argv[1] == "run" else main()

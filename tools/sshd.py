"""An SSH server of this machine for trying `--qnn-on`, with its own keys and port: docs/how-to/remote.md.

    python -m tools.sshd FOLDER [--delay SECONDS]

Needs Debian's openssh-server and root. It prints the value of --qnn-on, and serves until it is ended. With a
delay, each byte travels so many seconds longer in each direction.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

SERVER = "/usr/sbin/sshd"
NEEDED = "apt-get install -y --no-install-recommends openssh-server openssh-client"
_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
"""
_CLIENT = """\
Host board
  HostName 127.0.0.1
  Port {port}
  User root
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
  LogLevel ERROR
"""
_PIECE = 1 << 16


def missing() -> str:
    """What a server needs and this machine has not; empty: nothing."""
    if os.geteuid() != 0:
        return "an SSH server here needs root"
    if not Path(SERVER).exists() or shutil.which("ssh") is None:
        return NEEDED
    return ""


@contextlib.contextmanager
def served(folder: Path, delay: float = 0.0) -> Iterator[Path]:
    """Serve; gives a configuration for ssh with the host ``board``.

    Args:
        folder: for keys and configurations.
        delay: seconds that each byte travels longer, in each direction.
    """
    for name in ("host", "user"):
        made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    os.makedirs("/run/sshd", exist_ok=True)
    port = _free_port()
    config = folder / "sshd_config"
    config.write_text(_CONFIG.format(port=port, folder=folder))
    server = subprocess.Popen([SERVER, "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        with _delayed(port, delay) as entrance:
            client = folder / "ssh_config"
            client.write_text(_CLIENT.format(port=entrance, folder=folder))
            yield client
    finally:
        server.terminate()
        server.wait()


def place(config: Path) -> str:
    """The value of --qnn-on for the host ``board`` of a configuration."""
    words = ["ssh", "-F", str(config), "-T", "board", sys.executable, "-m", "pytest_qnn.isolation.remote"]
    return f"exec:{shlex.join(words)}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number: int = taken.getsockname()[1]
        return number


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10.0
    while not _answers(port):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{SERVER} does not answer")
        time.sleep(0.05)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def _delayed(port: int, delay: float) -> Iterator[int]:
    """A port that leads to another, each byte later by ``delay`` seconds."""
    if not delay:
        yield port
        return
    with socket.create_server(("127.0.0.1", 0)) as entrance:
        threading.Thread(target=_accept, args=(entrance, port, delay), daemon=True).start()
        yield entrance.getsockname()[1]


def _accept(entrance: socket.socket, port: int, delay: float) -> None:
    while True:
        try:
            near, _ = entrance.accept()
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", port))
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            threading.Thread(target=_take, args=(one, pieces, delay), daemon=True).start()
            threading.Thread(target=_give, args=(other, pieces), daemon=True).start()


def _take(source: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]], delay: float) -> None:
    """Read until the end, of which an empty piece tells."""
    piece = b"-"
    while piece:
        try:
            piece = source.recv(_PIECE)
        except OSError:
            piece = b""
        pieces.put((time.monotonic() + delay, piece))


def _give(target: socket.socket, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    while True:
        due, piece = pieces.get()
        time.sleep(max(0.0, due - time.monotonic()))
        with contextlib.suppress(OSError):
            if not piece:
                target.shutdown(socket.SHUT_WR)
            else:
                target.sendall(piece)
        if not piece:
            return


def main() -> None:
    """Serve until this process is interrupted or terminated."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.0)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given.folder.mkdir(exist_ok=True)
    with served(given.folder.resolve(), given.delay) as config:
        print(place(config), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()

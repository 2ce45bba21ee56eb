"""An AArch64 Debian, emulated on this machine, with both runtimes and this package: docs/how-to/remote.md.

    python -m tools.aarch64 FOLDER

Needs root, an x86-64 machine with binfmt_misc, a package index, and Debian's debootstrap and
qemu-user-static. It takes some minutes, and prints the value of --qnn-on. A folder that was made before gets
this package again, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDED = "apt-get install -y --no-install-recommends debootstrap qemu-user-static"
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
_EMULATOR = "/usr/bin/qemu-aarch64-static"
_HEADER = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
_MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"
_REGISTRATION = f":qemu-aarch64:M::{_HEADER}:{_MASK}:{_EMULATOR}:F"
"""binfmt_misc.rst: the emulator runs programs of AArch64; it is opened now (F), outside of the chroot."""
_PACKAGES = (
    *("tflite-runtime", "ai-edge-litert", "numpy<2", "msgspec", "hypothesis", "pytest", "pytest-xdist"),
    *("packaging", "tomlkit", "backports.strenum", "flatbuffers", "tqdm", "typing_extensions"),
)
_WHEELS = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34")
_PYTHON = "3.11"
"""Of Debian 12; the last for which there are wheels of tflite-runtime."""


def main() -> None:
    """Make the folder, and print where it is for --qnn-on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not Path(_EMULATOR).exists():
        sys.exit(f"needs root, and: {NEEDED}")
    _register()
    if not (folder / "venv").exists():
        _run(
            "debootstrap",
            "--arch=arm64",
            "--variant=minbase",
            "--include=python3-venv",
            "bookworm",
            str(folder),
        )
        _add_runtimes(folder)
    _add_this_package(folder)
    print(place(folder))


def place(folder: Path) -> str:
    """The value of --qnn-on. /proc, /sys and /dev are mounted for that command alone, and go with it."""
    root = shlex.quote(str(folder))
    inside = "/venv/bin/python -m pytest_qnn.isolation.remote"
    mounts = (
        f"mount -t proc proc {root}/proc",
        f"mount -t sysfs sysfs {root}/sys",
        f"mount --rbind /dev {root}/dev",
    )
    script = " && ".join((*mounts, f"exec chroot {root} {inside}"))
    return f"exec:{shlex.join(['unshare', '--mount', 'sh', '-c', script])}"


def _register() -> None:
    """Have the kernel run programs of AArch64 by the emulator, if it does not yet."""
    if not (_BINFMT / "register").exists():
        _run("mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT))
    if not (_BINFMT / "qemu-aarch64").exists():
        (_BINFMT / "register").write_text(_REGISTRATION)


def _add_runtimes(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as wheels:
        platforms = [f"--platform={name}_aarch64" for name in _WHEELS]
        kind = ("--only-binary=:all:", "--no-deps", f"--python-version={_PYTHON}", *platforms)
        dependencies = ("iniconfig", "pluggy", "pygments", "execnet", "sortedcontainers")
        _run(*_PIP, "download", "-q", *kind, "-d", wheels, *_PACKAGES, *dependencies)
        _run("chroot", str(folder), "python3", "-m", "venv", "/venv")
        _install(folder, sorted(Path(wheels).iterdir()))


def _add_this_package(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        source = Path(made, "source")  # building writes to the folder of the sources
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, source / name)
        _run(*_PIP, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", made, str(source))
        _install(folder, sorted(Path(made).glob("*.whl")))


def _install(folder: Path, wheels: Sequence[Path]) -> None:
    """Install wheels there, without any dependency of theirs."""
    for wheel in wheels:
        shutil.copy(wheel, folder / wheel.name)
    names = [f"/{wheel.name}" for wheel in wheels]
    options = ("-q", "--no-index", "--no-deps", "--force-reinstall")
    _run("chroot", str(folder), "/venv/bin/pip", "install", *options, *names)
    for wheel in wheels:
        (folder / wheel.name).unlink()


_PIP = (sys.executable, "-m", "pip")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


if __name__ == "__main__":
    main()

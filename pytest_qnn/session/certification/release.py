"""What a release of the suite demands of a certification: a frozen list, and the errata to it.

``release.json`` is written by ``python -m pytest_qnn.session.certification.release`` while the version is not
released, and never again after that; a test holds it to the catalogue. ``errata.json`` is added to by hand.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import metadata
from pathlib import Path

import msgspec

from pytest_qnn import rules
from pytest_qnn.core import regular_file
from pytest_qnn.core.printable import one_line
from pytest_qnn.core.verdict import Level
from pytest_qnn.report import document

FILE = Path(__file__).with_name("release.json")
ERRATA = Path(__file__).with_name("errata.json")
_LARGEST = 1 << 20
"""Bytes of a file of errata."""
_PROFILE = "thorough"
_TIMEOUT = 10.0


class Release(msgspec.Struct, frozen=True):
    """What all certifications of one release have in common."""

    release: str
    """The suite's version."""
    seed: int
    """Of all generated cases."""
    profile: str
    timeout: float
    """Seconds for one case."""
    catalogue: str
    """`pytest_qnn.report.document.fingerprint`: the same for the same demands."""
    rules: dict[str, Level]
    """Level by id. Those of the level MUST have to pass or to be unsupported."""


class Erratum(msgspec.Struct, frozen=True):
    """A rule that was found wrong after its release, and is withdrawn from it."""

    number: int
    release: str
    rule: str
    reason: str


class BadErrata(ValueError):  # noqa: N818 - it is the user's file that is bad
    """A file of errata cannot be read; the text is one sentence."""


@functools.cache
def frozen() -> Release:
    """Of the suite that is installed."""
    return msgspec.json.decode(FILE.read_bytes(), type=Release)


def made() -> Release:
    """The same, from the catalogue as it is now.

    The seed is a digest of the name and version, which nobody has chosen.
    """
    version = metadata.version("pytest-qnn")
    seed = int.from_bytes(hashlib.sha256(f"pytest-qnn {version}".encode()).digest()[:4], "big")
    levels = {rule.id: rule.level for rule in rules.listed().values()}
    return Release(version, seed, _PROFILE, _TIMEOUT, document.fingerprint(), levels)


def errata(release: str, further: Path | None = None) -> dict[str, Erratum]:
    """What is withdrawn from a release, by rule: as this suite knows it, and as a newer file says.

    Args:
        release: the version.
        further: a file of errata that were found later.

    Raises:
        BadErrata: ``further`` cannot be read, or is no such file.
    """
    found = msgspec.json.decode(ERRATA.read_bytes(), type=list[Erratum])
    if further is not None:
        try:
            found += msgspec.json.decode(regular_file.read(further, _LARGEST), type=list[Erratum])
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadErrata(one_line(f"{further} is no file of errata: {reason}", 300)) from None
    return {one.rule: one for one in found if one.release == release}


if __name__ == "__main__":
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(made()), indent=1) + b"\n")

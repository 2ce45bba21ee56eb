"""What processes load that carry cases out on an oddity: the package's worker, which knows its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec

from pytest_qnn.tflite.reference.personalities import PERSONALITIES, DelegatePersonality
from pytest_qnn.tflite.runner.delegates import DelegateFactory
from pytest_qnn.tflite.runner.spec import DelegateSpec
from pytest_qnn.tflite.runner.worker import DelegateWorker
from tests.gallery.tflite import (
    claims,
    claims_by_partition,
    computing,
    labels,
    memory,
    replacing,
    results,
    stateless,
    threads,
)
from tests.gallery.tflite.odd import ODDITIES

FAMILIES = (
    claims,
    claims_by_partition,
    replacing,
    stateless,
    labels,
    memory,
    computing,
    results,
    threads,
)
"""The modules with oddities, in the order of the table."""
PREFIX = "reference:odd-"
"""Of the specification of an oddity: a variant of the reference, which decides by itself what it claims."""


class OddSpec(DelegateSpec, frozen=True):
    """A chain in which oddities may stand."""

    maker: ClassVar[str] = "tests.gallery.tflite.worker"


@contextlib.contextmanager
def _entered() -> Iterator[None]:
    """While the block runs, the oddities are variants of the reference."""
    ours = {
        f"odd-{one.name}": DelegatePersonality(one.name, one.freedom, one.delegate)
        for one in ODDITIES.values()
    }
    PERSONALITIES.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del PERSONALITIES[name]


class OddWorker(DelegateWorker):
    """Knows the oddities by name."""

    def __init__(self, spec: DelegateSpec) -> None:
        with _entered():
            super().__init__(spec)

    def _remake(self, position: int, options: Mapping[str, str]) -> DelegateFactory:
        with _entered():
            return super()._remake(position, options)


def make(content: bytes) -> OddWorker:
    """From an `OddSpec` as JSON. Raises Unusable."""
    return OddWorker(msgspec.json.decode(content, type=OddSpec))

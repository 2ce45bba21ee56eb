"""SSR: the subsystem behind a backend restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_qnn.plugin import Judge


def test_ssr_01(judge: Judge) -> None:
    """Objects of before are of no use, and registering again recovers."""
    judge("SSR-01")

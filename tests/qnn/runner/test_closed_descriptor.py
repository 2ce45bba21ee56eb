"""A closed descriptor stays closed while the call lasts that is given it."""

from __future__ import annotations

import os

import pytest

from pytest_qnn.qnn.runner.registrations import _odd_fd


def test_no_descriptor_that_is_opened_meanwhile_gets_its_number() -> None:
    with _odd_fd("closed", 64) as number:
        opened = [os.dup(0) for _ in range(8)]
        try:
            assert number not in opened
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(number)
        finally:
            for each in opened:
                os.close(each)

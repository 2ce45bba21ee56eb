"""Watching which memory the process touches."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest

from pytest_qnn.isolation.observe import touched
from pytest_qnn.isolation.observe.process import large_blocks_visible

SIZE = 16 << 20
LITTLE = SIZE // 4
"""What the interpreter touches besides is less."""


@pytest.fixture(autouse=True)
def _as_in_a_case() -> Iterator[None]:
    """Large blocks are mapped one by one, and unmapped when they are freed."""
    with large_blocks_visible():
        yield


@pytest.fixture
def block() -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, SIZE) as made:
        yield made


def test_nothing_touched_is_little() -> None:
    watch = touched.Watch(())
    assert watch.begin()
    assert max(watch.end()[:2]) < LITTLE


def test_memory_that_was_given_back_was_new() -> None:
    watch = touched.Watch(())
    watch.begin()
    with mmap.mmap(-1, SIZE) as made:
        made[:] = b"\1" * SIZE
    new, used, *_ = watch.end()
    assert new > SIZE - LITTLE
    assert used < LITTLE


def test_memory_of_before_is_used_and_not_new(block: mmap.mmap) -> None:
    block[:] = b"\1" * SIZE
    contents = b"\2" * SIZE
    watch = touched.Watch(())
    watch.begin()
    block[:] = contents
    new, used, *_ = watch.end()
    assert new < LITTLE
    assert SIZE - LITTLE < used < 2 * SIZE + LITTLE


def test_the_clients_own_memory_does_not_count() -> None:
    fd = os.memfd_create("own")
    try:
        os.ftruncate(fd, SIZE)
        status = os.fstat(fd)
        with mmap.mmap(fd, SIZE) as mine:
            watch = touched.Watch({(status.st_dev, status.st_ino)})
            watch.begin()
            for at in range(0, SIZE, mmap.PAGESIZE):
                mine[at] = 1
            seen = watch.end()
            assert max(seen.new, seen.used) < LITTLE
            assert seen.own == {(status.st_dev, status.st_ino): SIZE}
    finally:
        os.close(fd)


def test_a_kernel_that_shows_nothing_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keywords: object) -> object:
        if arguments[0] == "/proc/self/clear_refs":
            raise PermissionError
        return open(*arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr(touched, "open", refuse, raising=False)
    assert not touched.Watch(()).begin()


def test_how_much_of_a_file_was_mapped_at_the_beginning_is_known() -> None:
    fd = os.memfd_create("own")
    os.ftruncate(fd, SIZE)
    status = os.fstat(fd)
    file = (status.st_dev, status.st_ino)
    with mmap.mmap(fd, SIZE), mmap.mmap(fd, LITTLE):
        watch = touched.Watch({file})
        watch.begin()
        with mmap.mmap(fd, SIZE):
            seen = watch.end()
    os.close(fd)
    assert seen.mapped == {file: SIZE + LITTLE}


def test_a_page_that_was_used_just_before_is_seen_each_time() -> None:
    fd = os.memfd_create("own")
    os.ftruncate(fd, mmap.PAGESIZE)
    status = os.fstat(fd)
    file = (status.st_dev, status.st_ino)
    with mmap.mmap(fd, mmap.PAGESIZE) as mine:
        for value in range(50):
            watch = touched.Watch({file})
            mine[0] = value
            watch.begin()
            assert mine[0] == value
            assert watch.end().own == {file: mmap.PAGESIZE}
    os.close(fd)

"""Garbage is collected less often while a rule is judged."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator

_COLLECTION_INTERVAL = 10.0
"""Seconds of processor time between full collections, among all objects, of which pytest's process has some
300,000: on a machine that is busy with other things, seconds of the clock would have more of them."""


class _LastCollection:
    """When this process's last full collection was, in seconds of `time.process_time`."""

    last = 0.0

    @classmethod
    def collect_if_due(cls) -> None:
        """Collect, at most once in `_COLLECTION_INTERVAL`: a full collection takes a tenth of a second."""
        if time.process_time() - cls.last > _COLLECTION_INTERVAL:
            gc.collect()
            cls.last = time.process_time()


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often while examples are made, and never among what was there before.

    Each example leaves some thousand objects, few of them in cycles: at Python's default thresholds the
    collector takes a fifteenth of an example, at these hardly anything. A case that measures memory collects
    before each measurement: what pytest and Hypothesis hold is frozen, or most of a leak rule's time goes to
    collections among it.
    """
    # `gc.freeze` moves every tracked object into the permanent generation, garbage included, which is not
    # collected before `gc.unfreeze`: so a full collection comes first, where the last one was long ago.
    # https://docs.python.org/3/library/gc.html#gc.freeze
    _LastCollection.collect_if_due()
    thresholds = gc.get_threshold()
    frozen_before = gc.get_freeze_count()
    gc.set_threshold(20_000, 20, 20)
    gc.freeze()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen_before:  # else another plugin froze objects too, and `gc.unfreeze` knows no owners
            gc.unfreeze()

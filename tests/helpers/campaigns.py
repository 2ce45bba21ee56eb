"""What tests of shards look at in a report: all but times, and where findings were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CLOCK = ("started", "finished", "merged")


def comparable(path: Path | str) -> dict[str, Any]:
    """A report, of one run or merged, without what differs between the two."""
    document: dict[str, Any] = json.loads(Path(path).read_text())
    left = {key: value for key, value in document.items() if key not in CLOCK}
    assert left["options"].pop("qnn_shard") is None
    for target in left["targets"]:
        for rule in target["rules"]:
            rule.pop("seconds", None)
            rule.pop("replay", None)
    return left

"""What every step of a `pytest_qnn.cases.script.ScriptCase` is."""

from __future__ import annotations

import msgspec


class ScriptStep(msgspec.Struct, frozen=True, gc=False, tag_field="do", omit_defaults=True):
    """One step. The tag ``do`` names it in JSON."""

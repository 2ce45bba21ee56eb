"""All actions, by name."""

from __future__ import annotations

from tests.hostile.matrix.action import Action
from tests.hostile.matrix.actions import attacks, ends, files, process, resources

ACTIONS: dict[str, Action] = {
    action.name: action for module in (ends, resources, process, attacks, files) for action in module.ACTIONS
}

"""The memory rules of the areas IF, CAP, RPC, REG, DRG and CTX, loaded without the rest of the catalogue."""

from __future__ import annotations

from typing import Any

from pytest_qnn.rules import cap, ctx, drg, iface, reg, reg_again, reg_arguments, rpc, rpc_free
from pytest_qnn.rules.rule import Rule, entered

MODULES = (iface, cap, rpc, rpc_free, reg, reg_arguments, reg_again, drg, ctx)
_NAMES = {module.__name__ for module in MODULES}

RULES: dict[str, Rule[Any, Any, Any]] = {
    name: rule for name, rule in entered().items() if rule.check.__module__ in _NAMES
}

"""Which seed blocks of which rules a run judges: with ``--qnn-shard=K/N`` one part of N of the campaign.

A campaign has, of each rule that the options select, as many seed blocks as ``--qnn-blocks`` says. Block 0
has the cases of a run without blocks, each other one has cases of its own. The unit that is never divided is
one block of one rule. No rule is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from pytest_qnn import effort
from pytest_qnn.core.forms import BadOption

Units = dict[str, tuple[int, ...]]
"""Rule id to the numbers of its seed blocks, in order; a rule without one is not there."""
_SEED_BITS = 48
"""Fits into the 15 digits that ``--qnn-seed`` may have."""


def block_seed(run_seed: int, block: int) -> int:
    """The ``--qnn-seed`` of a run without blocks that has the cases of this block.

    Args:
        run_seed: of the campaign.
        block: from 0; block 0 has the campaign's own seed.
    """
    if not block:
        return run_seed
    digest = hashlib.sha256(f"{run_seed} block {block}".encode()).digest()
    return int.from_bytes(digest[: _SEED_BITS // 8], "big")


def units(rule_ids: Collection[str], blocks: int, shard: tuple[int, int] | None, profile: str) -> Units:
    """What a run judges.

    Units go in order, the one with the most planned examples first and equal ones by a digest of their names,
    each to the shard that has the fewest examples so far. The same arguments give the same units on every
    machine, and each unit is in one shard.

    Args:
        rule_ids: of the campaign.
        blocks: of each rule.
        shard: (K, N), from 1; None: everything.
        profile: by which examples are counted.

    Raises:
        BadOption: there are fewer units than shards.
    """
    if shard is None:
        return {rule_id: tuple(range(blocks)) for rule_id in sorted(rule_ids)}
    number, of = shard
    whole = [(rule_id, block) for rule_id in rule_ids for block in range(blocks)]
    if len(whole) < of:
        raise BadOption(
            f"--qnn-shard: {number}/{of} is one of {of} shards, and there are {len(whole)} units "
            f"({len(rule_ids)} rules, --qnn-blocks={blocks})"
        )
    costs = _costs(rule_ids, profile)
    whole.sort(key=lambda unit: (-costs[unit[0]], hashlib.sha256(f"{unit[0]} {unit[1]}".encode()).digest()))
    loads = [0] * of
    own: dict[str, list[int]] = {}
    for rule_id, block in whole:
        least = loads.index(min(loads))
        loads[least] += costs[rule_id]
        if least == number - 1:
            own.setdefault(rule_id, []).append(block)
    return {rule_id: tuple(sorted(own[rule_id])) for rule_id in sorted(own)}


def _costs(rule_ids: Collection[str], profile: str) -> dict[str, int]:
    """Examples by rule: of the plan, else the same number for each rule."""
    planned = effort.profile(profile)
    return {rule_id: planned.plan.get(rule_id, planned.in_process_examples) for rule_id in rule_ids}

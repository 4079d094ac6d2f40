"""Strikes: a key that is refused again and again is blocked for a while."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from ...algorithms import wait
from ...decision import Charge, Decision, Take, with_charges, without
from ...errors import StoreError
from ...stores import Store
from .block_checks import (
    BLOCK,
    CHECK_COST,
    EARLIER_BLOCKS,
    STRIKES,
    BlockCheck,
    Strike,
    block,
    charges_and_states,
    checks_in,
    is_blocked,
    take_once,
)
from .penalty import Penalty

logger = logging.getLogger("asgi_ratelimit")


async def apply_penalties(store: Store, decision: Decision) -> Decision:
    """A decision after its penalties: a refusal counts as a strike, and may become a refusal by a block.

    All other decisions lose their checks for blocks. A refusal that the store cannot count goes unpunished, and so
    does one that was decided without the store.
    """
    if decision.allowed:
        return without(decision, BlockCheck)
    if is_blocked(decision):
        return _by_block(decision)
    refusing = {charge.name for charge, state in charges_and_states(decision) if not state.allowed}
    for check, _ in [] if decision.degraded else checks_in(decision):
        blocked = None
        with suppress(StoreError):
            blocked = await add_strike(store, check) if check.name in refusing else None
        if blocked is not None:
            return _as_blocked(decision, check, blocked)
    return without(decision, BlockCheck)


async def add_strike(store: Store, check: BlockCheck) -> Decision | None:
    """Count a refusal of a key that is not blocked; return the decision that has blocked it now, if it has."""
    penalty, key, name = check.penalty, check.key, check.name
    if penalty is None or not await _is_last_strike(store, check, penalty):
        return None
    earlier = Charge(EARLIER_BLOCKS, key, 1, name)
    seconds = penalty.seconds(await _used(store, earlier) if penalty.growth > 1 else 0)
    blocked = await block(store, name, key, seconds)
    if not blocked.allowed:
        return None
    logger.warning("the key %r is blocked by the rule %r for %g s", key, name, seconds)
    if penalty.growth > 1:
        await take_once(store, (earlier,))
    await store.reset([Strike(STRIKES, key, 1, name)])
    return blocked


async def _is_last_strike(store: Store, check: BlockCheck, penalty: Penalty) -> bool:
    """Count this refusal; return whether it is one more than goes unpunished."""
    if penalty.strikes is None:
        return True
    decision = await take_once(store, (Strike(penalty.strikes, check.key, 1, check.name), check))
    return not decision.allowed and not is_blocked(decision)


def _as_blocked(decision: Decision, check: BlockCheck, blocked: Decision) -> Decision:
    """A refusal by quotas, turned into one by the block that it has caused; its wait is the longest of these waits."""
    stored = [
        blocked.stored[0] if charge is check else state for charge, state in zip(decision.charges, decision.stored)
    ]
    until_us = wait(BLOCK, blocked.stored[0], decision.now_us, CHECK_COST, 0.0)
    return _by_block(replace(decision, stored=stored, wait_us=max(decision.wait_us, until_us)))


def _by_block(decision: Decision) -> Decision:
    """A refusal by a block as one by that alone; its wait is the longest of all waits."""
    kept = [at for at, charge in enumerate(decision.charges) if isinstance(charge, BlockCheck)]
    charges = tuple([decision.charges[at] for at in kept])
    stored = [decision.stored[at] for at in kept]
    return replace(decision, take=with_charges(decision.take, charges), stored=stored)


async def _used(store: Store, charge: Charge) -> int:
    """How many units of a charge's quota are used."""
    state = (await store.peek(Take((charge,)))).states[0]
    return round(charge.quota.most) - state.remaining

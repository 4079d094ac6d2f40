"""Strikes: a key that is refused again and again is blocked for a while."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from ...decision import Charge, Decision, QuotaState, Take
from ...errors import StoreError
from ...stores import Store
from .block_checks import (
    BLOCK,
    EARLIER_BLOCKS,
    STRIKES,
    BlockCheck,
    Strike,
    block,
    charges_and_states,
    checks_in,
    is_blocked,
    take_once,
    without_checks,
)
from .penalty import Penalty

logger = logging.getLogger("asgi_ratelimit")


async def apply_penalties(store: Store, decision: Decision) -> Decision:
    """A decision after its penalties: a refusal counts as a strike, and may become a refusal by a block.

    All other decisions lose their checks for blocks. A refusal that the store cannot count goes unpunished, and so
    does one that was decided without the store.
    """
    if decision.allowed:
        return without_checks(decision)
    if is_blocked(decision):
        return replace(decision, quota=BLOCK)
    refusing = {charge.name for charge, state in charges_and_states(decision) if not state.allowed}
    for check, state in [] if decision.degraded else checks_in(decision):
        seconds = 0.0
        with suppress(StoreError):
            seconds = await add_strike(store, check) if check.name in refusing else 0.0
        if seconds:
            return _as_blocked(decision, state, seconds)
    return without_checks(decision)


async def add_strike(store: Store, check: BlockCheck) -> float:
    """Count a refusal of a key that is not blocked; return the seconds for which it is now blocked, or 0.0."""
    penalty, key, name = check.penalty, check.key, check.name
    if penalty is None or not await _is_last_strike(store, check, penalty):
        return 0.0
    earlier = Charge(EARLIER_BLOCKS, key, 1, name)
    seconds = penalty.seconds(await _used(store, earlier) if penalty.growth > 1 else 0)
    if not (await block(store, name, key, seconds)).allowed:
        return 0.0
    logger.warning("the key %r is blocked by the rule %r for %g s", key, name, seconds)
    if penalty.growth > 1:
        await take_once(store, (earlier,))
    await store.reset([Strike(STRIKES, key, 1, name)])
    return seconds


async def _is_last_strike(store: Store, check: BlockCheck, penalty: Penalty) -> bool:
    """Count this refusal; return whether it is one more than goes unpunished."""
    if penalty.strikes is None:
        return True
    decision = await take_once(store, (Strike(penalty.strikes, check.key, 1, check.name), check))
    return not decision.allowed and not is_blocked(decision)


def _as_blocked(decision: Decision, check: QuotaState, seconds: float) -> Decision:
    """A refusal by quotas, turned into one by the block that it has caused; its wait is the longest of these waits."""
    blocked = replace(check, allowed=False, remaining=0, retry_after=seconds, reset_after=seconds, more_after=seconds)
    states = tuple([blocked if state is check else state for state in decision.states])
    wait = max(seconds, decision.retry_after)
    return replace(decision, quota=BLOCK, retry_after=wait, remaining=0, reset_after=seconds, states=states)


async def _used(store: Store, charge: Charge) -> int:
    """How many units of a charge's quota are used."""
    state = (await store.peek(Take((charge,)))).states[0]
    return round(charge.quota.most) - state.remaining

"""Blocks that are seen, lifted and imposed by hand."""

from __future__ import annotations

import pytest

from asgi_ratelimit import Blocks, ConfigurationError, MemoryStore, Penalty, Store
from tests.inbound.penalties.striking import A_MOMENT, KEY, decide, strike

pytestmark = pytest.mark.anyio


async def test_a_block_can_be_lifted(store: Store) -> None:
    """With all that led to it: the next refusal counts as the first one, and the next block is the shortest."""
    penalty, blocks = Penalty(60, after=2, growth=10), Blocks(store=store, name="login")
    await strike(store, penalty, 2)
    await blocks.lift(KEY)
    assert await blocks.blocked_for(KEY) == 0.0
    assert (await decide(store)).allowed
    assert await strike(store, penalty, 2) == [0.0, 60.0]


async def test_a_key_can_be_blocked_by_hand(store: Store) -> None:
    """Once: a second block neither adds to the first nor replaces it."""
    blocks = Blocks(store=store, name="login")
    assert await blocks.block(KEY.encode(), "1 day")
    assert not await blocks.block(KEY, "2 days")
    assert await blocks.blocked_for(KEY) == pytest.approx(86_400, abs=A_MOMENT)


async def test_a_block_is_of_one_name(store: Store) -> None:
    """A key that is blocked by one rule is not blocked by another."""
    await Blocks(store=store, name="login").block(KEY, 60)
    assert await Blocks(store=store, name="other").blocked_for(KEY) == 0.0


async def test_blocks_by_hand_that_cannot_be_are_refused() -> None:
    """The error quotes the duration, and nobody is blocked."""
    blocks = Blocks(store=MemoryStore())
    with pytest.raises(ConfigurationError, match="'for ever'"):
        await blocks.block(KEY, "for ever")
    assert await blocks.blocked_for(KEY) == 0.0

"""A store that answers late, for tests of what happens between a decision and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from asgi_ratelimit.decision import Decision, Take
from asgi_ratelimit.stores import MemoryStore


class SlowStore(MemoryStore):
    """It decides at once, and answers a tenth of a second later, as a store elsewhere does."""

    in_process = False

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        decisions = await super().take(takes)
        await asyncio.sleep(0.1)
        return decisions

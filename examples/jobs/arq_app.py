"""arq: run ``arq examples.jobs.arq_app.WorkerSettings``, and call ``await send_later(pool, "guild 5", "hello")``.

arq 0.28 requires redis-py below 6: ``pip install "redis<6"``.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, ClassVar

from arq import ArqRedis
from arq.connections import RedisSettings

from asgi_ratelimit import Limiter, Ticket
from examples.jobs.settings import LEAD, QUOTA, REDIS, call

guilds = Limiter(QUOTA, store=REDIS, name="guilds")


async def send_later(pool: ArqRedis, guild: str, text: str) -> None:
    """Book a slot of the guild, and schedule the job for it."""
    await put_back(pool, guild, text, await guilds.reserve(guild))


async def put_back(pool: ArqRedis, guild: str, text: str, ticket: Ticket) -> None:
    """Schedule the job slightly before its slot, because workers look for jobs only every half second."""
    early = datetime.fromtimestamp(ticket.ready_at - LEAD, UTC)
    await pool.enqueue_job("send", guild, text, str(ticket), _defer_until=early)


async def send(context: dict[str, Any], guild: str, text: str, ticket: str) -> None:
    """The job: it runs at its slot, and is scheduled again if it has missed that."""
    decision = await guilds.redeem(ticket)
    if not decision.allowed:
        return  # the queue has delivered this job twice, or it was cancelled
    if decision.delay > LEAD:
        await put_back(context["redis"], guild, text, Ticket.of(decision))
        return
    await asyncio.sleep(decision.delay)
    call(guild, text, decision.ready_at)


class WorkerSettings:
    """The settings of arq's worker."""

    functions: ClassVar = [send]
    redis_settings = RedisSettings.from_dsn(REDIS)

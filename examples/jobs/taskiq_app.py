"""taskiq: run workers and one scheduler, and call ``await send_later("guild 5", "hello")``.

The commands are ``taskiq worker examples.jobs.taskiq_app:broker`` and
``taskiq scheduler examples.jobs.taskiq_app:scheduler --update-interval 1``.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from taskiq import TaskiqScheduler
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource

from asgi_ratelimit import Limiter, Ticket
from examples.jobs.settings import LEAD, QUOTA, REDIS, call

broker = ListQueueBroker(REDIS, socket_timeout=None)  # redis 8 times out on an empty queue after 5 s by default
schedule = ListRedisScheduleSource(REDIS)
scheduler = TaskiqScheduler(broker, [schedule])
guilds = Limiter(QUOTA, store=REDIS, name="guilds")


async def send_later(guild: str, text: str) -> None:
    """Book a slot of the guild, and schedule the job for it."""
    await put_back(guild, text, await guilds.reserve(guild))


async def put_back(guild: str, text: str, ticket: Ticket) -> None:
    """Schedule the job slightly before its slot, because the scheduler looks for jobs only once a second."""
    early = ticket.ready_at - LEAD
    if early <= time.time():
        await send.kiq(guild, text, str(ticket))
    else:
        await send.schedule_by_time(schedule, datetime.fromtimestamp(early, UTC), guild, text, str(ticket))


@broker.task
async def send(guild: str, text: str, ticket: str) -> None:
    """The job: it runs at its slot, and is scheduled again if it has missed that."""
    decision = await guilds.redeem(ticket)
    if not decision.allowed:
        return  # the queue has delivered this job twice, or it was cancelled
    if decision.delay > LEAD:
        await put_back(guild, text, Ticket.of(decision))
        return
    await asyncio.sleep(decision.delay)
    call(guild, text, decision.ready_at)

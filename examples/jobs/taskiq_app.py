"""taskiq: ``taskiq worker examples.jobs.taskiq_app:broker`` and one
``taskiq scheduler examples.jobs.taskiq_app:scheduler --update-interval 1``, and from anywhere
``await send_later("guild 5", "hello")``.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from taskiq import TaskiqScheduler
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource

from asgi_ratelimit import Limiter, Ticket
from examples.jobs.settings import LEAD, QUOTA, REDIS, call

broker = ListQueueBroker(REDIS, socket_timeout=None)  # or redis 8 gives up on an empty queue after five seconds
schedule = ListRedisScheduleSource(REDIS)
scheduler = TaskiqScheduler(broker, [schedule])
guilds = Limiter(QUOTA, store=REDIS, name="guilds")


async def send_later(guild: str, text: str) -> None:
    """Book a slot of the guild, and have the job run at its time."""
    await put_back(guild, text, await guilds.reserve(guild))


async def put_back(guild: str, text: str, ticket: Ticket) -> None:
    """Have the job run when its slot comes; the scheduler looks once a second, so it is told to be early."""
    early = ticket.ready_at - LEAD
    if early <= time.time():
        await send.kiq(guild, text, str(ticket))
    else:
        await send.schedule_by_time(schedule, datetime.fromtimestamp(early, UTC), guild, text, str(ticket))


@broker.task
async def send(guild: str, text: str, ticket: str) -> None:
    """The job: it runs at its slot, and goes back to the queue if it came too late for that."""
    decision = await guilds.redeem(ticket)
    if decision.delay > LEAD:
        await put_back(guild, text, Ticket.of(decision))
        return
    await asyncio.sleep(decision.delay)
    call(guild, text, decision.ready_at)

"""Celery: run ``celery -A examples.jobs.celery_app worker``, and call ``send_later("guild 5", "hello")``."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from celery import Celery

from asgi_ratelimit import SyncLimiter, Ticket
from examples.jobs.settings import LEAD, QUOTA, REDIS, call

app = Celery("jobs", broker=REDIS)
app.conf.broker_transport_options = {"visibility_timeout": 86_400}  # jobs further ahead are delivered twice
guilds = SyncLimiter(QUOTA, store=REDIS, name="guilds")


def send_later(guild: str, text: str) -> None:
    """Book a slot of the guild, and schedule the job for it."""
    ticket = guilds.reserve(guild)
    send.apply_async((guild, text, str(ticket)), eta=datetime.fromtimestamp(ticket.ready_at, UTC))


@app.task(bind=True, max_retries=None)  # type: ignore[untyped-decorator]  # Celery has no types
def send(self: Any, guild: str, text: str, ticket: str) -> None:
    """The job: it runs at its slot, and is scheduled again if it has missed that."""
    decision = guilds.redeem(ticket)
    if not decision.allowed:
        return  # the queue has delivered this job twice, or it was cancelled
    if decision.delay > LEAD:
        eta = datetime.fromtimestamp(decision.ready_at, UTC)
        raise self.retry(args=(guild, text, str(Ticket.of(decision))), eta=eta)
    time.sleep(decision.delay)
    call(guild, text, decision.ready_at)

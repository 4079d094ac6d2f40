"""What is received while a request waits reaches the app as it came, and no more is read than needed."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Send

from asgi_ratelimit.inbound.delays import MESSAGE_BYTES, MOST_BYTES
from tests.support.visitors import Site, Visitor

MOST_MESSAGES = MOST_BYTES // MESSAGE_BYTES


def chunks(*bodies: bytes) -> list[Message]:
    """The messages of a body."""
    last = len(bodies) - 1
    return [{"type": "http.request", "body": body, "more_body": at < last} for at, body in enumerate(bodies)]


@pytest.mark.parametrize(
    ("size", "count", "kept"),
    [(MOST_BYTES // 2, 5, 2), (MOST_BYTES, 5, 1), (10 * MOST_BYTES, 5, 1), (1, 2 * MOST_MESSAGES, MOST_MESSAGES)],
)
def test_no_more_of_a_body_is_read_than_is_kept(size: int, count: int, kept: int) -> None:
    """The rest is up to the flow control of the server; the app receives all of it."""
    body = chunks(*[b"x" * size] * count)
    visitor = Visitor(incoming=body)
    reads: list[int] = []
    site = Site("1/s burst 1", max_delay=1.0)
    site.clock.run(_count_reads(site, visitor, reads))
    assert reads == [kept]
    assert visitor.received == body


async def _count_reads(site: Site, visitor: Visitor, reads: list[int]) -> None:
    await site.visit(Visitor())
    waiting = asyncio.ensure_future(site.visit(visitor))
    await asyncio.sleep(0.5)
    reads.append(visitor.reads)
    await waiting


def test_a_request_that_does_not_wait_is_not_read() -> None:
    """Its body is the app's own business."""
    visitor = Visitor(incoming=chunks(b"one"))
    Site("1/s burst 1", max_delay=1.0).run(visitor)
    assert visitor.reads == 1
    refused = Visitor(incoming=chunks(b"one"))
    Site("1/minute", max_delay=1.0).run(Visitor(), refused)
    assert refused.reads == 0


def test_a_client_that_goes_in_the_middle_of_its_body_is_noticed() -> None:
    """The server reports that in place of the rest of the body."""
    gone = Visitor(incoming=chunks(b"one", b"two")[:1], leaves=0.5)
    assert Site("1/s burst 1", max_delay=5.0).run(Visitor(), gone, Visitor(at=0.25)) == [0.0, None, 1.0]


@pytest.mark.parametrize("at", [0.0, 0.5])
def test_an_app_that_polls_sees_that_the_client_has_gone(at: float) -> None:
    """Also in a request that has waited, of which a message may be under way."""

    class Polling(Visitor):
        async def enter(self, now: float, receive: Receive, _: Send) -> None:
            self.entered = now
            request = Request({"type": "http"}, receive)
            while not await request.is_disconnected():  # noqa: ASYNC110  # as many apps do
                await asyncio.sleep(0.1)

    polls, site = Polling(at=at, leaves=2.0), Site("1/s burst 1", max_delay=1.0)
    assert site.clock.run(asyncio.wait_for(site.visit(Visitor(at=0.0 if at else 5.0), polls), 10))[1] in (0.0, 1.0)
    assert polls.answered == pytest.approx(2.0, abs=0.2)

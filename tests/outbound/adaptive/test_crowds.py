"""What becomes of the other requests: after a cancelled one, a crash, and in several transports at once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.adaptive_clients import CHANNEL, Caller, bucket_headers

OTHER = "/channels/2/messages"


def test_an_answer_that_nobody_waits_for_any_more() -> None:
    """A request under way is given up, also where it is the pioneer: the next one goes at once, and all are served."""
    caller = Caller(lambda path, number: (200, bucket_headers(4, 60)), latency=0.5)

    async def main(client: httpx.AsyncClient) -> list[Any]:
        tasks = [asyncio.create_task(client.get(CHANNEL)) for _ in range(4)]
        await asyncio.sleep(0.2)
        tasks[0].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(answer) for answer in answers]

    assert caller.run(main) == [asyncio.CancelledError] + [httpx.Response] * 3
    assert caller.service.times == [0.0, 0.2, 0.7, 0.7]


@pytest.mark.parametrize("under_way", [False, True], ids=["queued", "under way"])
def test_a_crash_loses_only_its_own_requests(under_way: bool) -> None:
    """The loop of some callers ends at once: what they had queued is never sent, and later callers are served."""
    caller = Caller(lambda path, number: (200, bucket_headers(0 if number == 1 else 4, 1)), latency=0.1)

    async def crash(client: httpx.AsyncClient) -> None:
        await client.get(CHANNEL)
        tasks = [asyncio.create_task(client.get(CHANNEL)) for _ in range(5)]
        await asyncio.sleep(1.15 if under_way else 0.5)
        raise RuntimeError(f"{len(tasks)} requests are lost")

    with pytest.raises(RuntimeError, match="5 requests are lost"):
        caller.run(crash)
    sent = len(caller.service.sent)
    assert sent == (6 if under_way else 1)
    assert caller.get(*[CHANNEL] * 4) == [200] * 4
    assert len(caller.service.sent) == sent + 4

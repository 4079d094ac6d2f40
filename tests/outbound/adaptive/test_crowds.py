"""What becomes of the other requests: after a cancelled one, a crash, and in several transports at once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from asgi_ratelimit import AdaptiveTransport, MemoryStore
from asgi_ratelimit.testing import SteppedClock
from tests.support.adaptive_clients import CHANNEL, HOST, Caller, Service, bucket_headers

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


def test_several_transports_keep_to_one_limit() -> None:
    """Each bucket may be used by any of them: what is declared counts for all together, and so does a refusal."""
    refusals = [(429, bucket_headers(0, 2, bucket=OTHER, retry_after="2", x_ratelimit_scope="user"))]

    def script(path: str, number: int) -> Any:
        return (
            refusals.pop()
            if path == OTHER and number > 3 and refusals
            else (200, bucket_headers(40, 9, limit=50, bucket=path))
        )

    clock = SteppedClock()
    service, store = Service(clock, script), MemoryStore(clock=clock)
    nodes = [AdaptiveTransport(service, profile="discord", quota="10/s", store=store) for _ in range(3)]

    async def main() -> list[int]:
        clients = [httpx.AsyncClient(transport=node, base_url=HOST, timeout=None) for node in nodes]
        for client in clients:
            await client.get(OTHER)
        calls = [client.get(path) for client in clients for path in [OTHER] + [CHANNEL] * 9]
        return [answer.status_code for answer in await asyncio.gather(*calls)]

    assert clock.run(main()) == [200] * 30
    times = sorted(service.times)
    assert all(later - first >= 0.999 for first, later in zip(times, times[10:]))
    *_, refused, first, _, _ = service.times_of(OTHER)
    assert first >= refused + 2.0


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

"""What made the model of this transport hang, refuse or crash: none of it does here."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from asgi_ratelimit import MemoryStore
from asgi_ratelimit.profiles import Ban
from tests.stand_ins.discord_server import Discord
from tests.support.adaptive_clients import BUCKETS, CHANNEL, HOST, Caller, bucket_headers
from tests.support.store_elsewhere import StoreElsewhere


def test_a_shared_refusal_waits_for_its_retry_after() -> None:
    """Although requests remain and the reset is near; and no burst of refusals follows."""
    server = Discord({})

    def script(path: str, number: int) -> Any:
        status, headers, body = server.answer("GET", path)
        return status, {**headers, "via": "1.1 google"}, body

    caller = Caller(script, max_delay=3600)
    server.now = lambda: caller.clock.now
    path = "/channels/1/shared"
    assert caller.get(*[path] * 4) == [200] * 4
    assert server.counts["refused shared"] == server.counts["refused"] == 1
    times = caller.service.times_of(path)
    assert [at for at in times if 1 < at < 1337] == []
    assert times[-1] == pytest.approx(1337.5, abs=1)


@pytest.mark.parametrize("names_no_time", [{}, {"retry-after": "0"}])
def test_refusals_of_requests_that_were_under_way_make_one_pause(names_no_time: dict[str, str]) -> None:
    """However many there are, and although they name no time, it is as long as after one."""

    def script(path: str, number: int) -> Any:
        return (429, {"via": "x", **names_no_time}) if 2 <= number <= 9 else (200, bucket_headers(20, 60, limit=30))

    caller = Caller(script)
    assert caller.get(CHANNEL) == [200]
    assert caller.get(*[CHANNEL] * 8) == [200] * 8
    assert len(caller.service.sent) == 17
    assert 1.0 <= caller.service.times[-1] <= 2.0


def test_a_refusal_counts_although_a_later_answer_reports_another_limit() -> None:
    """It is that of a request which was sent before, to a server that reports only the limit of which least is left."""
    other = 200, bucket_headers(20, 60, bucket="minute", limit=30)
    refusal = 429, bucket_headers(0, 3600, bucket="hour", limit=100, retry_after="3600")
    caller = Caller(lambda path, number: refusal if number == 3 else other, retries=0, max_delay=4000)
    assert caller.get(CHANNEL) == [200]
    assert sorted(caller.get(*[CHANNEL] * 4)) == [200, 200, 200, 429]
    assert caller.get(CHANNEL) == [200]
    assert caller.service.times[-1] == pytest.approx(3600.2)


def test_a_limit_that_answers_no_longer_report_is_forgotten() -> None:
    """After three of them, one after another; until then, one request a second goes."""
    refusal = 429, bucket_headers(0, 1, retry_after="1")
    caller = Caller(lambda path, number: refusal if number in (1, 4) else (200, {"via": "x"}))
    assert caller.get(*[CHANNEL] * 8) == [200] * 8
    assert caller.service.times == pytest.approx([0.0, 1.1, 2.2, 3.3, 4.4, 5.5, 6.6, *[6.7] * 3])


def test_a_window_that_begins_early_is_used_at_once() -> None:
    """Its end is much later than that of the one before; it has what an answer says, without what is under way."""
    caller = Caller(lambda path, number: (200, bucket_headers(*((2, 60) if number == 1 else (6 - number, 200)))))
    caller.get(*[CHANNEL] * 7)
    assert caller.service.times == pytest.approx([0.0, 0.1, 0.1, 0.2, 0.2, 0.2, 200.3])


@pytest.mark.parametrize(("after", "at"), [(60, 61.7), (0.2, 1.75)])
def test_an_answer_that_comes_when_the_window_of_its_request_is_over(after: float, at: float) -> None:
    """If it is about the next one, that has only what is left in it; if not, it says nothing of that."""
    reports = {1: (4, 1), 2: (0, after)}
    caller = Caller(lambda path, number: (200, bucket_headers(*reports.get(number, (4, 1)))), latency=0.4)

    async def main(client: httpx.AsyncClient) -> None:
        await client.get(CHANNEL)
        await asyncio.sleep(0.9)
        late = asyncio.create_task(client.get(CHANNEL))
        await asyncio.sleep(0.45)
        await client.get(CHANNEL)
        await late

    caller.run(main)
    assert caller.service.times == pytest.approx([0.0, 1.3, at])


@pytest.mark.parametrize("after", ["1", "1.5", "", "x", "-1", "nan", "1e400", "99999999999999"])
@pytest.mark.parametrize("remaining", ["0", "1", "x", "-1", ""])
def test_headers_that_are_wrong_stop_nothing(after: str, remaining: str) -> None:
    """Whole numbers, half of the headers, and nonsense."""

    def script(path: str, number: int) -> Any:
        return 200, {"x-ratelimit-bucket": "a", "x-ratelimit-remaining": remaining, "x-ratelimit-reset-after": after}

    caller = Caller(script, max_delay=200_000)
    assert caller.get(*[CHANNEL] * 3) == [200] * 3


LIES = [
    {"ratelimit-policy": '"a";q=10;w=9999999999', "ratelimit": '"a";r=0'},
    {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "0", "x-ratelimit-fillrate": "1"}
    | {"x-ratelimit-interval-seconds": "9999999999"},
]


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_stops_a_host_for_a_day_at_most(lie: dict[str, str]) -> None:
    """By a window, or by units that hardly come back."""
    caller = Caller(lambda path, number: (200, lie if number == 1 else {}), max_delay=200_000, profile="auto")
    assert caller.get(*[CHANNEL] * 3) == [200] * 3


def test_tokens_of_requests_that_are_under_way_hold_nobody_up_for_long() -> None:
    """A server counts them by their estimates, and gives most of them back when their streams have ended."""

    def script(path: str, number: int) -> Any:
        left = 0 if number == 8 else 1000 - 10 * number
        headers = {"x-ratelimit-limit-tokens": "1000", "x-ratelimit-remaining-tokens": str(left)}
        return 200, headers | {"x-ratelimit-reset-tokens": f"{(1000 - left) * 86}s"}

    caller = Caller(script, max_delay=200_000, profile="openai")
    assert [caller.get("/v1/responses") for _ in range(12)] == [[200]] * 12
    assert caller.service.times[-1] <= 75


def test_a_request_that_costs_more_than_the_limit_empties_the_bucket() -> None:
    """Once: what answers say then counts."""

    def script(path: str, number: int) -> Any:
        cost, left = (100_000, 1000) if number == 1 else (10, 990)
        throttle = {"maximumAvailable": 1000, "currentlyAvailable": left, "restoreRate": 50}
        return 200, {}, {"extensions": {"cost": {"actualQueryCost": cost, "throttleStatus": throttle}}}

    caller = Caller(script, max_delay=60, profile="shopify")
    assert caller.get(*[CHANNEL] * 5) == [200] * 5


def test_too_many_bad_answers_stop_before_a_ban() -> None:
    """At nine tenths of what leads to a ban, the host is left alone until the oldest are forgotten."""
    profile = replace(BUCKETS, ban=Ban((401,), 1_000, 600.0))
    caller = Caller(lambda path, number: 401, latency=0.0, max_delay=5, profile=profile)

    async def main(client: httpx.AsyncClient) -> list[Any]:
        answers = []
        for _ in range(20):
            calls = [client.get(f"/users/{number}") for number in range(50)]
            answers += await asyncio.gather(*calls, return_exceptions=True)
        return answers

    answers = caller.run(main)
    assert 900 <= len(caller.service.sent) <= 950
    assert sum(isinstance(answer, TimeoutError) for answer in answers) >= 50


def test_buckets_are_forgotten() -> None:
    """Those that were not used for a while; memory does not grow with every path or host that was ever asked for.

    Of a path that has nothing left until later than that, it is remembered.
    """
    caller = Caller(lambda path, n: (200, bucket_headers(*((4, 1) if n > 5 else (0, 1700)), path)), latency=0.0)

    async def main(client: httpx.AsyncClient) -> list[str]:
        for number in range(50):
            await client.get(f"/a/{number}")
        await asyncio.sleep(1000)
        hosts = [f"http://{number}.example/c" for number in range(1000)]
        for url in [*[f"/b/{number}" for number in range(50)], *hosts]:
            await client.get(url)
        return [bucket.name for bucket in caller.transport.state()]

    names = caller.run(main)
    assert len(names) <= 56 + 1000
    assert "/a/0 default" in names


@pytest.mark.parametrize("seconds", [0.5, 0.05])
def test_requests_on_a_closed_event_loop_hold_nobody_up(seconds: float) -> None:
    """Although their tasks are still referred to."""

    class Away(Caller):
        store_on = staticmethod(lambda clock: StoreElsewhere(MemoryStore(clock=clock), 0.1))

    caller = Away(lambda path, number: (200, bucket_headers(0 if number == 1 else 4, 1)))
    loop, since = caller.clock.event_loop(), caller.clock.now
    client = httpx.AsyncClient(transport=caller.transport, base_url=HOST, timeout=None)
    held = [loop.create_task(client.get(CHANNEL)) for _ in range(4)]
    loop.run_until_complete(asyncio.sleep(seconds))
    loop.close()
    assert caller.get(*[CHANNEL] * 3) == [200] * 3
    assert caller.clock.now - since < 15
    for task in held:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is on purpose

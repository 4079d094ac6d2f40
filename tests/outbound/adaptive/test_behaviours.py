"""What a rate limiter of a client for Discord does: each behaviour of the one that this is modelled on, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from asgi_ratelimit import PaceTimeout
from tests.support.adaptive_clients import BUCKETS, CHANNEL, Caller, bucket_headers
from tests.support.redis_on_clock import RedisOnClock

OTHER = "/channels/2/messages"


@pytest.fixture(autouse=True, params=["memory", "redis"])
def each_store(request: Any, monkeypatch: pytest.MonkeyPatch, unwatched: None, unpublished: None) -> Iterator[None]:
    """Callers use each kind of store in turn."""
    stores: list[RedisOnClock] = []
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        monkeypatch.setattr(Caller, "store_on", lambda _, clock: stores.append(RedisOnClock(url, clock)) or stores[-1])
    yield
    for store in stores:
        store.close()


def test_an_unknown_bucket_sends_one_pioneer() -> None:
    """The others of its bucket wait for the answer of the first; other buckets have pioneers of their own."""
    caller = Caller(lambda path, number: (200, bucket_headers(4, 1)), latency=0.1)
    assert caller.get(CHANNEL, CHANNEL, CHANNEL, OTHER) == [200] * 4
    assert caller.service.times_of(CHANNEL) == [0.0, 0.1, 0.1]
    assert caller.service.times_of(OTHER) == [0.0]


def test_later_answers_never_raise_what_remains() -> None:
    """What the first answer of a window allows is all that goes in it."""
    caller = Caller(lambda path, number: (200, bucket_headers(2 + number % 3, 10, limit=5)), latency=0.1)
    assert caller.get(*[CHANNEL] * 6) == [200] * 6
    assert len([at for at in caller.service.times if at < 2]) <= 4


def test_a_refused_request_is_sent_again() -> None:
    """Its caller gets the answer that comes after that, and nothing of the bucket goes before."""
    answers = [(429, bucket_headers(0, 2, x_ratelimit_scope="user", retry_after="2"))]
    caller = Caller(lambda path, number: answers.pop() if answers else (200, bucket_headers(4, 1)))
    assert caller.get(CHANNEL, CHANNEL) == [200, 200]
    assert caller.service.times == [0.0, 2.1, 2.2]


@pytest.mark.parametrize(("failure", "later"), [(502, 1.0), (httpx.ReadError("gone"), 0.0)], ids=["502", "dead"])
def test_a_pioneer_that_fails_frees_the_queue(failure: Any, later: float) -> None:
    """Its caller is told; the next one goes at once, or a second after an answer without limits, as the new pioneer."""
    caller = Caller(lambda path, number: failure if number == 1 else (200, bucket_headers(4, 1)))
    assert caller.get(CHANNEL, CHANNEL, CHANNEL) == [failure, 200, 200]
    assert caller.service.times == pytest.approx([0.0, later + 0.1, later + 0.2])


def test_the_order_of_a_bucket_is_kept() -> None:
    """First come, first served, also where the first one was refused."""
    paths = [f"/users/{10**17 + number}" for number in range(6)]
    refusal = (429, bucket_headers(0, 1, retry_after="1", x_ratelimit_scope="user"))
    caller = Caller(lambda path, number: refusal if number == 1 else (200, bucket_headers(1, 1)))
    caller.get(*paths)
    assert [path for _, path in caller.service.sent] == [paths[0], *paths]


def test_a_caller_that_gives_up_is_never_sent() -> None:
    """Its request leaves the queue, and the others go on."""
    caller = Caller(lambda path, number: (200, bucket_headers(0 if number == 1 else 4, 5)))

    async def main(client: httpx.AsyncClient) -> Any:
        await client.get(CHANNEL)
        tasks = [asyncio.create_task(client.get(CHANNEL, params={"n": n})) for n in range(3)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        return [type(answer) for answer in answers]

    assert caller.run(main) == [asyncio.CancelledError, httpx.Response, httpx.Response]
    assert len(caller.service.sent) == 3


def test_a_wait_beyond_max_delay_is_refused_at_once() -> None:
    """With how much longer it would have been."""
    caller = Caller(lambda path, number: (429, {"retry-after": "60", "via": "x"}), retries=0, max_delay=5)
    first, second = caller.get(CHANNEL), caller.get(CHANNEL)
    assert first == [429]
    assert isinstance(second[0], PaceTimeout)
    assert second[0].decision.retry_after == pytest.approx(55, abs=0.2)
    assert len(caller.service.sent) == 1


def test_who_waits_for_what_comes_too_late_is_told_at_once() -> None:
    """As soon as an answer says so."""
    caller = Caller(lambda path, number: (429, {"retry-after": "60"}), profile="auto", retries=0, max_delay=5)
    start = caller.clock.now
    assert [type(each) for each in caller.get(*["/a"] * 4)] == [int, *[PaceTimeout] * 3]
    assert caller.clock.now - start < 1


def test_a_refusal_of_everything_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Others are at the level INFO. It says what to do about a server that reports no limit at all."""
    of_all = {"x-ratelimit-global": "true", "x-ratelimit-scope": "global", "via": "x"}
    for profile, own in ((BUCKETS, of_all), ("auto", {})):
        Caller(lambda path, number, own=own: (429, {"retry-after": "1", **own}), retries=0, profile=profile).get("/x")
    assert [caplog.text.count(each) for each in ("WARNING", "everything: refused, paused for 1 s", "aimd")] == [2, 2, 1]


def test_the_state_shows_the_buckets_and_who_waits() -> None:
    """Limits, what remains, queues, and when the next one goes."""
    caller = Caller(lambda path, number: (200, bucket_headers(0, 5)))

    async def main(client: httpx.AsyncClient) -> Any:
        await client.get(CHANNEL)
        tasks = [asyncio.create_task(client.get(CHANNEL)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        state = caller.transport.state()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return state

    (bucket,) = caller.run(main)
    assert (bucket.host, bucket.limit, bucket.waiting, bucket.is_unknown) == ("api.example", 5, 3, False)
    assert bucket.next_release == pytest.approx(5.0, abs=0.11)


def two_resources(service: list[tuple[str, float]]) -> Any:
    """A service with 10 requests a minute for ``/search``, and another 10 for all other paths together."""

    def script(path: str, number: int) -> Any:
        now = asyncio.get_running_loop().time()
        resource = "search" if path == "/search" else "core"
        minute = now // 60
        service.append((resource, minute))
        left = 10 - service.count((resource, minute))
        headers = {"x-ratelimit-limit": "10", "x-ratelimit-remaining": str(max(left, 0))}
        headers |= {"x-ratelimit-reset": f"{minute * 60 + 60 - now:.3f}", "x-ratelimit-resource": resource}
        return (200, headers) if left >= 0 else (429, headers | {"retry-after": f"{minute * 60 + 60 - now:.0f}"})

    return script


@pytest.mark.parametrize(("quiet", "refused"), [(65, 0), (725, 3)])
def test_a_bucket_that_routes_share_is_not_forgotten_under_them(quiet: float, refused: int) -> None:
    """Its window is over when the answer to another path reports a new bucket; the routes go on to share it.

    Or, if none of them was used for long, all of them have forgotten it, and each begins with a pioneer.
    """
    caller = Caller(two_resources([]), profile="github", retries=0)

    async def main(client: httpx.AsyncClient) -> list[int]:
        paths = ["/users/a", "/orgs/b", "/gists"]
        for path in paths:
            await client.get(path)
        await asyncio.sleep(quiet)
        await client.get("/search")
        return [answer.status_code for answer in await asyncio.gather(*map(client.get, paths * 8))]

    assert caller.run(main).count(200) >= 24 - refused


def test_an_answer_that_reports_its_limits_twice() -> None:
    """As where a gateway and the app behind it both set the headers: each bucket is one, also in a pause."""
    line = '"per-minute";r=50, "per-hour";r=500'
    twice = {"ratelimit": f"{line}, {line}"}
    caller = Caller(
        lambda path, number: (429, {**twice, "retry-after": "2"}) if number == 3 else (200, twice), profile="ietf"
    )

    async def main(client: httpx.AsyncClient) -> list[int]:
        return [(await client.get("/a")).status_code for _ in range(6)]

    assert caller.run(main) == [200] * 6
    assert caller.service.times == pytest.approx([0.0, 0.1, 0.2, 2.3, 2.4, 2.5, 2.6])


@pytest.mark.parametrize(("quota", "seconds"), [(None, 10.0), ("24/s", 20.0)])
def test_the_global_limit_that_no_answer_reports_is_declared(quota: str | None, seconds: float) -> None:
    """Discord's is 50 a second, of which 48 are used; a quota of one's own counts instead."""
    caller = Caller(lambda path, number: (200, {}), profile="discord", quota=quota)
    paths = [f"/channels/{number}/messages" for number in range(480)]
    assert caller.get(*paths) == [200] * 480
    assert max(caller.service.times) == pytest.approx(seconds, rel=0.01)


def test_interactions_are_outside_of_the_global_limit() -> None:
    """They go at once, and nobody waits because of them."""
    caller = Caller(lambda path, number: (200, {}), profile="discord")
    paths = [f"/interactions/{number}/token/callback" for number in range(100)]
    assert caller.get(*paths, CHANNEL) == [200] * 101
    assert max(caller.service.times) == 0.0


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

"""How a refused request is sent again, and what a refusal by mere jitter does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from asgi_ratelimit import Overrides, PacedTransport, PaceTimeout
from asgi_ratelimit.outbound.exchange import can_be_sent_again
from asgi_ratelimit.outbound.refusals import pause_of
from tests.support.paced_clients import OTHER, URL, Client

LATER = (429, {"retry-after": "2"})


def test_only_what_a_request_waits_counts_for_max_delay(client: Client) -> None:
    """And not for how long an answer takes."""
    takes = [0.0, 5.0]

    def late(request: Any) -> Any:
        client.clock.advance(takes.pop())
        return client.service(request)

    inner = client.module.MockTransport(late)
    transport = PacedTransport(inner, "10/s", store=client.store, retries=1, max_delay=3.0)
    (answer,) = client.get(URL, answers=[LATER], transport=transport)
    assert (answer.status_code, client.service.times) == (200, [5.0, 7.0])


def test_without_retry_after_it_backs_off(client: Client) -> None:
    """At random, up to half a second first, and up to twice as long each time; the caller gets the last answer."""
    (answer,) = client.get(URL, answers=[503, 429, 503, 503], retries=3, quota="1000000/s")
    first, *others = client.service.times
    waits = [later - earlier for earlier, later in zip([first, *others], others)]
    assert first == 0.0
    assert all(0.0 <= wait <= longest for wait, longest in zip(waits, (0.5, 1.0, 2.0), strict=True))
    assert answer.status_code == 503


def test_it_backs_off_however_often_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By at most a minute."""
    client = Client(httpx, False)
    monkeypatch.setattr("asgi_ratelimit.outbound.refusals.random", lambda: 1.0)
    client.get(URL, answers=[503] * 1_100, retries=1_200, quota="1000000/s")
    assert len(client.service.times) == 1_101
    assert client.service.times[-1] - client.service.times[-2] == 60.0


def test_a_request_that_backs_off_is_not_under_way(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five good ones go meanwhile, under a limit of one at a time."""
    monkeypatch.setattr("asgi_ratelimit.outbound.refusals.random", lambda: 0.5)
    client = Client(module, True)
    client.service.answers = [503]
    transport = client.transport("1000000/s", concurrency=1, retries=1)

    async def main() -> None:
        async with module.AsyncClient(transport=transport) as paced:
            answers = await asyncio.gather(*[paced.get(f"{URL}{number}") for number in range(6)])
            assert [answer.status_code for answer in answers] == [200] * 6

    client.clock.run(main())
    times, paths = zip(*client.service.requests)
    assert paths == ("/0", "/1", "/2", "/3", "/4", "/5", "/0")
    assert times[5] < 0.001 < times[6]


def test_retries_end_at_max_delay(client: Client) -> None:
    """If the pause is longer, the caller gets the refusal, and the next request raises at once."""
    (answer,) = client.get(URL, answers=[LATER], retries=2, max_delay=1.0)
    assert answer.status_code == 429
    with pytest.raises(PaceTimeout):
        client.get(URL, max_delay=1.0)
    assert client.service.times == [0.0]


@pytest.mark.parametrize(
    "body", [{"content": b"body"}, {"data": {"a": "b"}}, {"json": {"a": 1}}, {"files": {"f": b"body"}}], ids=repr
)
def test_complete_bodies_are_sent_again(client: Client, body: dict[str, Any]) -> None:
    """The whole body, each time."""
    (answer,) = client.get({"method": "POST", "url": URL, **body}, answers=[LATER], retries=1)
    assert answer.status_code == 200
    assert client.service.bodies[0] == client.service.bodies[1] != b""


# Jitter

JITTER = (429, {"retry-after": "1"})


@pytest.mark.parametrize("headers", [{"retry-after": "1"}, {"retry-after-ms": "3"}], ids=repr)
def test_a_refusal_by_jitter_slows_its_key_down(client: Client, headers: dict[str, str]) -> None:
    """By 3 % for a minute, instead of stopping it for a second; other keys keep their rate."""
    client.get(URL, URL, URL, OTHER, OTHER, answers=[(429, headers)])
    assert client.service.times == [0.0, 0.1, 0.203, 0.203, 0.303]
    client.clock.move_to(61)
    client.get(URL, URL)
    assert client.service.times[5:] == [61.0, 61.1]


def test_the_fourth_refusal_within_a_minute_is_no_jitter(client: Client) -> None:
    """It pauses the key, in all processes; until then, each has slowed it down by 3 %."""
    client.get(*[URL] * 6, answers=[JITTER] * 4)
    assert client.service.times == [0.0, 0.1, 0.203, 0.309, 1.309, 1.418]


@pytest.mark.parametrize("refusal", [(429, {"retry-after": "2"}), (503, {"retry-after": "1"})], ids=repr)
def test_other_refusals_are_no_jitter(client: Client, refusal: Any) -> None:
    """A longer wait than the shortest whole second, and an overload."""
    client.get(URL, URL, answers=[refusal])
    assert client.service.times == [0.0, float(refusal[1]["retry-after"])]


def test_a_window_of_one_request_is_not_slowed_down_for_ever(client: Client) -> None:
    """A cost above its limit would never be admitted."""
    client.get(URL, URL, URL, quota="1/s fixed", answers=[JITTER])
    assert client.service.times == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("word", ["off", "shadow"])
def test_an_override_in_a_word_concerns_the_limit_alone(client: Client, word: str) -> None:
    """Requests keep to pauses, are sent again, and are so many at a time; only the quota does not hold them up."""
    asyncio.run(Overrides(client.store).set("outbound", word))
    (answer,) = client.get(URL, answers=[LATER, (503, {"retry-after-ms": "300"})], retries=2, quota="1/hour")
    assert client.service.times == [0.0, 2.0, 2.3]
    assert answer.status_code == 200
    assert answer.extensions["pace"] == {"waited": 2.3, "attempts": 3}
    client.get(URL, answers=[LATER], quota="1/hour")
    client.get(f"{OTHER}other", quota="1/hour")
    with pytest.raises(PaceTimeout, match="the next slot"):
        client.get(URL, max_delay=1.0, quota="1/hour")
    client.get(URL, max_delay=2.0, quota="1/hour")
    assert client.service.times == [0.0, 2.0, 2.3, 2.3, 2.3, 4.3]


# Bodies that are at hand once


def pipe() -> Any:
    """A file that can be read once."""
    reader, writer = os.pipe()
    os.write(writer, b"precious data")
    os.close(writer)
    return os.fdopen(reader, "rb")


class Once:
    """A stream of a program's own, which can be read once."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"data"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"data"


def test_bodies_that_can_be_read_once(module: Any) -> None:
    """Generators, streams of the program's own, pipes, and multipart bodies with one of those."""
    with pipe() as file:
        for arguments in (
            {"content": iter([b"data"])},
            {"content": file},
            {"stream": Once()},
            {"files": {"file": ("a.txt", file)}},
            {"files": {"first": b"data", "file": ("a.txt", file)}},
        ):
            assert not can_be_sent_again(module.Request("POST", URL, **arguments)), arguments


# Forms of Retry-After


NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(("hour", "date"), [(8, ""), (8, "yesterday"), (9, "Sun, 06 Nov 1994 09:49:37 GMT")])
def test_a_retry_after_that_is_a_date(hour: int, date: str) -> None:
    """It counts from the date of the answer, if that has one."""
    headers = {"retry-after": f"Sun, 06 Nov 1994 {hour:02}:50:07 GMT", "date": date}
    assert pause_of(headers, NOW) == 30.0


@pytest.mark.parametrize("text", ["", "soon", "-1", "1_0", "²", "1e9", "99999999999", "Sun, 06 Nov 2094 08:49:37 GMT"])
def test_invalid_values_are_ignored(text: str) -> None:
    """As are pauses of more than a day, and what only Python takes for a number."""
    assert pause_of({"retry-after": text}, NOW) is None

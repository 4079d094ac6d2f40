"""Discord's stand-in behaves as documented."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stand_ins.discord_server import Discord

PATH = "/channels/1/messages"


class Time:
    """A time that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def server(**settings: str) -> tuple[Discord, Time]:
    """A server, and its time."""
    time = Time()
    return Discord(settings, time), time


def remaining(answer: Any) -> tuple[int, str, str]:
    """The status, what remains and when the bucket is full."""
    status, headers, _ = answer
    return status, headers["x-ratelimit-remaining"], headers["x-ratelimit-reset-after"]


def test_a_window() -> None:
    """It begins with its first request, and all come back at its end."""
    discord, time = server(LIMIT="2", PERIOD="5")
    assert [remaining(discord.answer("GET", PATH)) for _ in range(2)] == [(200, "1", "5.000"), (200, "0", "5.000")]
    time.now += 2
    status, headers, body = discord.answer("GET", PATH)
    assert (status, headers["retry-after"], headers["x-ratelimit-scope"], body["retry_after"]) == (
        429,
        "3",
        "user",
        3.0,
    )
    assert discord.answer("POST", PATH)[0] == discord.answer("GET", "/channels/2/messages")[0] == 200
    time.now += 3
    assert remaining(discord.answer("GET", PATH)) == (200, "1", "5.000")


def test_sliding() -> None:
    """They come back one by one."""
    discord, time = server(LIMIT="2", PERIOD="4", SLIDING="1")
    assert [remaining(discord.answer("GET", PATH)) for _ in range(2)] == [(200, "1", "2.000"), (200, "0", "4.000")]
    assert discord.answer("GET", PATH)[0] == 429
    time.now += 2
    assert remaining(discord.answer("GET", PATH)) == (200, "0", "4.000")


def test_the_global_limit() -> None:
    """Its refusal says nothing of a bucket."""
    discord, _ = server(GLOBAL="2")
    for channel in range(2):
        discord.answer("GET", f"/channels/{channel}/messages")
    status, headers, body = discord.answer("GET", "/channels/3/messages")
    assert (status, headers["x-ratelimit-scope"], body["global"]) == (429, "global", True)
    assert not [name for name in headers if "remaining" in name or "reset" in name or "bucket" in name]


def test_a_shared_resource() -> None:
    """Requests remain, and the wait is long."""
    discord, _ = server()
    discord.answer("GET", "/channels/1/shared")
    status, headers, _ = discord.answer("GET", "/channels/1/shared")
    assert (status, headers["x-ratelimit-remaining"], headers["retry-after"]) == (429, "9", "1337")


@pytest.mark.parametrize(("number", "status"), [(1, 502), (2, 200), (3, 502)])
def test_a_bad_gateway(number: int, status: int) -> None:
    """Every other request, without any of the headers."""
    discord, _ = server()
    answers = [discord.answer("GET", "/channels/1/gateway") for _ in range(number)]
    assert answers[-1][0] == status
    assert bool(answers[-1][1]) == (status == 200)

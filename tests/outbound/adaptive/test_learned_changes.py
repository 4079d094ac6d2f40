"""Hooks of an adaptive transport: an event for all that it learns."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx
import pytest

from asgi_ratelimit.hooks import LimitChange
from tests.support.adaptive_clients import CHANNEL, Caller, bucket_headers


def changes_of(script: Any, *paths: str, **options: Any) -> list[LimitChange]:
    """What a hook receives while requests are sent one after another."""
    changes: list[LimitChange] = []
    caller = Caller(script, hooks=[changes.append], **options)

    async def main(client: httpx.AsyncClient) -> None:
        for path in paths:
            with contextlib.suppress(httpx.TransportError):
                await client.get(path)

    caller.run(main)
    return changes


def test_what_is_learned() -> None:
    """With what is left of it, what it was before, or which one the route used before, which is not learned again."""
    larger = bucket_headers(4, 1, limit=10)
    reports = [bucket_headers(4, 1), larger, bucket_headers(4, 1, bucket="b"), larger]
    changes = learned, changed, other, migrated, _ = changes_of(lambda _, n: (200, reports[n - 1]), *[CHANNEL] * 4)
    assert [each.kind for each in changes] == ["learned", "limit changed", "learned", "migrated", "migrated"]
    assert (learned.host, learned.bucket, learned.limit) == ("api.example", "abc default channels/1", 5.0)
    assert (learned.remaining, learned.paused_for, changed.limit) == (4.0, 0.0, 10.0)
    assert learned.text == "limit 5, 4 left, more in 1 s"
    assert changed.text == "limit 10 (it was 5), 3 left, more in 1 s"
    assert other.bucket == migrated.bucket == "b default channels/1"
    assert migrated.text == "GET /channels/1/messages uses this instead of abc default channels/1"


def test_a_pause_is_told_of_once() -> None:
    """With its length, although several requests of the same moment are refused."""
    refusal = 429, bucket_headers(0, 9, retry_after="9", x_ratelimit_scope="user")
    changes: list[LimitChange] = []
    caller = Caller(
        lambda path, number: (200, bucket_headers(4, 1)) if number == 1 else refusal, hooks=[changes.append], retries=0
    )
    assert caller.get(CHANNEL) == [200]
    assert caller.get(CHANNEL, CHANNEL, CHANNEL) == [429] * 3
    assert [(change.kind, change.paused_for) for change in changes] == [("learned", 0.0), ("paused", 9.0)]


@pytest.mark.parametrize("failure", [502, httpx.ConnectError("no route")], ids=["502", "no connection"])
def test_a_pioneer_that_fails(failure: Any) -> None:
    """Without an answer, or with one that reports nothing; one that is served reports no failure."""
    changes = changes_of(lambda path, number: failure if number == 1 else (200, {}), CHANNEL, CHANNEL)
    assert [(change.kind, change.bucket) for change in changes] == [("pioneer failed", "GET /channels/1/messages")]

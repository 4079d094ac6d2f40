"""Windows whose charges come to more than was charged: what that leaves for others, in memory and on Redis."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from asgi_ratelimit.algorithms import reset_us
from asgi_ratelimit.limiter import Limiter
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.debit_histories import DebitedWindow, random_history, random_versions
from tests.support.direct_script import DirectScript
from tests.support.examples import up_to
from tests.support.other_process import OtherProcess
from tests.support.redis_server import RedisServer

SOME = up_to(200).max_examples


@pytest.fixture(scope="module")
def script(redis_server: RedisServer) -> Iterator[DirectScript]:
    """The script on a Redis of its own."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield DirectScript(client)


def require_all(seed: int, script: DirectScript | None = None) -> None:
    """At each take, room beside the actual costs; at each refund, no longer waits; in the end, all is paid back."""
    chance = random.Random(seed)
    quotas, window = random_versions(chance), DebitedWindow(script)
    random_history(chance, quotas, window)
    if len(quotas) == 1:
        window.require_paid_back(quotas[0])
    for each in chance.sample(window.open(), len(window.open())):
        window.settle(each, 0.0)
    if len(quotas) == 1:
        window.require_paid_back(quotas[0])


def test_actual_costs_count_and_debits_are_paid_back(script: DirectScript) -> None:
    """Whatever is settled to more or less, in any order, and whatever becomes of the limit; on Redis to the bit."""
    for seed in range(SOME):
        script.client.flushdb()
        require_all(seed, script)


@pytest.mark.long
def test_ten_thousand_histories() -> None:
    """In memory."""
    for seed in range(1_000_000, 1_010_000):
        require_all(seed)

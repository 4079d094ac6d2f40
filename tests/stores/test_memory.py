"""The store in this process: how many buckets it holds, which ones it evicts, and that threads may share it."""

from __future__ import annotations

import gc
import os
import signal
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.errors import ConfigurationError
from asgi_ratelimit.limiter import SyncLimiter
from asgi_ratelimit.quotas import TokenBucket
from asgi_ratelimit.stores import MemoryStore
from asgi_ratelimit.testing import SteppedClock

QUOTA = TokenBucket(10, 3600)  # a unit comes back in six minutes


class Small:
    """A limiter over a memory store of few buckets, on a clock that is stepped by hand."""

    def __init__(self, max_keys: int = 100) -> None:
        self.clock = SteppedClock()
        self.store = MemoryStore(max_keys=max_keys, clock=self.clock)
        self.limiter = SyncLimiter(QUOTA, store=self.store)

    def spray(self, prefix: str, keys: int) -> None:
        """One request under each of many keys."""
        for number in range(keys):
            self.limiter.rate_limit(f"{prefix} {number}")

    def remaining(self, key: str) -> int:
        return self.limiter.peek(key).remaining


@pytest.mark.parametrize("max_keys", [0, -1, True, 1.5])
def test_max_keys_is_at_least_one(max_keys: Any) -> None:
    """The error quotes the number and shows a valid one."""
    with pytest.raises(ConfigurationError, match=rf"not {max_keys}: MemoryStore\(max_keys="):
        MemoryStore(max_keys=max_keys)


@pytest.mark.parametrize("max_keys", [1, 8, 50])
def test_no_more_than_max_keys_are_stored(max_keys: int) -> None:
    """However many keys come, there are never more buckets than that."""
    small, sizes = Small(max_keys), set()
    for _ in range(10):
        small.spray("key", 10 * max_keys)
        small.clock.advance(60)
        sizes.add(len(small.store))
    assert sizes == {max_keys}


def test_refused_and_peeked_keys_are_not_stored() -> None:
    """Only a bucket that was used is stored."""
    small = Small()
    small.limiter.peek("peeked")
    small.limiter.rate_limit("refused", 11)
    small.limiter.reset("reset")
    assert len(small.store) == 0


def test_a_long_key_is_not_stored() -> None:
    """However long a key is, a few bytes stand for it."""
    small = Small()
    small.limiter.rate_limit("first")
    tracemalloc.start()
    try:
        small.limiter.rate_limit("k" * 1_000_000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
    assert small.remaining("k" * 1_000_000) == 9


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_threads_take() -> None:
    """The child can use the store, although those threads do not exist there, and never end their takes."""
    store, take, is_over = MemoryStore(), Take((Charge(QUOTA, "key"),)), Event()

    def work() -> None:
        while not is_over.is_set():
            store.take((take,))

    with ThreadPoolExecutor() as threads:
        for _ in range(4):
            threads.submit(work)
        children = []
        for _ in range(5):
            child = os.fork()
            if not child:
                signal.alarm(10)
                store.take((take,))
                os._exit(0)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        is_over.set()
    assert statuses == [0] * len(children)

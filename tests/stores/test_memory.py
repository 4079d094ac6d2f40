"""The store in this process: how many buckets it holds, who may go when it is full, and that threads may share it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import pytest

from asgi_ratelimit import Blocks, Charge, ConfigurationError, MemoryStore, SyncLimiter, Take
from asgi_ratelimit.decision import Condition
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock

SHORT, LONG = TokenBucket(5, 60, name="short"), TokenBucket(100, 86_400, name="long")
KINDS = [SHORT, FixedWindow(5, 86_400, name="fixed"), RollingWindow(5, 86_400, 10, name="rolling")]


class Full:
    """A store with room for ``max_keys`` buckets."""

    def __init__(self, max_keys: int) -> None:
        self.clock = SteppedClock(1_800_000_000)
        self.store = MemoryStore(max_keys=max_keys, clock=self.clock)
        self._number = 0

    def take(self, quota: Quota, key: str, cost: float = 1) -> bool:
        return self.store.take((Take((Charge(quota, key, cost),)),))[0].allowed

    def flood(self, quota: Quota, keys: int, cost: float = 1) -> None:
        """One request under each of so many new keys."""
        for _ in range(keys):
            self._number += 1
            self.take(quota, f"flood {self._number}", cost)


@pytest.mark.parametrize("max_keys", [0, -1, True, 1.5])
def test_max_keys_is_at_least_one(max_keys: Any) -> None:
    """The error quotes the number and shows a valid one."""
    with pytest.raises(ConfigurationError, match=rf"not {max_keys}: MemoryStore\(max_keys="):
        MemoryStore(max_keys=max_keys)


def test_only_a_bucket_that_was_used_is_stored() -> None:
    """Not one that was peeked at, refused, reset, or only a condition."""
    store = MemoryStore()
    store.take((Take((Condition(SHORT, "paused"),)),))
    limiter = SyncLimiter(SHORT, store=store)
    limiter.peek("peeked")
    limiter.rate_limit("refused", 11)
    limiter.reset("reset")
    assert len(store) == 0


def test_a_long_key_is_not_stored() -> None:
    """However long a key is, a few bytes stand for it."""
    limiter = SyncLimiter(LONG, store=MemoryStore())
    limiter.rate_limit("first")
    tracemalloc.start()
    try:
        limiter.rate_limit("k" * 1_000_000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
    assert limiter.peek("k" * 1_000_000).remaining == 99


def test_quotas_that_a_function_invents_are_not_kept() -> None:
    """A client that can choose its quota does not fill the memory: only the quotas of stored buckets are needed."""
    full = Full(max_keys=100)

    def kept() -> int:
        gc.collect()
        return sum([type(each) is TokenBucket for each in gc.get_objects()])

    before = kept()
    for limit in range(1, 5001):
        assert full.take(TokenBucket(limit, 60, name="chosen"), "client")
    assert kept() - before < 2000


@pytest.mark.parametrize("quota", KINDS, ids=lambda quota: quota.name)
@pytest.mark.parametrize("max_keys", [16, 200])
def test_a_flood_with_units_left_never_removes_one_that_refuses(quota: Quota, max_keys: int) -> None:
    """However long it lasts."""
    full = Full(max_keys)
    assert full.take(quota, "victim", 5)
    full.flood(LONG, 5 * max_keys)
    assert len(full.store) == max_keys
    assert not full.take(quota, "victim")


def test_buckets_that_are_full_again_go_first() -> None:
    """They hold no information, so nothing is lost."""
    full = Full(100)
    for number in range(50):
        full.take(TokenBucket(10, 1, name="soon full"), f"soon {number}")
        full.take(LONG, f"used {number}", 60)
    full.clock.advance(1)
    full.flood(LONG, 50)
    assert all(not full.take(LONG, f"used {number}", 50) for number in range(50))


def test_the_least_used_of_a_few_goes() -> None:
    """So a bucket in use costs whoever wants to be rid of it many requests for each unit."""
    Full(1).flood(LONG, 10)  # with room for one, none is looked for among others
    full = Full(200)
    full.take(LONG, "victim", 12)
    full.flood(LONG, 2_200)
    assert not full.take(LONG, "victim", 89)


def test_a_store_in_which_all_refuse_limits_on_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """New keys are limited, too: one of those that refuse goes, and the log shows what to do."""
    full = Full(50)
    full.flood(SHORT, 150, 5)
    assert len(full.store) == 50
    assert [full.take(SHORT, "new") for _ in range(6)] == [True] * 5 + [False]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "MemoryStore(max_keys=500)" in caplog.text


class Limited(logging.Handler):
    """A handler that limits its records, each in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: list[bool] = []
        self._full = Full(10)

    def emit(self, record: logging.LogRecord) -> None:
        thread = Thread(target=lambda: self.allowed.append(self._full.take(SHORT, record.name)), daemon=True)
        thread.start()
        thread.join(30)


def test_a_handler_of_the_log_may_use_a_store() -> None:
    """From any thread: nothing is logged while others wait for the stores."""
    handler, logger = Limited(), logging.getLogger("asgi_ratelimit")
    logger.addHandler(handler)
    try:
        Full(10).flood(SHORT, 30, 5)
    finally:
        logger.removeHandler(handler)
    assert handler.allowed == [True]


@pytest.mark.anyio
async def test_a_block_stays() -> None:
    """A client that is blocked by hand stays blocked while others fill the store."""
    full = Full(300)
    blocks = Blocks(store=full.store)
    await blocks.block("bad", "10 minutes")
    full.flood(LONG, 1_500)
    assert await blocks.blocked_for("bad") > 590


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_threads_take() -> None:
    """The child can use the store, although those threads do not exist there, and never end their takes."""
    store, take, is_over = MemoryStore(), Take((Charge(SHORT, "key"),)), Event()

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

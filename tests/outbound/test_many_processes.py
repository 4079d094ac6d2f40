"""Many processes that share buckets in Redis: no process, and no service that they call, sees too many calls."""

from __future__ import annotations

from itertools import pairwise

import pytest
import redis

from tests.support.callers import Call, run_callers
from tests.support.requesters import run_requesters
from tests.support.server import Uvicorn

EARLY = 0.005
"""The most seconds by which a call may be early."""

LONG = pytest.mark.long
"""Only these ask how much of the quota is used: on a machine that is busy with other work, that may be little."""


def require_promises(calls: list[Call], interval: float) -> None:
    """No slot has two callers, slots keep their distance, and no call is early."""
    slots = sorted(call.ready_at for call in calls)
    assert all(later - earlier >= interval - 1e-6 for earlier, later in pairwise(slots))
    assert all(call.start >= call.ready_at - EARLY for call in calls)


@pytest.mark.parametrize(("seconds", "used"), [(2.0, 0.0), pytest.param(10.0, 0.98, marks=LONG)])
def test_four_processes_of_fifty_callers(redis_url: str, seconds: float, used: float) -> None:
    """At 200/s: within the quota, none early, in order within a process, and every key in Redis expires."""
    calls = run_callers(redis_url, "200/s", seconds=seconds, processes=4, tasks=50, threads=0)
    require_promises(calls, 1 / 200)
    with redis.Redis.from_url(redis_url) as store:
        assert all(store.pttl(key) != -1 for key in store.scan_iter())  # one may go meanwhile
    for process in range(4):
        numbers = [call.number for call in calls if call.process == process]
        assert 0 < len(numbers) == len(set(numbers))
        assert numbers == sorted(numbers)
    slots = [call.ready_at for call in calls]
    assert len(slots) >= used * 200 * (max(slots) - min(slots))


@pytest.mark.parametrize(("seconds", "used"), [(2.0, 0.0), pytest.param(10.0, 0.95, marks=LONG)])
def test_a_service_with_the_same_quota_never_refuses(redis_url: str, seconds: float, used: float) -> None:
    """Three processes, of httpx and httpx2, with and without ``async``, at exactly its rate."""
    with Uvicorn("tests.support.limited_app:app", env={"QUOTA": "50/s"}) as server:
        answers = run_requesters(server.url, redis_url, "50/s", seconds)
    assert {status for status, _ in answers} == {200}
    times = [at for _, at in answers]
    assert len(times) >= used * 50 * (max(times) - min(times))

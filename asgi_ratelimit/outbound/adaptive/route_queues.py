"""Queues of routes: which bucket a route with waiting requests waits for, and who is admitted when it is ready.

A route with waiting requests always waits for exactly one bucket. The first request in the queue of a bucket always
tries again when that bucket is ready, which is a finite time. So no request waits forever.

Times are microseconds. No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math

from .queued_requests import Call, Host, Route
from .server_buckets import Bucket


def join(call: Call, now_us: float, *, is_first: bool) -> None:
    """Admit a request, or let it wait behind all others of its route, or, if it ``is_first``, before them."""
    route = call.route
    if not route.queue:
        blocked = _blocked_by(call.host, route, now_us)
        if blocked is None:
            _admit(call, now_us)
            return
        route.queue[call] = None
        _wait_for(route, blocked, now_us)
        return
    route.queue[call] = None
    if is_first:
        route.queue.move_to_end(call, last=False)
        _set_wake_up(route.waits_for, now_us)
    else:
        call.wake(math.inf)


def leave(call: Call, now_us: float) -> None:
    """Let a request wait no more, if it does; the next one of its route takes its place."""
    route = call.route
    if route.queue.pop(call, call) is None:
        waited_for = route.waits_for
        if not route.queue:
            _stop_waiting(route)
        _set_wake_up(waited_for, now_us)


def release(host: Host, bucket: Bucket, now_us: float) -> None:
    """Admit requests that wait for a bucket as long as it is ready, one of each route in turn."""
    while bucket.waiting and bucket.ready_at(now_us) <= now_us:
        route = next(iter(bucket.waiting))
        _stop_waiting(route)
        blocked = _blocked_by(host, route, now_us)
        if blocked is None:
            _admit(route.queue.popitem(last=False)[0], now_us)
            if route.queue:
                _wait_for(route, _blocked_by(host, route, now_us) or bucket, now_us)
        else:
            _wait_for(route, blocked, now_us)
    _set_wake_up(bucket, now_us)


def wait_elsewhere(host: Host, route: Route, now_us: float) -> None:
    """Let a route wait for a bucket that it needs, after an answer has reported another one."""
    waited_for = route.waits_for
    if waited_for is not None and waited_for not in route.needed(host):
        _stop_waiting(route)
        _set_wake_up(waited_for, now_us)
        _wait_for(route, _blocked_by(host, route, now_us) or route.pioneer_bucket, now_us)
        release(host, route.pioneer_bucket, now_us)


def _blocked_by(host: Host, route: Route, now_us: float) -> Bucket | None:
    """The bucket that a route has to wait for the longest."""
    blocked, latest_us = None, now_us
    for bucket in route.needed(host):
        ready_us = bucket.ready_at(now_us)
        if ready_us > latest_us:
            blocked, latest_us = bucket, ready_us
    return blocked


def _admit(call: Call, now_us: float) -> None:
    """Let a request go: all buckets that it needs count it."""
    needed = call.route.needed(call.host)
    call.admitted = [(bucket, bucket.admit(now_us)) for bucket in needed]
    call.is_admitted = True
    call.wake(0.0)


def _wait_for(route: Route, bucket: Bucket, now_us: float) -> None:
    """Let a route wait for a bucket, behind the other routes that do."""
    route.waits_for = bucket
    bucket.waiting[route] = None
    _set_wake_up(bucket, now_us)


def _stop_waiting(route: Route) -> None:
    """Let a route wait for no bucket; one with waiting requests has to wait for another one then."""
    bucket, route.waits_for = route.waits_for, None
    if bucket is not None:
        bucket.waiting.pop(route, None)


def _set_wake_up(bucket: Bucket | None, now_us: float) -> None:
    """Let the first request that waits for a bucket try again when the bucket is ready."""
    if bucket is not None and bucket.waiting:
        first = next(iter(next(iter(bucket.waiting)).queue))
        first.wake(bucket.ready_at(now_us))

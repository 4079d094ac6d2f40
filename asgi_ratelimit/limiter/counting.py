"""Counts the decisions of limiters, paced calls and transports, and has them published."""

from __future__ import annotations

import os
from asyncio import _get_running_loop

from ..clock import SystemClock
from ..counts import counts_of, publish, publish_on, reset_publishers
from ..decision import Decision
from ..stores import Store
from ..waiting import background_loop


def count(store: Store, decision: Decision) -> None:
    """Count a decision for the names of its charges."""
    counts_of(store).count((decision,))
    publish_counts(store)


class CallCounts:
    """Counts the calls of one name on a store; for calls with one charge, this costs hardly anything."""

    __slots__ = ("_needs_event_loop", "_store", "of_all", "rule")

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._needs_event_loop = store.in_process
        self.of_all = counts_of(store)
        self.rule = self.of_all[name]

    def count(self, decision: Decision) -> None:
        """Count a decision."""
        is_plain = decision.allowed and not (decision.degraded or decision.shadow)
        if is_plain and len(decision.take.charges) == 1:
            self.count_admitted(decision.take.charges[0].bucket)
        else:
            count(self._store, decision)

    def count_admitted(self, bucket: str) -> None:
        """Count an admitted call with one charge."""
        self.rule.requests.append(bucket)
        self.rule.admitted += 1
        if not self.of_all.is_published and (not self._needs_event_loop or _get_running_loop() is not None):
            publish_counts(self._store)


def publish_counts(store: Store, *, by_app: bool = False) -> None:
    """Publish the counts, queues and learned limits of this process once a second from now on.

    For a remote store, the background loop publishes, which also watches the overrides, because an event loop of the
    program may end early. For a store in memory, the running event loop publishes. Without a running event loop, the
    reader of the figures publishes them first. So it does with a stepped clock, which publishing must not move on,
    unless an app asks for it with ``by_app``.
    """
    counts = counts_of(store)
    if counts.is_published and not by_app:  # the event loop of an app may be another one than before
        return
    is_real_time = isinstance(store.clock or SystemClock(), SystemClock)
    if not (is_real_time or by_app):
        counts.is_published = True
    elif store.in_process or not is_real_time:
        publish(store)
    else:
        publish_on(store, background_loop.loop())


os.register_at_fork(after_in_child=reset_publishers)

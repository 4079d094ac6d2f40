"""Counts the decisions of limiters, paced calls and transports, and has them published."""

from __future__ import annotations

import os

from ..clock import SystemClock
from ..counts import counts_of, publish, publish_on, reset_publishers
from ..decision import Decision
from ..stores import Store
from ..waiting import background_loop


def count(store: Store, decision: Decision) -> None:
    """Count a decision for the names of its charges."""
    counts_of(store).count((decision,))
    publish_counts(store)


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

"""What a transport learns, as events for hooks, and as lines of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ...errors import ConfigurationError
from ...hooks import ChangeHook, ChangeKind, LimitChange
from ...logs import FailureLog
from ...quotas import SECOND_US
from .server_buckets import Bucket, known

logger = logging.getLogger("asgi_ratelimit")


class Changes:
    """Logs changes, and calls hooks with them. An exception of a hook is logged; requests go on.

    Raises ``ConfigurationError`` for anything but hooks.
    """

    def __init__(self, hooks: Iterable[ChangeHook], now_us: Callable[[], float]) -> None:
        if not isinstance(hooks, Iterable) or isinstance(hooks, str):
            raise ConfigurationError(
                f"hooks must be a list of functions of a LimitChange, not {hooks!r}: hooks=[print]"
            )
        self._hooks = tuple(hooks)
        self._now_us = now_us
        self._failures = FailureLog()
        for hook in self._hooks:
            if not callable(hook):
                raise ConfigurationError(f"a hook is a function of a LimitChange, not {hook!r}: hooks=[print]")

    def __call__(self, host: str, bucket: Bucket, kind: ChangeKind, text: str) -> None:
        """Report a change."""
        logger.info("%s: %s: %s", host, bucket.name, text)
        if not self._hooks:
            return
        paused_for = bucket.paused_us(self._now_us()) / SECOND_US
        change = LimitChange(host, bucket.name, kind, text, known(bucket.limit), bucket.remaining, paused_for)
        for hook in self._hooks:
            try:
                hook(change)
            except Exception as error:  # noqa: BLE001  # the hook is the user's, and may raise anything
                self._failures.report(f"the hook {hook!r} failed", error)

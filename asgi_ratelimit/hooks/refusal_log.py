"""A hook that logs refusals: a few lines for each rule, with fields that machines read, and a count of the rest."""

from __future__ import annotations

import logging
import math

from ..argument_errors import checked_flag, shows_use
from ..clock import Clock, monotonic_us
from ..decision import is_outage
from ..errors import ConfigurationError
from ..quotas import SECOND_US
from .events import Event

MAX_RULES = 200
"""The most rules that have lines of their own; all others share some."""

OTHER = "other"

logger = logging.getLogger("asgi_ratelimit.refusals")


class log_refusals:  # noqa: N801  # a function to its users
    """A hook that logs refused requests and calls, at most one line for each rule in ``every`` seconds.

    A line says how many more were refused since the previous one. Its fields, for logs that machines read, are
    ``rule``, ``quota``, ``route``, ``method``, ``retry_after`` in seconds, and ``unlogged``; and ``key``, only with
    ``keys``. The logger is ``asgi_ratelimit.refusals``. A ``clock`` replaces the machine's. A request that only shadow
    rules refuse passes, and is not logged. During an outage of the store, the line says so, and ``quota`` is ``None``.
    Raises ``ConfigurationError`` for an ``every`` that is not a number of seconds, and for a ``level`` that ``logging``
    does not have.
    """

    @shows_use("log_refusals(every=1.0)")
    def __init__(
        self, *, level: int = logging.WARNING, keys: bool = False, every: float = 1.0, clock: Clock | None = None
    ) -> None:
        if not isinstance(every, (int, float)) or not 0 <= every < math.inf:
            raise ConfigurationError(f"every must be seconds from 0 up, not {every!r}: log_refusals(every=1.0)")
        if not isinstance(level, int):
            raise ConfigurationError(f"level must be one of logging, not {level!r}: log_refusals(level=logging.INFO)")
        self._level = level
        self._keys = checked_flag("keys", keys)
        self._every_us = every * SECOND_US
        self._now_us = monotonic_us if clock is None else clock.now_us
        self._rules: dict[str, tuple[float, int]] = {}

    def __repr__(self) -> str:
        return f"log_refusals(level={self._level}, keys={self._keys}, every={self._every_us / SECOND_US:g})"

    def __call__(self, event: Event) -> None:
        """Log a refusal, unless its rule had a line less than ``every`` seconds ago."""
        if event.result != "refused" or not logger.isEnabledFor(self._level):
            return
        rule, now_us = event.rule, self._now_us()
        if rule not in self._rules and len(self._rules) >= MAX_RULES:
            rule = OTHER
        logged_us, unlogged = self._rules.get(rule, (-math.inf, 0))
        if now_us - logged_us < self._every_us:
            self._rules[rule] = logged_us, unlogged + 1
            return
        self._rules[rule] = now_us, 0
        is_out, retry_after = is_outage(event.decision), event.decision.retry_after
        fields = {
            "rule": event.rule,
            "quota": None if is_out else event.quota.name,
            "route": event.route,
            "method": event.method,
            "retry_after": None if retry_after == math.inf else round(retry_after, 3),
            "unlogged": unlogged,
        }
        if self._keys:
            fields["key"] = event.key
        why = ", because the store is out" if is_out else ""
        text = " ".join([f"{name}={value!r}" for name, value in fields.items() if value is not None])
        logger.log(self._level, "refused%s: %s", why, text, extra=fields)

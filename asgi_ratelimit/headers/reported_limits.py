"""Limits of an answer, read by the entries of a profile.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Container

from ..profiles.definitions import LimitHeaders
from ..profiles.source_syntax import Sources
from .answer_sources import Answer
from .ietf_drafts import first_number, policies_in, with_policies
from .server_limits import ServerLimit
from .value_parsing import number, seconds_until

MAX_UNITS = 1e15
"""A larger number of units is no limit."""

MAX_WINDOW = 10 * 366 * 86_400.0
"""A longer window, in seconds, is no window."""


def limits_of(
    answer: Answer, entry: LimitHeaders, server_now: float | None, *, without: Container[str] = ()
) -> list[ServerLimit]:
    """The limits that an entry finds in an answer: none, one, or one for each name that ``{name}`` stands for.

    Limits with names in ``without`` are left out.
    """
    names = answer.names(entry.templates) if "{name}" in entry.name else [""]
    new = [name for name in names if entry.name.replace("{name}", name) not in without]
    return [limit for name in new for limit in _Reader(answer, entry, name).limits(server_now)]


class _Reader:
    """Reads one limit of an answer by an entry of a profile, and a name for ``{name}``."""

    __slots__ = ("_answer", "_entry", "_name")

    def __init__(self, answer: Answer, entry: LimitHeaders, name: str) -> None:
        self._answer = answer
        self._entry = entry
        self._name = name

    def limits(self, server_now: float | None) -> list[ServerLimit]:
        """The limit, and others that are stated beside it; none if the answer states no units."""
        entry, (limit, remaining) = self._entry, self._units()
        policies = policies_in(self._answer.text(entry.policies, self._name))
        if limit is None and remaining is None and not policies:
            return []
        main = ServerLimit(
            name=entry.name.replace("{name}", self._name),
            limit=limit,
            remaining=remaining,
            window=self._window(),
            reset_after=self._reset_after(server_now),
            reset_means=entry.reset_means,
            refill=self._refill(),
            cost=self._number(entry.cost),
            unit=entry.unit.replace("{name}", self._name),
            bucket=self._answer.text(entry.bucket, self._name),
            scope=entry.scope,
        )
        return with_policies(main, policies)

    def _units(self) -> tuple[float | None, float | None]:
        """The limit, and what remains of it, which is 0 if the server counts below 0."""
        entry = self._entry
        limit, remaining = self._limit(), self._number(entry.remaining)
        used, utilization = self._number(entry.used), self._number(entry.utilization)
        if utilization is not None:
            limit, remaining = 1.0, 1.0 - utilization
        if remaining is None and limit is not None and used is not None:
            remaining = limit - used
        if limit is None and remaining is not None and used is not None:
            limit = max(remaining, 0.0) + used
        if entry.exhausted is not None and self._answer.has(entry.exhausted, self._name):
            remaining = 0.0
        return limit, None if remaining is None else max(remaining, 0.0)

    def _limit(self) -> float | None:
        """The limit, which may be the first of a list of policies; a number below 0 is no limit."""
        limit = self._number(self._entry.limit)
        if limit is None and self._entry.policies:
            limit = first_number(self._answer.text(self._entry.limit, self._name))
        return limit if limit is not None and limit >= 0 else None

    def _number(self, sources: Sources) -> float | None:
        """The first text that is a number, within reason."""
        if not sources:
            return None
        text = self._answer.headers.get(sources) if type(sources) is str and not self._name else None
        if text is not None:  # a shortcut for nearly all answers
            units = number(text)
            return units if units is not None and abs(units) <= MAX_UNITS else None
        values = map(number, self._answer.texts(sources, self._name))
        return next((value for value in values if value is not None and abs(value) <= MAX_UNITS), None)

    def _window(self) -> float | None:
        scale = 1000.0 if self._entry.window_unit == "ms" else 1.0
        window = self._number(self._entry.window)
        return window / scale if window is not None and 0 < window / scale <= MAX_WINDOW else None

    def _refill(self) -> float | None:
        """Units that come back each second."""
        units, seconds = self._number(self._entry.refill), self._number(self._entry.refill_every)
        return units / seconds if units and seconds and units > 0 and seconds > 0 else None

    def _reset_after(self, server_now: float | None) -> float | None:
        texts = self._answer.texts(self._entry.reset, self._name)
        waits = (seconds_until(text, self._entry.reset_unit, server_now) for text in texts)
        return next((wait for wait in waits if wait is not None), None)

"""The lines of a bill: what a request is charged where a rule, or the middleware's own quota, applies."""

from __future__ import annotations

import inspect
import logging
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection

from ..decision import Charge, OnError, checked_cost
from ..keys.request_keys import KeyFunction, ScopeKey
from ..limiter import as_key
from ..quota_text import QuotaLike, as_quotas, parse_quotas
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .penalties.penalty import Penalty
from .rules import CostFunction, QuotaFunction, SettleFunction

logger = logging.getLogger("asgi_ratelimit")

Asked: TypeAlias = tuple[str | None, tuple[Quota, ...], float]
"""What a line's functions have answered: its key, if it has one, the quotas to charge, and the cost."""

NOTHING: Asked = (None, (), 1)

Answers: TypeAlias = dict[int, Any]
"""What functions have answered for a request, by their identity: each is asked once."""


class Denied(Exception):
    """Raised within the package where a function failed and its rule says that nobody may pass then."""


@dataclass(slots=True, eq=False)
class Line:
    """What a request is charged to where a rule, or the middleware's own quota, applies: one line of its bill."""

    name: str
    quota: tuple[Quota, ...] | QuotaFunction
    key: KeyFunction
    cost: float | CostFunction = 1
    _: KW_ONLY
    shadow: bool = False
    on_error: OnError | None = None
    penalty: Penalty | None = None
    messages: tuple[Quota, ...] = ()
    """Quotas for what comes in over a WebSocket."""
    settle: SettleFunction | None = None
    counts: bool = False
    """Whether ``settle`` asks for the bytes that were sent."""
    failed: bool = field(init=False, default=False)
    """Whether one of its functions has failed, which is logged once."""

    @property
    def is_plain(self) -> bool:
        """Whether the scope alone tells what it comes to, without asking any function of the user's."""
        return isinstance(self.key, ScopeKey) and not callable(self.quota) and not callable(self.cost)

    def plainly(self, key: str | None) -> Asked:
        """What a plain line comes to, whose functions need not be asked."""
        assert not callable(self.quota)
        assert not callable(self.cost)
        return key, self.quota, self.cost

    async def ask(self, connection: HTTPConnection, answers: Answers) -> Asked:
        """What the functions answer; no quota where one of them says that it does not apply."""
        key = await _answer(self.key, connection, answers)
        if key is None:
            return NOTHING
        quota = await _answer(self.quota, connection, answers) if callable(self.quota) else self.quota
        cost = await _answer(self.cost, connection, answers) if callable(self.cost) else self.cost
        key = as_key(key)
        if quota is None or cost == 0:
            return key, (), 1
        asked = key, quotas_of(quota) if callable(self.quota) else quota, checked_cost(cost)
        hash(asked)  # by which the bill is found again: a cost such as an array is told of here, where it can be
        return asked

    def charges(self, asked: Asked) -> tuple[Charge, ...]:
        """One charge for each quota."""
        key, quotas, cost = asked
        return () if key is None else tuple([Charge(quota, key, cost, self.name) for quota in quotas])

    def fail_to_settle(self, error: Exception) -> None:
        """Log once that the settle function of this line has failed."""
        self._log_once("requests stay charged as they were", error)

    def fail(self, error: Exception) -> None:
        """Log once that a function of this line has failed; raises ``Denied`` where nobody may pass then."""
        passes = "refused" if self.on_error == "deny" else "let through without it"
        self._log_once(f"requests are {passes}", error)
        if self.on_error == "deny":
            raise Denied from error

    def _log_once(self, outcome: str, error: Exception) -> None:
        if not self.failed:
            self.failed = True
            logger.error("a function of the rule %r failed, %s: %r", self.name, outcome, error, exc_info=error)


async def _answer(function: Any, connection: HTTPConnection, answers: Answers) -> Any:
    identity = id(function)
    if identity not in answers:
        answer = function(connection)
        answers[identity] = await answer if inspect.isawaitable(answer) else answer
    return answers[identity]


def quotas_of(quota: QuotaLike) -> tuple[Quota, ...]:
    """``as_quotas``, fast for what a function answers again and again."""
    if isinstance(quota, str):
        return _parsed(quota)
    return (quota,) if isinstance(quota, (TokenBucket, FixedWindow, RollingWindow)) else as_quotas(quota)


_parsed = lru_cache(maxsize=1024)(lambda text: as_quotas(parse_quotas(text)))

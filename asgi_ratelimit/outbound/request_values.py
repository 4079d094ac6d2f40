"""Keys and costs of requests, as values or as functions of the request, their charges, and their actual costs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from ..decision import Charge, Decision, Take, max_wait_of
from ..errors import ConfigurationError
from ..hooks import Failure
from ..limiter.limiter import Limiter
from ..limiter.live_quotas import Cost, Key, charged_units
from ..logs import FailureLog
from ..quota_text import readable
from ..stores import settle
from ..waiting.drivers import Flow, GiveBack
from ..waiting.queues import Waiter

# A key, or a function of the request; or one of these for each quota, by name.
KeyOfRequest: TypeAlias = Key | Callable[[Any], Key | None] | Mapping[str, str | bytes | Callable[[Any], str | bytes]]

# A cost, or a function of the request; or one of these for each quota, by name.
CostOfRequest: TypeAlias = Cost | Callable[[Any], Cost] | Mapping[str, float | Callable[[Any], float]]

Oversize: TypeAlias = Literal["wait", "raise"]

# The options of one request: ``extensions={"pace": {"cost": 3}}``.
OPTIONS = ("key", "cost", "max_delay")


@dataclass(slots=True)
class PacedRequest:
    """A request, what it takes, its resolved ``cost``, and the progress of its sending.

    ``deadline_us`` is on the sender's clock. ``spent`` is the latest take, while it may still be settled.
    """

    request: Any
    take: Take
    cost: Cost
    deadline_us: float = math.inf
    attempts: int = 0
    waited_us: float = 0.0
    spent: Take | None = None
    place: Waiter | Decision | None = None
    """Its place among the concurrent requests of its key."""

    @property
    def key(self) -> str:
        """The key whose concurrency and pauses apply: that of its first charge."""
        return self.take.charges[0].key


class RequestValues:
    """The key, cost and longest wait of the requests of one limiter; ``oversize`` is for a cost above the burst.

    Raises ``ConfigurationError``, ``ValueError`` or ``TypeError`` for arguments that can never be right.
    """

    def __init__(
        self, limiter: Limiter, key: KeyOfRequest, cost: CostOfRequest, max_delay: float | None, oversize: Oversize
    ) -> None:
        if oversize not in ("wait", "raise"):
            raise ConfigurationError(f'oversize must be "wait" or "raise", not {oversize!r}: oversize="raise"')
        self._limiter = limiter
        self._refuses_oversize = oversize == "raise"
        self._key, self._cost = key, cost
        self._max_wait = max_wait_of(max_delay)
        charges = limiter.charges(resolved(key, partial(tried, "key", "")), resolved(cost, partial(tried, "cost", 1)))
        Take(charges, self._max_wait)
        self._require_within_burst(charges)

    def paced(self, request: Any, own: Any) -> PacedRequest | None:
        """A request with its ``own`` options, and its charges; ``None`` for one whose key is ``None``.

        Functions get the request of the client: a request of another client than httpx has it as its ``original``.
        Raises ``ValueError`` for options and costs that are not valid, and any error that a function of the user
        raises.
        """
        key, cost, max_wait = self._key, self._cost, self._max_wait
        if own is not None:
            if not isinstance(own, Mapping) or not set(own).issubset(OPTIONS):
                right = 'extensions={"pace": {"cost": 3, "key": "other"}}'
                raise ValueError(f'"pace": {own!r} is not understood: {right}')
            key, cost = own.get("key", key), own.get("cost", cost)
            max_wait = max_wait_of(own["max_delay"]) if "max_delay" in own else max_wait
        original = getattr(request, "original", request)
        key = resolved(key, lambda function: function(original))
        if key is None:
            return None
        cost = resolved(cost, lambda function: function(original))
        charges = self._limiter.charges(key, cost)
        self._require_within_burst(charges)
        return PacedRequest(request, Take(charges, max_wait), cost)

    def _require_within_burst(self, charges: tuple[Charge, ...]) -> None:
        for charge in charges if self._refuses_oversize else ():
            if charge.cost > charge.quota.most:
                most = f"the {charge.quota.most:g} units that {readable(charge.quota)} admits at once"
                right = 'split the request, raise the burst, or let it wait for a full bucket, oversize="wait"'
                raise ValueError(f"a cost of {charge.cost!r} is above {most}: {right}")


def resolved(given: Any, result_of: Callable[[Callable[[Any], Any]], Any]) -> Any:
    """``given`` with the results of the functions in it, instead of these."""
    if isinstance(given, Mapping):
        return {name: result_of(part) if callable(part) else part for name, part in given.items()}
    return result_of(given) if callable(given) else given


def tried(what: str, result: Any, function: Any) -> Any:
    """``result`` for that of a function that is not called yet; ``ConfigurationError`` if it returns a coroutine."""
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{what} cannot be async, as {function!r} is: {what}=lambda account: account.id")
    return result


# Actual costs


@dataclass(slots=True)
class Answer:
    """What ``settle`` receives: the names of ``headers`` are in lower case, and ``body`` is as it was transferred."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes = b""


# Maps an ``Answer`` to the actual cost, one number for all quotas or one for each quota by name; ``None`` leaves the
# charge. With the attribute ``reads_body = True`` it is called when the body is closed, otherwise when the headers
# come.
Settle: TypeAlias = Callable[[Any], Cost | None]


class Settler:
    """Settles requests, and never makes one fail: an error is logged, at most once a minute, and the charge stands.

    ``cost`` may have a method ``learn(request, charged, actual)``, or be a mapping of quotas whose costs have one. It
    is called after each settlement of a request that was not refused, and did not fail.
    """

    def __init__(self, function: Settle, cost: CostOfRequest, limiter: Limiter) -> None:
        if not callable(function) or inspect.iscoroutinefunction(function):
            what = "a function of an answer, without async"
            raise ConfigurationError(f"settle is {what}, not {function!r}: settle=openai_usage")
        self.reads_body = getattr(function, "reads_body", False) is True
        self._function = function
        self._cost = cost
        self._limiter = limiter
        self._log = FailureLog()

    def settle(self, paced: PacedRequest, decision: Decision, response: Any, body: bytes) -> Flow[None]:
        """Settle the decision of a request at the cost of its answer."""
        store, charged = self._limiter.store, charged_units(decision)
        try:
            actual = self._function(Answer(response.status_code, response.headers, body))
            if actual is None:
                return
            live = self._limiter.live
            if isinstance(paced.cost, Mapping):
                units = live.actual_units(decision, actual, charged)
            else:  # of all charges, although a refusal may have slowed one of equal costs down
                units = live.settled_units(decision, actual, charged)
            if units != charged:
                yield GiveBack(store, partial(settle, store, decision, units))
            if response.status_code < 400:  # a refusal uses nothing, and says nothing of what requests use
                self._learn(getattr(paced.request, "original", paced.request), paced.cost, actual)
        except Exception as error:  # noqa: BLE001  # the functions are the user's; an answer that has come is never lost
            name = self._limiter.name
            self._log.report(f"settle= of {name!r} failed, so the charge stands", error)
            self._limiter.hooks.failed(Failure(name, "settle", error))

    def _learn(self, request: Any, charged: Cost, actual: Cost) -> None:
        learn = getattr(self._cost, "learn", None)
        if callable(learn):
            learn(request, charged, actual)
        for name, part in self._cost.items() if isinstance(self._cost, Mapping) else ():
            learn = getattr(part, "learn", None)
            units = actual.get(name) if isinstance(actual, Mapping) else actual
            if callable(learn) and isinstance(charged, Mapping) and name in charged and units is not None:
                learn(request, charged[name], units)

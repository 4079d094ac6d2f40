"""Keys and costs of requests, as values or as functions of the request, and the charges that they stand for."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ...decision import Charge, Take, max_wait_of
from ...errors import ConfigurationError
from ...keys.base import PathKey, ScopeKey
from ...limiter import Cost, Key, Limiter
from ...quota_text import readable
from ...waiting import Slot

KeyOfRequest: TypeAlias = Key | Callable[[Any], Key | None] | Mapping[str, str | bytes | Callable[[Any], str | bytes]]
"""A key, or a function of the request; or one of these for each quota, by name."""

CostOfRequest: TypeAlias = Cost | Callable[[Any], Cost] | Mapping[str, float | Callable[[Any], float]]
"""A cost, or a function of the request; or one of these for each quota, by name."""

Oversize: TypeAlias = Literal["wait", "raise"]

OPTIONS = ("key", "cost", "max_delay")
"""The options of one request: ``extensions={"pace": {"cost": 3}}``."""


@dataclass(slots=True)
class PacedRequest:
    """A request, its charges, the longest wait in seconds, its resolved ``cost``, and the progress of its sending.

    ``deadline_us`` is on the sender's clock. ``spent`` is the latest take, while it may still be settled.
    """

    request: Any
    charges: tuple[Charge, ...]
    max_wait: float
    cost: Cost
    deadline_us: float = math.inf
    attempts: int = 0
    waited_us: float = 0.0
    spent: Take | None = None
    place: Slot | None = None
    """Its place among the concurrent requests of its key."""

    @property
    def key(self) -> str:
        """The key whose concurrency and pauses apply: that of its first charge."""
        return self.charges[0].key


class RequestValues:
    """The key, cost and longest wait of the requests of one limiter; ``oversize`` is for a cost above the burst.

    Raises ``ConfigurationError``, ``ValueError`` or ``TypeError`` for arguments that can never be right.
    """

    def __init__(
        self,
        limiter: Limiter,
        key: KeyOfRequest,
        cost: CostOfRequest,
        max_delay: float | None,
        oversize: Oversize,
    ) -> None:
        if oversize not in ("wait", "raise"):
            raise ConfigurationError(f'oversize must be "wait" or "raise", not {oversize!r}: oversize="raise"')
        require_functions_of_request("key", key)
        require_functions_of_request("cost", cost)
        self._limiter = limiter
        self._live = limiter.live
        self._refuses_oversize = oversize == "raise"
        self.cost = cost
        self._key_of, self._cost_of = _of_request(key), _of_request(cost)
        self._max_wait = max_wait_of(max_delay)
        charges = limiter.charges(_sample(key, ""), _sample(cost, 1))
        Take(charges, self._max_wait)
        self._require_within_burst(charges)

    def paced(self, request: Any, own: Any) -> PacedRequest | None:
        """A request with its ``own`` options, and its charges; ``None`` for one whose key is ``None``.

        Functions get the request of the client: a request of another client than httpx has it as its ``original``.
        Raises ``ValueError`` for options and costs that are not valid, and any error that a function of the user
        raises.
        """
        original = getattr(request, "original", request)
        key, cost, max_wait = self._key_of, self._cost_of, self._max_wait
        if own is not None:
            key, cost, max_wait = self._with_own(own)
        if callable(key):
            key = key(original)
        if key is None:
            return None
        if callable(cost):
            cost = cost(original)
        charges: tuple[Charge, ...]
        quotas = self._live.quotas
        if len(quotas) == 1 and type(key) is str and type(cost) in (int, float):
            charges = (Charge(quotas[0], key, cost, self._limiter.name),)
        else:
            charges = self._limiter.charges(key, cost)
        if self._refuses_oversize:
            self._require_within_burst(charges)
        return PacedRequest(request, charges, max_wait, cost)

    def _with_own(self, own: Any) -> tuple[Any, Any, float]:
        if not isinstance(own, Mapping) or not set(own).issubset(OPTIONS):
            raise ValueError(f'"pace": {own!r} is not understood: extensions={{"pace": {{"cost": 3, "key": "other"}}}}')
        max_wait = max_wait_of(own["max_delay"]) if "max_delay" in own else self._max_wait
        key = _of_request(own["key"]) if "key" in own else self._key_of
        cost = _of_request(own["cost"]) if "cost" in own else self._cost_of
        return key, cost, max_wait

    def _require_within_burst(self, charges: tuple[Charge, ...]) -> None:
        for charge in charges if self._refuses_oversize else ():
            if charge.cost > charge.quota.most:
                raise ValueError(
                    f"a cost of {charge.cost!r} is above the {charge.quota.most:g} units that {readable(charge.quota)} "
                    "admits at once: split the request, raise the burst, or let it wait for an empty bucket, "
                    'oversize="wait"'
                )


def _of_request(given: Any) -> Any:
    """A value, or a function of the request if any function is in it."""
    if not isinstance(given, Mapping) or not any(map(callable, given.values())):
        return given
    return lambda request: {name: part(request) if callable(part) else part for name, part in given.items()}


def _sample(given: Any, stand_in: Any) -> Any:
    """``given``, with a stand-in for everything that depends on the request."""
    if isinstance(given, Mapping):
        return {name: stand_in if callable(part) else part for name, part in given.items()}
    return stand_in if callable(given) else given


def require_functions_of_request(what: str, given: Any) -> None:
    """Raise ``ConfigurationError`` if a key or a cost has a function in it that cannot be one of a request."""
    for part in given.values() if isinstance(given, Mapping) else (given,):
        if isinstance(part, ScopeKey | PathKey):
            raise ConfigurationError(
                f"{what}={part!r} reads requests that come in, and this is for calls that go out: "
                f'{what}=lambda request: request.headers["x-api-key"]'
            )
        if callable(part):
            require_function_of_one(what, part, "request", f"{what}=lambda request: ...")


def require_function_of_one(what: str, function: Callable[..., Any], of: str, example: str) -> None:
    """Raise ``ConfigurationError`` for a function that cannot be called with one argument."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise ConfigurationError(f"{what}={function!r} is async, and clients without async need it as well: {example}")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigurationError(f"{what}={function!r} does not take the {of} alone ({error}): {example}") from error
    except ValueError:  # a function of C without a signature
        pass

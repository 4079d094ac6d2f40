"""``limits(request)``: the limits of a request, inside its endpoint.

Annotations are evaluated, not strings: FastAPI reads them, so that ``Depends(limits)`` works.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from starlette.requests import HTTPConnection

from ..argument_errors import checked_flag, shows_use
from ..decision import Charge, Decision, Take, checked_actual
from ..errors import ConfigurationError, StoreError
from ..logs import warn_once
from ..overrides import names_of_limits
from ..quota_text import RESERVED_NAMES
from ..stores import Store, settle
from ..stores.name_owners import owned
from .delays import Taken
from .plan import in_parts
from .refusals import RateLimited
from .request_limits import RequestLimits, request_limits

_CHARGE = 'await limits(request).charge(3, name="login")'
_REFUND = 'await limits(request).refund(3, name="login")'
_SETTLE = 'await limits(request).settle(3, name="login")'


class Limits:
    """What a request was charged, and how to charge more or to give back.

    ``name`` narrows a method down to the charges of one rule, dependency or middleware, or of one quota. ``charge``
    also works for a request to which no limit applies, and charges nothing. A ``name`` that no limit has is logged
    once.
    """

    def __init__(self, connection: HTTPConnection, request_limits: RequestLimits) -> None:
        self._connection = connection
        self._request_limits = request_limits

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions on this request, in order."""
        return tuple(self._request_limits.decisions)

    @property
    def decision(self) -> Decision | None:
        """The decision with the least left; ``None`` if no limit applies."""
        return min(self._request_limits.decisions, key=lambda each: each.remaining, default=None)

    @shows_use(_CHARGE)
    async def charge(self, cost: float = 1, *, name: str | None = None, required: bool = True) -> bool:
        """Take ``cost`` more units of each charge of this request, all or nothing; ``True`` if they were taken.

        Raises ``RateLimited`` where they do not fit. The request is then answered with 429, also where a framework
        makes something else of the error, or somebody catches it. With ``required=False`` nothing is raised: it returns
        ``False``, and the answer is up to the endpoint. What was charged before stays charged. A cost of 0 charges
        nothing. Raises ``ValueError`` for a cost that is not a finite number from 0 up, and ``ConfigurationError`` for
        a ``required`` that is not ``True`` or ``False``, or a ``name`` that is no text.
        """
        enforcer = self._request_limits.enforcer
        checked_flag("required", required)
        units = _checked_units(cost, _CHARGE)
        self._check_name("charge", name, _CHARGE)
        taken: list[Taken] = []
        takes = self._takes(units, name) if units else []
        for store, take in takes:
            decision = await enforcer.take_more(store, take, self._connection.scope, taken)
            if not decision.allowed:
                await enforcer.successive_takes.give_back(taken)
                if required:
                    decision = await self._until_repeated(decision, store)
                self._request_limits.add_update(decision, store)
                if not required:
                    return False
                raise RateLimited(self._request_limits, decision).answers_in_any_case(self._connection.scope)
            taken.append((store, decision))
        for store, decision in taken:
            self._request_limits.add_update(decision, store)
        return True

    async def _until_repeated(self, refusal: Decision, store: Store) -> Decision:
        """A refusal with the time after which the whole request passes, which is then charged from the start again."""
        charged: Counter[str] = Counter()
        for decision, of in self._each():
            if of is store and decision.allowed and decision.id:
                charged.update({each.bucket: each.cost for each in decision.charges})
        whole = [replace(each, cost=each.cost + charged[each.bucket]) for each in refusal.charges]
        if refusal.degraded or not whole:
            return refusal
        try:
            foreseen = await store.peek(Take(tuple(whole)))
        except StoreError:
            return refusal
        return replace(refusal, wait_us=max(refusal.wait_us, foreseen.wait_us))

    @shows_use(_REFUND)
    async def refund(self, cost: float | None = None, *, name: str | None = None) -> None:
        """Give back ``cost`` units of each charge of this request, or all of them.

        Each charge is settled once: a second refund, or a rule's ``settle`` after it, changes nothing. During an outage
        of the store, it is done once the store is back. Raises ``ValueError`` and ``ConfigurationError`` as ``charge``.
        """
        units = math.inf if cost is None else _checked_units(cost, _REFUND)
        self._check_name("refund", name, _REFUND)
        await self._settle(name, lambda charge: max(charge.cost - units, 0.0))

    @shows_use(_SETTLE)
    async def settle(self, actual: float, *, name: str | None = None) -> None:
        """Make each charge of this request come to ``actual`` units: less is given back, more is debited.

        Each charge is settled once; during an outage of the store, once the store is back. Raises ``ValueError`` and
        ``ConfigurationError`` as ``charge``.
        """
        units = _checked_units(actual, _SETTLE)
        self._check_name("settle", name, _SETTLE)
        await self._settle(name, lambda charge: units)

    async def _settle(self, name: str | None, actual: Callable[[Charge], float]) -> None:
        for decision, store in self._each():
            charges = decision.charges
            await settle(store, decision, [actual(each) if _is_of(each, name) else None for each in charges])

    def _check_name(self, verb: str, name: str | None, use: str) -> None:
        """Warn about a name that no limit of this request has, and no other limit in the same stores.

        Raises ``ConfigurationError``, which shows the right ``use``, for one that is no text.
        """
        if name is None:
            return
        if not isinstance(name, str):
            raise ConfigurationError(f"the name of a limit is a text, not {name!r}: {use}")
        charges = [charge for decision in self._request_limits.decisions for charge in decision.charges]
        if any(_is_of(charge, name) for charge in charges):
            return
        stores = {id(store): store for store in [self._request_limits.enforcer.store, *self._request_limits.stores]}
        names = {name for store in stores.values() for name in names_of_limits(store)}
        quotas = [each for store in stores.values() for each in owned(store) if each[1].name not in RESERVED_NAMES]
        names |= {each for of, quota in quotas for each in (of, quota.name)}
        if name not in names:
            here = dict.fromkeys(each for charge in charges for each in (charge.name, charge.quota.name))
            listed = ", ".join(map(repr, here or sorted(names))) or "none"
            warn_once(
                "a-name-that-no-limit-has",
                f"{verb}(name={name!r}) changes nothing: no limit has this name; the names are {listed}",
            )

    def _each(self) -> list[tuple[Decision, Store]]:
        return list(zip(self._request_limits.decisions, self._request_limits.stores))

    def _takes(self, cost: float, name: str | None) -> list[tuple[Store, Take]]:
        """One take for each store, of everything that this request is charged there, or several if that is too much.

        Where there are several, a later one may be refused, and the earlier ones are given back.
        """
        takes = []
        for store in {id(store): store for store in self._request_limits.stores}.values():
            decisions = [decision for decision, of in self._each() if of is store]
            charges = {each.bucket: each for decision in decisions for each in decision.charges}
            more = [replace(each, cost=cost) for each in charges.values() if _is_of(each, name)]
            on_error = decisions[0].take.on_error
            takes.extend([(store, Take(part, on_error=on_error)) for part in in_parts(more)])
        return takes


def limits(connection: HTTPConnection) -> Limits:
    """The limits of a request or WebSocket, for its endpoint: ``await limits(request).charge(5)``.

    As a FastAPI dependency: ``Annotated[Limits, Depends(limits)]``. Raises ``ConfigurationError`` if neither
    ``RateLimitMiddleware`` nor ``RateLimit`` has seen the request.
    """
    try:
        scope = connection.scope
    except AttributeError:
        kind = type(connection).__name__
        raise ConfigurationError(
            f"limits() takes a request or a WebSocket, not a {kind}: limits(request), or limits(HTTPConnection(scope))"
        ) from None
    current = request_limits(scope)
    if current is None:
        raise ConfigurationError(
            "limits() is called for a request that nothing limits: put RateLimitMiddleware around the app, "
            "app.add_middleware(RateLimitMiddleware, quota=...)"
        )
    return Limits(connection, current)


def _is_of(charge: Charge, name: str | None) -> bool:
    return name is None or name in (charge.name, charge.quota.name)


def _checked_units(cost: float, use: str) -> float:
    """A cost that may be 0; ``ValueError``, which shows the right ``use``, for anything else."""
    try:
        return checked_actual(cost)
    except ValueError:
        raise ValueError(f"cost must be a finite number from 0 up, at most 2**53, not {cost!r}: {use}") from None

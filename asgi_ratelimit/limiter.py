"""Limiters: quotas, a store, and the verbs that a program calls."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from . import _background
from ._keys import DEFAULT_NAME
from .algorithms import settlement_of
from .decision import Charge, Decision, Take, checked_cost
from .errors import ConfigurationError
from .quota_text import QuotaLike, as_quotas
from .quotas import Quota
from .stores import MemoryStore, Store, open_store

T = TypeVar("T")

Key: TypeAlias = str | bytes | Mapping[str, str | bytes]
"""Whose buckets, or whose bucket of each quota by its name."""

Cost: TypeAlias = float | Mapping[str, float]
"""Units of every quota, or of each one by its name."""


class Limiter:
    """Quotas under a name, in a store: limits calls, or paces them.

    ``quota`` is a text, a quota, or several; ``store`` a store or its URL, and by default this process's memory.
    Limiters of one name, quota and store share their buckets. Raises ``QuotaError`` and ``ConfigurationError``.
    """

    def __init__(self, quota: QuotaLike, *, store: Store | str | None = None, name: str = DEFAULT_NAME) -> None:
        self.quotas = as_quotas(quota)
        self.name = checked_name(name)
        self.store = as_store(store)

    def __repr__(self) -> str:
        return f"Limiter({self.quotas!r}, store={self.store!r}, name={self.name!r})"

    async def rate_limit(self, key: Key, cost: Cost = 1, *, best_effort: bool = False) -> Decision:
        """Take ``cost`` units of every quota now, or, if one of them has too little, nothing at all.

        ``cost`` may name the quotas, ``{"requests": 1, "tokens": 1800}``: then only these are charged. With
        ``best_effort`` as many whole units are ``granted`` as all quotas can give, at least 1.
        """
        return await self._take(Take(self.charges(key, cost), best_effort=best_effort))

    async def pace(self, key: Key, cost: Cost = 1, *, max_delay: float | None = None) -> Decision:
        """Book the earliest slot at which ``cost`` units conform; it does not sleep, ``delay`` says how long to.

        Where the slot is more than ``max_delay`` seconds away (``None``: never too far), nothing is booked and the
        decision is not ``allowed``.
        """
        return await self._take(Take(self.charges(key, cost), math.inf if max_delay is None else max_delay))

    async def peek(self, key: Key, cost: Cost = 1) -> Decision:
        """What ``rate_limit`` would answer now, and what is left; nothing is taken. May raise ``StoreError``."""
        return await self.store.peek(Take(self.charges(key, cost)))

    async def refund(self, decision: Decision, cost: Cost | None = None) -> None:
        """Give back ``cost`` units of each charge of a decision, or all of them, to where they were booked.

        What has drained, or left its window, is full again by itself and cannot be given back. A decision is settled
        once: a second refund, or settling after it, does nothing. Raises ``ValueError`` for more than was charged,
        and may raise ``StoreError``; then the same call may be made again.
        """
        charged = _charged(decision)
        given = charged if cost is None else _costs(decision, cost, [0.0] * len(charged))
        if any(units > most for units, most in zip(given, charged)):
            raise ValueError(f"a refund of {cost!r} is more than was charged, {charged!r}")
        await self._settle(decision, [most - units for units, most in zip(given, charged)])

    async def settle(self, decision: Decision, actual: Cost) -> None:
        """Make a decision's charges come to ``actual`` units, known only afterwards.

        Less than charged is refunded. More is owed: it is charged although it does not fit, and is paid back before
        anyone else goes. A decision is settled once. May raise ``StoreError``; then the call may be made again.
        """
        await self._settle(decision, _costs(decision, actual, _charged(decision)))

    async def cancel(self, decision: Decision) -> None:
        """Give back the slot that ``pace`` booked: the queue's end moves up, or the next caller that fits takes it."""
        await self._settle(decision, [0.0] * len(decision.states))

    async def reset(self, key: Key) -> None:
        """Forget all that ``key`` has used. May raise ``StoreError``."""
        await self.store.reset(self.charges(key, 1))

    async def take(self, charges: Iterable[Charge], max_wait: float = 0.0) -> Decision:
        """Take charges of any quotas and keys, all or nothing, waiting at most ``max_wait`` seconds (``math.inf``)."""
        return await self._take(Take(tuple(self._own(charge) for charge in charges), max_wait))

    async def aclose(self) -> None:
        """Close the store."""
        await self.store.aclose()

    async def __aenter__(self) -> Limiter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _take(self, take: Take) -> Decision:
        return (await self.store.take((take,)))[0]

    async def _settle(self, decision: Decision, actual: Sequence[float]) -> None:
        if decision.settled:
            return
        settlement = settlement_of(decision, actual)
        if settlement is not None:
            await self.store.settle(settlement)
        decision.settled = True

    def charges(self, key: Key, cost: Cost = 1) -> tuple[Charge, ...]:
        """What a request comes to: the charges that every verb with a key and a cost takes.

        A key or a cost may name the quotas, ``{"guild": guild, "all": ""}``; only those that a cost names are charged.
        """
        if isinstance(key, Mapping) or isinstance(cost, Mapping):
            return tuple([self._charge(quota, key, cost) for quota in self._named(key, cost)])
        text = as_key(key)
        return tuple([Charge(quota, text, cost, self.name) for quota in self.quotas])

    def _charge(self, quota: Quota, key: Key, cost: Cost) -> Charge:
        own_key = key[quota.name] if isinstance(key, Mapping) else key
        own_cost = cost[quota.name] if isinstance(cost, Mapping) else cost
        return Charge(quota, as_key(own_key), own_cost, self.name)

    def _named(self, key: Key, cost: Cost) -> list[Quota]:
        """The quotas to charge, each of which has a key; ``ValueError`` where the names do not fit."""
        self._require_names("key", key, '{...: "alice"}')
        self._require_names("cost", cost, "{...: 1}")
        charged = [quota for quota in self.quotas if not isinstance(cost, Mapping) or quota.name in cost]
        without = [quota.name for quota in charged if isinstance(key, Mapping) and quota.name not in key]
        if without:
            raise ValueError(f"key names {sorted(key)!r}, and lacks {', '.join(map(repr, without))}")
        return charged

    def _require_names(self, what: str, given: Key | Cost, example: str) -> None:
        if not isinstance(given, Mapping):
            return
        names = [quota.name for quota in self.quotas]
        unknown = set(given) - set(names)
        if unknown or not given:
            known = ", ".join(map(repr, names))
            raise ValueError(f"{what} names {sorted(unknown)!r}, where the quotas are {known}: {what}={example}")

    def _own(self, charge: Charge) -> Charge:
        return charge if charge.name else replace(charge, name=self.name)


def _charged(decision: Decision) -> list[float]:
    """The units that a decision charged, for each of its charges."""
    take = decision.take
    if take is None or take.best_effort or not decision.allowed:
        return [decision.granted] * len(decision.states)
    return [charge.cost for charge in take.charges]


def _costs(decision: Decision, cost: Cost, unnamed: Sequence[float]) -> list[float]:
    """The units for each charge of a decision, from one number or one by each quota's name."""
    if not isinstance(cost, Mapping):
        return [_settled_cost(cost)] * len(decision.states)
    names = [state.quota.name for state in decision.states]
    unknown = set(cost) - set(names)
    if unknown:
        raise ValueError(f"cost names {sorted(unknown)!r}, where the quotas are {', '.join(map(repr, names))}")
    return [_settled_cost(cost.get(name, units)) for name, units in zip(names, unnamed)]


def _settled_cost(cost: float) -> float:
    """A cost after the fact, which may be 0; ``ValueError`` for what is no number from 0 to 2**53."""
    return cost if cost == 0 else checked_cost(cost)


class SyncLimiter:
    """``Limiter`` for code without ``async``: the same verbs, which block their thread where the store is remote.

    All threads of a process share one event loop in the background, and with it the store's connections.
    """

    def __init__(self, quota: QuotaLike, *, store: Store | str | None = None, name: str = DEFAULT_NAME) -> None:
        self._limiter = Limiter(quota, store=store, name=name)
        self._run = _background.run_in_place if self._limiter.store.in_process else _background.run

    def __repr__(self) -> str:
        return f"Sync{self._limiter!r}"

    def rate_limit(self, key: Key, cost: Cost = 1, *, best_effort: bool = False) -> Decision:
        """See ``Limiter.rate_limit``."""
        return self._do(self._limiter.rate_limit(key, cost, best_effort=best_effort))

    def pace(self, key: Key, cost: Cost = 1, *, max_delay: float | None = None) -> Decision:
        """See ``Limiter.pace``: it does not sleep."""
        return self._do(self._limiter.pace(key, cost, max_delay=max_delay))

    def peek(self, key: Key, cost: Cost = 1) -> Decision:
        """See ``Limiter.peek``."""
        return self._do(self._limiter.peek(key, cost))

    def refund(self, decision: Decision, cost: Cost | None = None) -> None:
        """See ``Limiter.refund``."""
        self._do(self._limiter.refund(decision, cost))

    def settle(self, decision: Decision, actual: Cost) -> None:
        """See ``Limiter.settle``."""
        self._do(self._limiter.settle(decision, actual))

    def cancel(self, decision: Decision) -> None:
        """See ``Limiter.cancel``."""
        self._do(self._limiter.cancel(decision))

    def reset(self, key: Key) -> None:
        """See ``Limiter.reset``."""
        self._do(self._limiter.reset(key))

    def take(self, charges: Iterable[Charge], max_wait: float = 0.0) -> Decision:
        """See ``Limiter.take``."""
        return self._do(self._limiter.take(charges, max_wait))

    def aclose(self) -> None:
        """See ``Limiter.aclose``."""
        self._do(self._limiter.aclose())

    def __enter__(self) -> SyncLimiter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.aclose()

    def _do(self, verb: Coroutine[Any, Any, T]) -> T:
        return self._run(verb)


def as_store(store: Store | str | None) -> Store:
    """The store of a ``store`` argument: a store, a URL, or ``None`` for this process's memory."""
    if store is None:
        return MemoryStore()
    return open_store(store) if isinstance(store, str) else store


def as_key(key: str | bytes) -> str:
    """A key of any content as text; bytes that are not UTF-8 stay apart from all that are. ``TypeError`` otherwise."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    raise TypeError(f"a key is a str or bytes, not {key!r}: key=str(user.id)")


def checked_name(name: str) -> str:
    """A limiter's name if it is a text and not empty; ``ConfigurationError`` otherwise."""
    if isinstance(name, str) and name:
        return name
    raise ConfigurationError(f'the name of a limiter must be a text and not empty, not {name!r}: name="api"')

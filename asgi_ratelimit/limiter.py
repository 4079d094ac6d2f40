"""Limiters: quotas, a store, and the verbs that a program calls."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from . import _background
from .decision import DEFAULT_NAME, Charge, Decision, Take
from .errors import ConfigurationError
from .quotas import QuotaLike, as_quotas
from .stores import MemoryStore, Store, open_store

T = TypeVar("T")


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

    async def rate_limit(self, key: str | bytes, cost: float = 1) -> Decision:
        """Take ``cost`` units of every quota now, or, if one of them has too little, nothing at all."""
        return await self._take(Take(self._charges(key, cost)))

    async def pace(self, key: str | bytes, cost: float = 1, *, max_delay: float | None = None) -> Decision:
        """Book the earliest slot at which ``cost`` units conform; it does not sleep, ``delay`` says how long to.

        Where the slot is more than ``max_delay`` seconds away (``None``: never too far), nothing is booked and the
        decision is not ``allowed``.
        """
        return await self._take(Take(self._charges(key, cost), math.inf if max_delay is None else max_delay))

    async def peek(self, key: str | bytes, cost: float = 1) -> Decision:
        """What ``rate_limit`` would answer now, and what is left; nothing is taken. May raise ``StoreError``."""
        return await self.store.peek(Take(self._charges(key, cost)))

    async def reset(self, key: str | bytes) -> None:
        """Forget all that ``key`` has used. May raise ``StoreError``."""
        await self.store.reset(self._charges(key, 1))

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

    def _charges(self, key: str | bytes, cost: float) -> tuple[Charge, ...]:
        text = as_key(key)
        return tuple([Charge(quota, text, cost, self.name) for quota in self.quotas])

    def _own(self, charge: Charge) -> Charge:
        return charge if charge.name else replace(charge, name=self.name)


class SyncLimiter:
    """``Limiter`` for code without ``async``: the same verbs, which block their thread where the store is remote.

    All threads of a process share one event loop in the background, and with it the store's connections.
    """

    def __init__(self, quota: QuotaLike, *, store: Store | str | None = None, name: str = DEFAULT_NAME) -> None:
        self._limiter = Limiter(quota, store=store, name=name)
        self._run = _background.run_in_place if self._limiter.store.in_process else _background.run

    def __repr__(self) -> str:
        return f"Sync{self._limiter!r}"

    def rate_limit(self, key: str | bytes, cost: float = 1) -> Decision:
        """See ``Limiter.rate_limit``."""
        return self._do(self._limiter.rate_limit(key, cost))

    def pace(self, key: str | bytes, cost: float = 1, *, max_delay: float | None = None) -> Decision:
        """See ``Limiter.pace``: it does not sleep."""
        return self._do(self._limiter.pace(key, cost, max_delay=max_delay))

    def peek(self, key: str | bytes, cost: float = 1) -> Decision:
        """See ``Limiter.peek``."""
        return self._do(self._limiter.peek(key, cost))

    def reset(self, key: str | bytes) -> None:
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

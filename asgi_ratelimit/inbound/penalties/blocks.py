"""Blocks by name: to see them, to lift them, and to block a key by hand."""

from __future__ import annotations

from ...argument_errors import shows_use
from ...buckets import DEFAULT_NAME, as_key
from ...decision import Charge, Take
from ...errors import StoreUnavailable
from ...limiter import as_store, checked_name
from ...stores import Store
from ...stores.opening import store_of_limits
from .block_checks import EARLIER_BLOCKS, STRIKES, Strike, block, block_check
from .penalty import seconds_of


class Blocks:
    """The blocks under the name of a rule or middleware: to see them, to lift them, and to block by hand.

    ``store`` is its store or URL, and ``name`` its name. Keys are what its key function returns: an address, or the
    key of a header, ``header("x-api-key").of(scope)``. Every method may raise ``StoreError``.
    """

    @shows_use('Blocks(store=store, name="login")')
    def __init__(self, *, store: Store | str, name: str = DEFAULT_NAME) -> None:
        self._store = as_store(store_of_limits(store, 'Blocks(store=store, name="login")'))
        self._name = checked_name(name)

    async def blocked_for(self, key: str | bytes) -> float:
        """The seconds for which ``key`` is still blocked; 0.0 if it is not."""
        return (await self._store.peek(Take((block_check(self._name, as_key(key)),)))).retry_after

    async def block(self, key: str | bytes, block_for: str | float) -> bool:
        """Block ``key`` for a duration such as ``"1 day"``, or seconds; false if it already was blocked."""
        seconds = seconds_of("block_for", block_for)
        decision = await block(self._store, self._name, as_key(key), seconds)
        if decision.degraded:
            raise StoreUnavailable(f"the store does not answer, so {key!r} is not blocked")
        return decision.allowed

    async def lift(self, key: str | bytes) -> None:
        """Let ``key`` pass again, and forget its refusals and earlier blocks. Its quotas stay as they are."""
        text, name = as_key(key), self._name
        earlier = Charge(EARLIER_BLOCKS, text, 1, name)
        await self._store.reset([block_check(name, text), Strike(STRIKES, text, 1, name), earlier])

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()

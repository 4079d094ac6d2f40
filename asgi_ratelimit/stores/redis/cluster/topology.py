"""Which node of a cluster is the primary of which slot.

The package reads this itself, with ``CLUSTER SLOTS`` and from redirections, and does not use redis-py's
``NodesManager``: it opens a pool of connections for every node that it learns about, outside the deadline of a take,
and marks all connections for a reconnect whenever it refreshes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from redis.exceptions import AskError, MovedError

from ....clock import monotonic_us
from ....errors import StoreError, StoreTimeout, StoreUnavailable
from ..connection.script_calls import ScriptCaller
from ..connection.server_addresses import Address, ClusterAddresses
from ..node import NodeContext
from ..outage.breaker import Breaker

LAST_SLOT = 16_383
"""The highest number of a slot."""


class Topology:
    """The address of the primary of each slot, for one event loop.

    ``candidates()`` are the nodes to read from before the seeds; ``updated()`` is called after each refresh.
    """

    def __init__(
        self,
        context: NodeContext,
        addresses: ClusterAddresses,
        candidates: Callable[[], Iterable[Address]],
        updated: Callable[[], None],
    ) -> None:
        self.primaries: dict[int, Address] = {}
        self._context = context
        self._addresses = addresses
        self._name = f"the cluster of {', '.join([f'{host}:{port}' for host, port in addresses.seeds[:3]])}"
        self._candidates = candidates
        self._updated = updated
        self._breaker = Breaker(monotonic_us, context.timeout * 1e6)
        self._refreshing: asyncio.Task[None] | None = None
        self._unowned: set[int] = set()
        """The slots that were looked for, and that no node owns."""

    async def primary_of(self, slot: int) -> Address:
        """The address of the primary of a slot. Raises ``StoreUnavailable`` if there is none."""
        if slot not in self.primaries:
            await self._look_for(slot)
        return self.primaries[slot]

    def redirected(self, redirection: AskError, host: str) -> Address:
        """The address that a redirection by the node at ``host`` leads to; a permanent one (MOVED) is remembered."""
        address = self._addresses.remap((redirection.host or host, int(redirection.port)))
        if isinstance(redirection, MovedError):
            self.primaries[redirection.slot_id] = address
        return address

    def refresh(self) -> asyncio.Task[None]:
        """Read the topology anew in a task, unless that is in progress."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        return self._refreshing

    def close(self) -> None:
        """Stop reading the topology. It stays: nodes that close charge their own buckets with the outage ledger."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            self._refreshing = None

    async def _look_for(self, slot: int) -> None:
        """Refresh the topology for a slot without a known owner. Raises ``StoreUnavailable`` if none is found."""
        if not self._breaker.begin_call():
            raise StoreUnavailable("the cluster is not called, because no owner of a slot was reported a moment ago")
        await asyncio.shield(self.refresh())
        if self._breaker.is_open:
            raise StoreUnavailable("no node of the cluster reports which node owns which slot")
        if slot not in self.primaries:
            self._unowned.add(slot)
            self._fail(StoreUnavailable("a slot belongs to no node of the cluster"))
            raise StoreUnavailable(f"no node of the cluster owns slot {slot}")

    async def _refresh(self) -> None:
        """Call one node after the other until one answers, within the deadline of a take."""
        failure: StoreError = StoreTimeout("no node of the cluster answers in time")
        try:
            async with asyncio.timeout(self._context.timeout):
                for address in dict.fromkeys([*self._candidates(), *self._addresses.seeds]):
                    try:
                        await self._read_from(address)
                        return
                    except StoreError as error:
                        failure = error
        except TimeoutError:
            pass
        self._fail(failure)

    def _fail(self, failure: StoreError) -> None:
        self._breaker.record_failure()
        self._context.local.store_is_out(failure, self._name)

    async def _read_from(self, address: Address) -> None:
        """Read the topology from the node at ``address``. Raises ``StoreError``."""
        caller = ScriptCaller(self._addresses.pool(address), self._context.timeout / 2)
        try:
            primaries = primaries_in(await caller.command("CLUSTER", "SLOTS"), address[0])
        finally:
            await caller.aclose()
        self.primaries = {slot: self._addresses.remap(primary) for slot, primary in primaries.items()}
        self._breaker.record_success()
        self._unowned -= self.primaries.keys()
        if not self._unowned:
            self._context.local.store_is_back(self._name)
        self._updated()


def primaries_in(reply: Any, host: str) -> dict[int, Address]:
    """The address of the primary of each slot in the reply of the node at ``host`` to ``CLUSTER SLOTS``.

    A node that does not know its own host reports an empty one, which stands for ``host``. Raises ``StoreUnavailable``
    for any other reply.
    """
    primaries: dict[int, Address] = {}
    try:
        for first, last, primary, *_ in reply:
            reported = primary[0].decode() if isinstance(primary[0], bytes) else primary[0]
            address = (reported or host, int(primary[1]))
            if not 0 <= int(first) <= int(last) <= LAST_SLOT:
                raise ValueError(f"slots from {first} to {last}")
            primaries.update(dict.fromkeys(range(int(first), int(last) + 1), address))
    except (IndexError, TypeError, ValueError) as error:
        raise StoreUnavailable(f"it answers CLUSTER SLOTS with {reply!r:.100}, which makes no sense") from error
    return primaries

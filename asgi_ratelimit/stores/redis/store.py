"""The store that many processes share: buckets in Redis, decided there by a script, many takes in one call."""

from __future__ import annotations

import asyncio
import math
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast
from weakref import WeakKeyDictionary

from ...algorithms import Outcome
from ...argument_errors import checked_clock, shows_use
from ...buckets import escaped
from ...clock import Clock, SystemClock, monotonic_us
from ...decision import Charge, ChargeTemplate, Decision, OnError, Redemption, Settlement, Take
from ...errors import ConfigurationError, StoreError
from ...logs import warn_once
from ..by_store import before_closing
from ..call_observers import Observer
from ..event_loops import drop_closed, running_loop, see_all_through
from ..operations import OPERATION_TTL, checked_operation_ttl
from .cluster.cluster import ClusterNodes
from .cluster.splitting import split
from .connection.server_addresses import RedisLike, SingleAddress, addresses_of
from .denials import Denials
from .node import NodeContext, RedisNode
from .outage.local_decisions import LocalDecisions
from .redis_documents import RedisDocuments
from .script_actions import Peek, Reset

LONGEST_USUAL = 60.0
"""Seconds; a longer deadline is probably meant in milliseconds."""


class RedisStore:
    """Buckets in Redis 6.2 or newer, or Valkey: one string key for each, decided by a script on the server's clock.

    ``url_or_client`` is a URL (``redis://``, ``rediss://``, ``unix://``, ``redis+cluster://host:port,host:port`` or
    ``redis+sentinel://host:port,host:port/service``) or a client of ``redis.asyncio``. Only a client's addresses and
    credentials are used: the store opens its own connections, because those of a limiter must not retry.

    ``timeout`` is the deadline of a take in seconds; waiting for other takes and for a connection counts. When Redis
    does not answer in time, ``on_error`` decides: ``"local"`` (a limiter in this process, with the limits divided by
    ``replicas``), ``"allow"`` or ``"deny"``; such decisions are ``degraded``. Operations are remembered for
    ``operation_ttl`` seconds. A ``clock`` replaces the server's, and keys then live for at least an hour. Raises
    ``ConfigurationError`` for invalid arguments.
    """

    in_process = False
    remembers_operations = True

    @shows_use('RedisStore("redis://localhost:6379/0", prefix="shop", timeout=0.25)')
    def __init__(
        self,
        url_or_client: RedisLike,
        *,
        prefix: str = "rl",
        timeout: float = 0.25,
        on_error: OnError = "local",
        replicas: int = 1,
        operation_ttl: float = OPERATION_TTL,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
            raise ConfigurationError(f"timeout must be seconds above 0, not {timeout!r}: timeout=0.25")
        if timeout > LONGEST_USUAL:
            warn_once(
                "a-time-in-milliseconds",
                f"timeout={timeout!r} is in seconds, and requests would wait that long: timeout=0.25",
            )
        if not isinstance(prefix, str):
            raise ConfigurationError(f'prefix must be a text, not {prefix!r}: prefix="shop"')
        checked_clock(clock, "RedisStore(url, clock=SteppedClock())")
        self._addresses = addresses_of(url_or_client, timeout)
        self._denials = Denials(clock.now_us if clock else monotonic_us)
        operation_ttl_us = checked_operation_ttl(operation_ttl)
        parts_of = _whole if isinstance(self._addresses, SingleAddress) else _parts_by_slot
        self._local = LocalDecisions(on_error, replicas, clock or SystemClock(), parts_of, operation_ttl)
        self._context = NodeContext(
            escaped(prefix).encode(), timeout, clock, self._denials, self._local, operation_ttl_us
        )
        self._documents = RedisDocuments(self._addresses, self._context.prefix, timeout)
        self._nodes: WeakKeyDictionary[asyncio.AbstractEventLoop, RedisNode | ClusterNodes] = WeakKeyDictionary()
        self._begun: Callable[[], None] = _nothing_begins
        self._ended: Callable[[], Awaitable[None]] = _nothing_ends
        self._latest: tuple[asyncio.AbstractEventLoop | None, RedisNode | ClusterNodes | None] = (None, None)

    def __repr__(self) -> str:
        return f"RedisStore(prefix={self._context.prefix.decode()!r}, timeout={self._context.timeout})"

    @property
    def clock(self) -> Clock | None:
        """The clock that replaces the server's; ``None`` if there is none."""
        return self._context.clock

    def observe(self, observer: Observer) -> None:
        """Call ``observer.store_called`` after each call to Redis, for as long as the program refers to it."""
        self._context.observers.add(observer)

    @property
    def place(self) -> str:
        """Stores with the same place share their buckets."""
        return f"{self._context.prefix.decode()} {self._addresses.place}"

    @property
    def documents(self) -> RedisDocuments:
        """The documents that processes share beside the buckets."""
        return self._documents

    def submit(self, take: Take) -> Decision | Awaitable[Decision]:
        """The decision of one take; a refusal that the denial cache holds, and any in an outage, needs no waiting."""
        if self._denials.by_bucket and take.operation is None:  # usually empty: then this saves a call
            denied = self._denials.find(take)
            if denied is not None:
                return denied
        loop, node = self._latest
        if node is None or loop is not _get_running_loop():
            node = self._node()
        return node.take(take)

    def submit_charge(
        self, template: ChargeTemplate, bucket: str
    ) -> Outcome | Decision | Awaitable[Outcome | Decision]:
        """The outcome of a take of one charge without a wait, or the decision if Redis is out."""
        if self._denials.by_bucket:  # the call is not free, and mostly there are none
            denied = self._denials.find_charge(template, bucket)
            if denied is not None:
                return denied
        loop, node = self._latest
        if node is None or loop is not _get_running_loop():
            node = self._node()
        return node.charge((template, bucket))

    async def take(self, takes: Sequence[Take]) -> list[Decision]:
        """One decision for each take, in order; each take sees what the ones before it have booked."""
        if len(takes) == 1:
            return [await _resolved(self.submit(takes[0]))]
        buckets_before: set[str] = set()
        denied: list[Decision | None] = []
        for take in takes:
            buckets = {charge.bucket for charge in take.charges}
            is_plain = take.operation is None and buckets_before.isdisjoint(buckets)
            denied.append(self._denials.find(take) if is_plain else None)
            buckets_before |= buckets
        submitted = self._node().take_all([take for take, denial in zip(takes, denied) if denial is None])
        decisions = iter(await asyncio.gather(*map(_resolved, submitted)))
        return [next(decisions) if denial is None else denial for denial in denied]

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken. Raises ``StoreError`` if Redis does not answer."""
        return cast("Decision", await self._node().submit(Peek(take)))

    async def redeem(self, redemption: Redemption) -> Decision:
        """The decision of a ticket, which is allowed once. Raises ``StoreError`` if Redis does not answer."""
        return cast("Decision", await self._node().submit(redemption))

    async def settle(self, settlement: Settlement) -> None:
        """Give back units that a take charged in excess, or debit missing ones; a second call does nothing.

        If Redis does not answer, the settlement waits in the outage ledger until it does. A decision made in an outage
        is settled wherever it is now charged.
        """
        if not settlement.degraded:
            await self._settle_there(settlement)
            return
        ledger = self._local.ledger
        if settlement.until_us:  # a ticket, which is dead from now on unless it has been redeemed
            is_open, is_first = ledger.is_open(settlement), await self._settle_there(_without_units(settlement))
            if not (is_open if is_first is None else is_first):
                return
        for there in await ledger.settle(settlement):
            await self._settle_there(there)

    async def _settle_there(self, settlement: Settlement) -> bool | None:
        """Settle in Redis; return whether for the first time, or ``None`` if Redis is out and the ledger has it."""
        self._denials.forget(settlement.charges)
        try:
            return bool(await self._node().submit(settlement))
        except StoreError:
            self._local.ledger.postpone(settlement)
            return None

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges. Raises ``StoreError`` if Redis does not answer."""
        if not charges:
            return
        self._denials.forget(charges)
        await self._node().submit(Reset(charges))
        await self._local.forget(charges)

    async def aclose(self) -> None:
        """Close this event loop's connections, once all waiting calls are answered, and unused slots are given back.

        The entries of the outage ledger are charged before, if Redis answers. Takes that come meanwhile or later open
        new connections.
        """
        await see_all_through(self)
        last = before_closing.get(self)
        if last is not None:
            await last()
        node = self._nodes.pop(_running_loop(), None)
        self._latest = (None, None)
        if node is not None:
            await node.aclose()
        drop_closed(self._nodes)
        if not self._nodes:
            await self._ended()
        await self._documents.aclose()

    def when_used(self, begun: Callable[[], None], ended: Callable[[], Awaitable[None]]) -> None:
        """Call ``begun`` when one more event loop uses the store, and wait for ``ended`` when the last one closes it.

        The functions replace those that were given before.
        """
        self._begun, self._ended = begun, ended
        if self._nodes:
            begun()

    def _node(self) -> RedisNode | ClusterNodes:
        """The node, or all nodes of a cluster, for the running event loop: loops cannot share connections."""
        loop = _running_loop()
        node = self._nodes.get(loop)
        if node is None:
            drop_closed(self._nodes)
            node = self._nodes[loop] = self._open()
            self._begun()
        self._latest = (loop, node)
        return node

    def _open(self) -> RedisNode | ClusterNodes:
        if isinstance(self._addresses, SingleAddress):
            return RedisNode(self._context, self._addresses.pool(), self._addresses.name)
        return ClusterNodes(self._context, self._addresses)


def _nothing_begins() -> None:
    """Called when a store is used; does nothing."""


async def _nothing_ends() -> None:
    """Called when a store is closed; does nothing."""


def _without_units(settlement: Settlement) -> Settlement:
    """A settlement of the same id that changes no bucket."""
    settled = tuple([replace(each, actual=each.charge.cost) for each in settlement.settled_charges])
    return replace(settlement, settled_charges=settled, degraded=False)


def _whole(action: Any) -> Sequence[Any]:
    """An action on one Redis, which carries it out as one."""
    return (action,)


def _parts_by_slot(action: Any) -> Sequence[Any]:
    """An action on a cluster, as the parts that are carried out for each slot."""
    return [part.action for part in split(action)]


def _running_loop() -> asyncio.AbstractEventLoop:
    return running_loop(
        "a store on Redis with async",
        "call a SyncLimiter in a thread: await trio.to_thread.run_sync(limiter.rate_limit, key)",
    )


async def _resolved(decision: Decision | Awaitable[Decision]) -> Decision:
    return decision if isinstance(decision, Decision) else await decision

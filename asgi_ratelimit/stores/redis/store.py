"""The store that many processes share: buckets in Redis, decided there by a script, many takes in one call."""

from __future__ import annotations

import asyncio
import math
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from secrets import randbits
from typing import Any, cast

from ...algorithms.take import unused
from ...background import ByLoop, keep, loop_of_store, reset_now_and_in_child, see_all_through, unharmed
from ...buckets import escaped
from ...clock import Clock, SystemClock, time_of
from ...decision import Charge, Decision, OnError, Take
from ...errors import ConfigurationError, StoreError, require_number, shows_use
from ...quotas import LEAST, InFlight
from ..base import Decisions, Observer, Settled, Settlement, checked_operation_ttl
from ..documents import RedisDocuments
from .clients import CLOSE_WITHIN, CommandsByLoop, Connection, RedisLike, server_of
from .denials import Denials
from .nodes import ClusterNodes, Context, Node
from .outage import Outage
from .wire import PEEK_ID, Answer, NumberedTake

# The shortest deadline of a single command in seconds: no request waits for one.
LEAST_TIMEOUT = 1.0


class RedisStore:
    """Buckets in Redis 6.2 or newer, or Valkey: one string key for each, decided by a script on the server's clock.

    ``url_or_client`` is a URL (``redis://``, ``rediss://``, ``unix://``, ``redis+cluster://host:port,host:port`` or
    ``redis+sentinel://host:port,host:port/service``) or a client of ``redis.asyncio``. Only a client's addresses and
    credentials are used: the store opens its own connections, because those of a limiter must not retry.

    ``timeout`` is the deadline of a take in seconds; waiting for a connection counts, and so does waiting for other
    takes, unless it is one that may wait for its slot. When Redis does not answer in time, ``on_error`` decides:
    ``"local"`` (a limiter in this process, with the limits divided by ``replicas``), ``"allow"`` or ``"deny"``; such
    decisions are ``degraded``. Operations are remembered for ``operation_ttl`` seconds. A ``clock`` replaces the
    server's, and keys then live for at least an hour. Raises ``ConfigurationError`` for invalid arguments.
    """

    in_process = False

    @shows_use('RedisStore("redis://localhost:6379/0", prefix="shop", timeout=0.25)')
    def __init__(
        self,
        url_or_client: RedisLike,
        *,
        prefix: str = "rl",
        timeout: float = 0.25,
        on_error: OnError = "local",
        replicas: int = 1,
        operation_ttl: float = 600.0,
        clock: Clock | None = None,
    ) -> None:
        require_number("timeout must be seconds above 0, at most 60", timeout, LEAST, 60, "timeout=0.25", (int, float))
        if not isinstance(prefix, str):
            raise ConfigurationError(f'prefix must be a text, not {prefix!r}: prefix="shop"')
        self.clock = clock
        """The clock that replaces the server's; ``None`` if there is none."""
        server = server_of(url_or_client, timeout)
        denials = Denials(time_of(clock))
        operation_ttl_ms = math.ceil(checked_operation_ttl(operation_ttl) / 1000)
        outage = Outage(on_error, replicas, clock or SystemClock(), operation_ttl)
        self._context = Context(server, escaped(prefix), timeout, clock, operation_ttl_ms, denials, outage)
        self._commands = CommandsByLoop(server, max(timeout, LEAST_TIMEOUT), escaped(prefix))
        self.documents = RedisDocuments(escaped(prefix), self._commands)
        """The documents that processes share beside the buckets."""
        # Work that goes on beside an event loop while that uses the store.
        self._attached: list[Any] = []
        reset_now_and_in_child(self, "begin_anew")

    def begin_anew(self) -> None:
        """Begin without connections and without an outage ledger, in a forked child: those are its parent's.

        They are never closed here: their event loop shares the parent's registrations with the operating system.
        """
        _of_parents.extend(filter(None, (getattr(self, "_nodes", None), list(self._commands.values()))))
        self._nodes: ByLoop[Node | ClusterNodes] = ByLoop()
        self._ids = count(randbits(48) + 1)
        self._context.outage.begin_ledger()
        self._commands.clear()

    def __repr__(self) -> str:
        return f"RedisStore({self._context.server.name}, prefix={self._context.prefix!r})"

    def observe(self, observer: Observer) -> None:
        """Call ``observer.store_called`` after each call to Redis, once, however often it is added."""
        self._context.observers[id(observer)] = observer

    def take(self, takes: Sequence[Take]) -> Decisions | Awaitable[list[Decision]]:
        """One decision for each take, in order; a refusal that is certain, and any in an outage, is there at once."""
        if len(takes) != 1:
            return self._take_all(takes)
        take, answer = takes[0], None
        if take.operation is not None:
            answer = self._context.outage.earlier(take)
        elif self._context.denials.by_bucket:
            answer = self._context.denials.find(take)
        if answer is not None:
            return Decisions((answer,))
        return cast("Awaitable[list[Decision]]", self._open().take(NumberedTake(take, next(self._ids))))

    async def peek(self, take: Take) -> Decision:
        """What ``take`` would answer now; nothing is taken. Raises ``StoreError`` if Redis does not answer."""
        (decision,) = cast("Decisions", await self._open().answer(NumberedTake(take, PEEK_ID)))
        return decision

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Give back units that were charged in excess, or debit missing ones; each settlement once.

        If Redis does not answer, a settlement waits in the outage ledger until it does, except for one with a token, or
        one that is not remembered, which raises ``StoreError``. A decision of an outage is settled here.
        """
        settled: list[Settled] = []
        failure: StoreError | None = None
        for settlement, answer in [(each, self._sent(each)) for each in settlements]:  # all of them go at once
            try:
                settled.append(answer if isinstance(answer, Settled) else await unharmed(answer))
            except StoreError as error:
                if settlement.id and not settlement.token:
                    settled.append(self._later(settlement, is_first=True))
                else:  # what is not remembered might be done twice
                    failure = error
        if failure is not None:  # not before the others have their answers
            raise failure
        return settled

    async def reset(self, charges: Sequence[Charge]) -> None:
        """Forget the buckets of these charges. Raises ``StoreError`` if Redis does not answer."""
        await asyncio.gather(*[self._commands("DEL", f"{self._context.prefix}:{each.bucket}") for each in charges])
        self._context.denials.forget(charges)
        self._context.outage.ledger.forget(charges)
        await self._context.outage.local.reset(charges)

    async def aclose(self) -> None:
        """Close this event loop's connections, once all waiting calls are answered, and unused slots are given back.

        The entries of the outage ledger are charged before, if Redis answers. If it does not, this returns after two
        seconds at most; what is left is charged when the store is used again, if not before. Takes that come meanwhile
        or later open new connections.
        """
        closing = keep(None, loop_of_store().create_task(self._close()))
        await asyncio.wait([closing], timeout=CLOSE_WITHIN)
        if closing.done():
            closing.result()

    async def _close(self) -> None:
        await see_all_through(self)
        if self._context.outage.ledger:  # this event loop may not have used it yet
            self._open()
        await self._nodes.aclose()
        await asyncio.gather(*[each.end() for each in self._attached])
        if self._nodes:  # of other event loops
            self._start()
        await self._commands.aclose()

    def attach(self, work: Any) -> None:
        """Start some work when an event loop begins to use the store, and end it when the loop closes the store.

        It must not refer to the store.
        """
        self._attached.append(work)
        if self._nodes:
            work.start()

    def count_in_outages(
        self, held_of: Callable[[Callable[[str], bool]], Sequence[Settlement]], renew_soon: Callable[[], None]
    ) -> None:
        """While Redis is out, count what this process holds: ``held_of`` returns its renewals in some buckets.

        When Redis is back, ``renew_soon`` begins to send them.
        """
        self._context.outage.held_of, self._context.outage.renew_soon = held_of, renew_soon

    async def leave(self) -> None:
        """Close the connections of this event loop, once all waiting calls are answered; the next call opens others."""
        await self._nodes.aclose()

    def _start(self) -> None:
        for each in self._attached:
            each.start()

    async def _take_all(self, takes: Sequence[Take]) -> list[Decision]:
        """Several takes, which travel in one batch as far as they fit; on one server, each sees those before it."""
        nodes = self._open()
        answers = [asyncio.ensure_future(nodes.take(NumberedTake(take, next(self._ids)))) for take in takes]
        decisions = cast("list[Decisions]", await asyncio.gather(*answers))
        return [decision for (decision,) in decisions]

    def _sent(self, settlement: Settlement) -> Settled | Awaitable[Answer]:
        """The answer to a settlement, or what waits for it; a settlement travels before anything that comes later."""
        outage, nodes = self._context.outage, self._open()
        sent = nodes.within_slot(settlement)
        if settlement.degraded:  # it was decided here: Redis keeps the mark, and this process what was charged
            sent = replace(sent, actual=settlement.booked.cost, degraded=False)
        if settlement.degraded and not settlement.token:
            if settlement.until_us:  # of a ticket, which others may redeem
                outage.ledger.postpone(sent)
            return outage.settle(settlement)
        if outage.ledger and settlement.id and outage.ledger.is_waiting(settlement):  # it was settled already
            return self._later(settlement, is_first=False)
        if type(settlement.charge.quota) is InFlight and len(outage.local):  # it counts what is held here in an outage
            outage.local.settle_now((settlement,))
        return nodes.answer(sent)

    def _later(self, settlement: Settlement, *, is_first: bool) -> Settled:
        """The answer to a settlement that waits for Redis: nobody knows what its bucket holds then."""
        now = float((self.clock or SystemClock()).now_us())
        return Settled(is_first, now, unused(settlement.charge.quota, now))

    def _open(self) -> Node | ClusterNodes:
        """The node, or all nodes of a cluster, for the running event loop."""
        return self._nodes.get(_get_running_loop()) or self._nodes.of_running(self._begin)  # type: ignore[arg-type]

    def _begin(self) -> Node | ClusterNodes:
        server = self._context.server
        kind = ClusterNodes if server.kind == "cluster" else Node
        self._start()
        return kind(self._context, Connection(server), server.name)


# What belongs to the parents of this process: it is kept, because the garbage collector would close it.
_of_parents: list[object] = []

"""A cluster: the node that an action goes to, and takes whose keys are in several slots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from ....decision import Charge, Decision, Redemption, Settlement, Take
from ....errors import ConfigurationError, StoreError, StoreUnavailable
from ...operations import full_refund
from ..connection.server_addresses import Address, ClusterAddresses
from ..node import NodeContext
from ..outage.ledger import any_charge
from ..script_actions import Action, Answer, BucketCharge, Peek, take_of
from .cluster_node import ClusterNode
from .splitting import Part, joined, slot_of, split
from .topology import Topology


class ClusterNodes:
    """All primaries of a cluster, for one event loop.

    A take whose keys are all in one slot is one call. The charges of any other take go to their nodes in parallel, and
    granted parts are given back if another part is refused. Such a take is never booked ahead, whatever its
    ``max_wait``: it is granted if all of it fits now. Otherwise nothing stays charged, and ``retry_after`` is the
    longest wait of its parts, after which the caller may take again.
    """

    def __init__(self, context: NodeContext, addresses: ClusterAddresses) -> None:
        self._context = context
        self._pool = addresses.pool
        self._nodes: dict[Address, ClusterNode] = {}
        self._topology = Topology(context, addresses, self._by_health, self._close_unused)
        self._unanswered = 0
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, take: Take) -> Decision:
        """The decision of one take, whatever happens to the cluster."""
        if take.operation is not None:
            self._context.local.ledger.forget_refund(take)
        try:
            return cast("Decision", await self.submit(take))
        except StoreError:  # the node or the topology has logged it
            return self._context.local.decide(take, is_unclear=True)

    def charge(self, charge: BucketCharge) -> Awaitable[Decision]:
        """The decision of a take of one charge without a wait."""
        return self.take(take_of(charge))

    def take_all(self, takes: Sequence[Take]) -> Sequence[Awaitable[Decision]]:
        """``take`` for several."""
        return list(map(self.take, takes))

    async def submit(self, action: Action) -> Answer:
        """The answer to ``action``. Raises ``StoreError``."""
        parts = split(action)
        if len(parts) == 1:
            return await self._answer(parts[0])
        if type(action) is Take:
            return await _completed(self._take_parts(action))
        answers = await asyncio.gather(*map(self._answer, parts))
        if isinstance(action, (Peek, Redemption)):
            return joined(action.take, parts, cast("list[Decision]", answers))
        return all(answers) if isinstance(action, Settlement) else None

    async def aclose(self) -> None:
        """Close all connections, after waiting actions are answered; later actions open them again."""
        await self._open_nodes_to_charge()
        while self._unanswered:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle])
        self._is_closed = True
        self._close_all()
        await asyncio.gather(*self._closing)

    async def _open_nodes_to_charge(self) -> None:
        """Open the nodes that the outage ledger has entries for: when they close, they are charged with these."""
        with suppress(StoreError):
            for entry in self._context.local.ledger.collect(any_charge):
                self._node_at(await self._topology.primary_of(slot_of(entry.charges[0])))

    def _close_all(self) -> None:
        nodes, self._nodes = self._nodes, {}
        self._topology.close()
        for node in nodes.values():
            self._close(node)

    def _close(self, node: ClusterNode) -> None:
        """Close a node in the background, after its waiting actions are answered."""
        closing = asyncio.get_running_loop().create_task(node.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _take_parts(self, take: Take) -> Decision:
        """The decision on a take over several slots, all or nothing."""
        whole = replace(take, max_wait=0.0)
        if not take.best_effort:
            return replace(await self._take_now(whole), take=take)
        if take.operation is not None:
            raise ConfigurationError("best_effort with an operation needs one key: leave one of them out")
        parts = split(whole)
        peeks = await asyncio.gather(*[self._answer(replace(part, action=Peek(part.action))) for part in parts])
        foreseen = joined(take, parts, cast("list[Decision]", peeks))
        if not foreseen.allowed:
            return foreseen
        granted = tuple([replace(charge, cost=foreseen.granted) for charge in take.charges])
        return replace(await self._take_now(replace(whole, charges=granted, best_effort=False)), take=take)

    async def _take_now(self, take: Take) -> Decision:
        """``take`` without a wait; granted parts are given back if another part is refused."""
        sent_us, parts = self._context.denials.now_us(), split(take)
        decisions = await self._decisions(parts)
        decision = joined(take, parts, decisions)
        if not decision.allowed:
            await self._give_back(decisions)
            self._context.denials.note_others(decision, sent_us)
        return decision

    async def _decisions(self, parts: Sequence[Part]) -> list[Decision]:
        """The decisions on all parts. If one fails, the granted parts are given back, and its error is raised."""
        answers = await asyncio.gather(*map(self._answer, parts), return_exceptions=True)
        for failed in answers:
            if isinstance(failed, BaseException):
                await self._give_back([answer for answer in answers if isinstance(answer, Decision)])
                raise failed
        return cast("list[Decision]", answers)

    async def _give_back(self, decisions: Sequence[Decision]) -> None:
        settlements = [full_refund(each) for each in decisions if each.allowed and each.repeated_us is None]
        parts = [part for settlement in settlements if settlement for part in split(settlement)]
        answers = await asyncio.gather(*map(self._answer, parts), return_exceptions=True)
        for part, answer in zip(parts, answers):
            if isinstance(answer, StoreError):  # the node is out, and gives the units back when it is back
                self._context.local.ledger.postpone(part.action)

    async def _answer(self, part: Part) -> Answer:
        self._unanswered += 1
        try:
            node = await self._node(part.slot)
            return cast("Answer", await node.send(part.action))
        finally:
            self._unanswered -= 1
            if not self._unanswered:
                self._nothing_waits()

    def _nothing_waits(self) -> None:
        if self._is_closed:
            self._close_all()
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def _node(self, slot: int) -> ClusterNode:
        """The primary of a slot. If it does not answer, the topology is refreshed, as another may have taken over."""
        node = self._node_at(await self._topology.primary_of(slot))
        if node.breaker.is_open:
            if not node.breaker.begin_call():
                raise StoreUnavailable("the node is not called, because it has failed a moment ago")
            self._topology.refresh()
        return node

    def _node_at(self, address: Address) -> ClusterNode:
        if address not in self._nodes:
            is_here = partial(self._is_at, address)
            redirected = self._topology.redirected
            self._nodes[address] = ClusterNode(self._context, self._pool, address, redirected, is_here)
        return self._nodes[address]

    def _is_at(self, address: Address, charge: Charge) -> bool:
        return self._topology.primaries.get(slot_of(charge)) == address

    def _by_health(self) -> Iterable[Address]:
        """The addresses of all nodes in use, with those that answer first."""
        return sorted(self._nodes, key=lambda address: self._nodes[address].breaker.is_open)

    def _close_unused(self) -> None:
        """Close the nodes that no longer own any slot."""
        primaries = set(self._topology.primaries.values())
        for address in [address for address in self._nodes if address not in primaries]:
            node = self._nodes.pop(address)
            self._context.local.store_is_back(node.name)
            self._close(node)


async def _completed(work: Coroutine[Any, Any, Decision]) -> Decision:
    """The result of ``work``, which goes on to its end even if its caller is cancelled."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)

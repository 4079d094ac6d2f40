"""A cluster: which node a take goes to, and takes whose keys are in several slots."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from redis.exceptions import AskError, MovedError

from ....algorithms import foresee, settlement_of
from ....clock import monotonic_us
from ....decision import Charge, Decision, Take
from ....errors import StoreError, StoreTimeout, StoreUnavailable
from .. import script as _wire
from ..connection.addresses import Address, Cluster
from ..connection.script_calls import Link
from ..node import Shared
from ..outage.breaker import Breaker
from .cluster_node import Node
from .slots import Owners, Part, joined, latest_us, no_sooner, owners_in, slot_of, split, together

TRIES = 8
"""How often a paced take over several slots is booked anew, because others came between, before it fails."""


class ClusterLanes:
    """The ways to all primaries of a cluster, for one event loop.

    Which node owns which slot is asked for at first use, and again while a node does not answer; redirections tell it,
    too.
    """

    def __init__(self, shared: Shared, source: Cluster) -> None:
        self._shared = shared
        self._source = source
        self._owners: Owners = {}
        self._nodes: dict[Address, Node] = {}
        self._breaker = Breaker(monotonic_us, shared.timeout * 1e6)
        self._inquiry: asyncio.Task[None] | None = None

    async def take(self, take: Take) -> list[Decision]:
        """The decision of one take, whatever happens to the store."""
        try:
            return [cast("Decision", await self.submit(take))]
        except StoreError:  # it is told once for all who wait, where it came from
            return [self._shared.failover.decide(take)]

    def take_all(self, takes: Sequence[Take]) -> list[Coroutine[Any, Any, list[Decision]]]:
        """``take`` for several that come together."""
        return list(map(self.take, takes))

    async def submit(self, action: _wire.Action) -> Decision | None:
        """What comes of ``action``: in one call where all its keys are in one slot. Raises ``StoreError``."""
        parts = split(action)
        if len(parts) == 1:
            return await self._answer(parts[0])
        if type(action) is Take:
            return await _shielded(self._take(action, parts))
        answers = await self._answers(parts)
        if type(action) is _wire.Look:
            return joined(action.take, parts, cast("list[Decision]", answers))
        return None

    async def aclose(self) -> None:
        """Close all connections."""
        nodes, self._nodes, self._owners = self._nodes, {}, {}
        if self._inquiry is not None:
            self._inquiry.cancel()
        for node in nodes.values():
            await node.aclose()

    async def _take(self, take: Take, parts: list[Part]) -> Decision:
        """Each part on its own, in parallel; what was granted is given back where another part refuses."""
        if not take.best_effort and not take.max_wait:
            return await self._book_now(take)
        looks = cast("list[Decision]", await self._answers([_look(part) for part in parts]))
        seen = joined(take, parts, looks)
        if not seen.allowed:
            return seen
        if take.best_effort:
            granted = tuple([replace(charge, cost=seen.granted) for charge in take.charges])
            return replace(await self._book_now(replace(take, charges=granted, best_effort=False)), take=take)
        return await self._book_together(take, parts, latest_us(looks, 0.0))

    async def _book_now(self, take: Take) -> Decision:
        """``take`` without a wait, all or nothing."""
        asked_us, parts = self._shared.denials.now_us(), split(take)
        decisions = await self._decisions(parts)
        decision = joined(take, parts, decisions)
        if not decision.allowed:
            await self._give_back(decisions)
            self._shared.denials.note(decision, asked_us)
        return decision

    async def _book_together(self, take: Take, parts: list[Part], soonest_us: float) -> Decision:
        """``take`` with a wait: on all nodes the same one, the longest that any of them asks for."""
        for _ in range(TRIES):
            decisions = await self._decisions([_later(part, soonest_us, math.inf) for part in parts])
            latest = latest_us(decisions, soonest_us)
            if together(decisions) and latest <= take.max_wait_us:
                return joined(take, parts, decisions)
            await self._give_back(decisions)
            if latest > take.max_wait_us:
                return joined(take, parts, _too_late(take, parts, decisions, latest))
            soonest_us = latest
        raise StoreUnavailable("others came between each time that a take over several slots was to be booked")

    async def _decisions(self, parts: Sequence[Part]) -> list[Decision]:
        """The decisions on all parts. Where one fails, those that were granted are given back, and it is raised."""
        answers = await asyncio.gather(*map(self._answer, parts), return_exceptions=True)
        for failed in answers:
            if isinstance(failed, BaseException):
                await self._give_back([answer for answer in answers if isinstance(answer, Decision)])
                raise failed
        return cast("list[Decision]", answers)

    async def _give_back(self, decisions: Sequence[Decision]) -> None:
        settlements = [settlement_of(each, [0.0] * len(each.states)) for each in decisions if each.allowed]
        parts = [part for settlement in settlements if settlement for part in split(settlement)]
        await asyncio.gather(*map(self._answer, parts), return_exceptions=True)  # what is out keeps what it has

    async def _answers(self, parts: Sequence[Part]) -> list[Decision | None]:
        return list(await asyncio.gather(*map(self._answer, parts)))

    async def _answer(self, part: Part) -> Decision | None:
        answer = await (await self._node(part.slot)).send(part.action)
        return cast("Decision | None", answer[0] if isinstance(answer, list) else answer)

    async def _node(self, slot: int) -> Node:
        """The way to the primary of a slot. While that does not answer, it is asked whether another one took over."""
        if slot not in self._owners:
            await self._first_inquiry()
        if slot not in self._owners:
            raise StoreUnavailable(f"no node of the cluster owns slot {slot}")
        node = self._node_at(self._owners[slot])
        if node.breaker.is_open:
            if not node.breaker.lets_through():
                raise StoreUnavailable("the node is out, and was tried a moment ago")
            self._inquire()
        return node

    def _node_at(self, address: Address) -> Node:
        if address not in self._nodes:
            owns = partial(self._is_at, address)
            self._nodes[address] = Node(self._shared, self._source.pool, address, self._redirected, owns)
        return self._nodes[address]

    def _is_at(self, address: Address, charge: Charge) -> bool:
        return self._owners.get(slot_of(charge)) == address

    def _redirected(self, redirection: AskError, host: str) -> Address:
        """Where a redirection of the node at ``host`` leads; one for good is remembered."""
        address = self._source.remap((redirection.host or host, int(redirection.port)))
        if isinstance(redirection, MovedError):
            self._owners[redirection.slot_id] = address
        return address

    async def _first_inquiry(self) -> None:
        if self._inquiry is None and not self._breaker.lets_through():
            raise StoreUnavailable("the cluster is out, and was tried a moment ago")
        await asyncio.shield(self._inquire())
        if self._breaker.is_open:
            raise StoreUnavailable("no node of the cluster says who owns which slot")

    def _inquire(self) -> asyncio.Task[None]:
        """Ask who owns which slot, unless that is under way."""
        if self._inquiry is None or self._inquiry.done():
            self._inquiry = asyncio.get_running_loop().create_task(self._ask_for_owners())
        return self._inquiry

    async def _ask_for_owners(self) -> None:
        """Ask one node after the other, those that answer first, for as long as a call may take."""
        known = sorted(self._nodes, key=lambda address: self._nodes[address].breaker.is_open)
        failure: StoreError = StoreTimeout("no node of the cluster answers in time")
        try:
            async with asyncio.timeout(self._shared.timeout):
                for address in dict.fromkeys([*known, *self._source.seeds]):
                    try:
                        await self._learn_from(address)
                        return
                    except StoreError as error:
                        failure = error
        except TimeoutError:
            pass
        self._breaker.failed()
        self._shared.failover.out(failure, "the cluster")

    async def _learn_from(self, address: Address) -> None:
        """Ask the node at ``address`` who owns which slot. Raises ``StoreError``."""
        link = Link(self._source.pool(address), self._shared.timeout / 2)
        try:
            owners = owners_in(await link.ask("CLUSTER", "SLOTS"), address[0])
        finally:
            await link.aclose()
        self._owners = {slot: self._source.remap(owner) for slot, owner in owners.items()}
        self._breaker.succeeded()
        self._shared.failover.back("the cluster")
        await self._retire()

    async def _retire(self) -> None:
        """Let go of nodes that own no slot any more."""
        owning = set(self._owners.values())
        for address in [address for address in self._nodes if address not in owning]:
            node = self._nodes.pop(address)
            self._shared.failover.back(node.where)
            await node.aclose()


def _look(part: Part) -> Part:
    return Part(part.slot, part.places, _wire.Look(part.action))


def _later(part: Part, soonest_us: float, max_wait: float) -> Part:
    return Part(part.slot, part.places, no_sooner(part.action, soonest_us, max_wait))


def _too_late(take: Take, parts: Sequence[Part], decisions: Sequence[Decision], latest_us: float) -> list[Decision]:
    """The refusals of parts whose common slot is further away than ``take`` waits."""
    return [
        foresee(_later(part, latest_us, take.max_wait).action, each.before or (), each.now_us)
        for part, each in zip(parts, decisions)
    ]


async def _shielded(work: Coroutine[Any, Any, Decision]) -> Decision:
    """The result of what must be done whole, although its caller may be cancelled."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)

"""One Redis, or the primaries of a cluster, for one event loop: takes go there in batches, one script call each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from secrets import randbits
from typing import cast
from weakref import ref

from redis.exceptions import NoScriptError, ResponseError

from ...algorithms.rolling_window import MOST_BOOKED
from ...background import keep, see_all_through, unharmed
from ...clock import Clock, monotonic_us
from ...decision import Charge, Decision, Take
from ...errors import ConfigurationError, StoreError, StoreUnavailable
from ...logs import FailureLog
from ...quotas import BUCKETS_OF_ONE, SECOND_US, RollingWindow
from ..base import Decisions, Observer, Settled, Settlement, StoreCall, joined, undoing
from .batching import MAX_ITEMS, GroupCommit
from .clients import CLOSE_WITHIN, LONGEST_IDLE_S, Connection, Server, store_error_of, timed_out
from .denials import Denials
from .outage import NOTHING, Breaker, Outage
from .wire import HEAD, PEEK_ID, SCRIPT, SCRIPT_SHA, Action, Answer, NumberedTake, charges_of, decode, encode

# The most charges of token buckets in one call, so that Redis is never held for more than a few milliseconds.
MOST_WEIGHT = 512

# As how many charges a rolling window counts that has as many parts as slots can be booked for.
LONG_WINDOW = MOST_BOOKED // BUCKETS_OF_ONE

# Seconds until a trial where nobody takes anything; after each that fails it is twice as long, up to the second number.
IDLE_RETRY_S, LONGEST_IDLE_RETRY_S = 1.0, 8.0

# The number of entries of the outage ledger that are sent at a time.
REPAID_TOGETHER = 60

# The least time to live of a key when the clock is not the server's.
OWN_CLOCK_TTL_MS = 3_600_000

# The most connections to a node of a cluster, one for each slot of a batch.
MOST_CONNECTIONS = 32

_failures = FailureLog()


@dataclass(slots=True)
class Context:
    """What all nodes and event loops of one store share. ``timeout`` is in seconds."""

    server: Server
    prefix: str
    timeout: float
    clock: Clock | None
    operation_ttl_ms: int
    denials: Denials
    outage: Outage
    observers: dict[int, Observer] = field(default_factory=dict)


class Node(GroupCommit[Action, Answer]):
    """One Redis, called ``name`` in the log, for one event loop. A call that fails opens the breaker.

    It has all buckets, unless it is one of the ``nodes`` of a cluster.
    """

    def __init__(self, context: Context, connection: Connection, name: str, nodes: ClusterNodes | None = None) -> None:
        super().__init__(context.timeout, MOST_WEIGHT)
        self.breaker = Breaker(monotonic_us, context.timeout * SECOND_US)
        self.name, self.context, self.connection, self._nodes = name, context, connection, nodes
        # When a node of a cluster opens its connections anew, by the time of the event loop.
        self.renews_at = self._loop.time() + LONGEST_IDLE_S
        self._failure: StoreError | None = None
        self._repaying: asyncio.Task[None] | None = None
        self._next_trial: asyncio.TimerHandle | None = None

    def is_here(self, bucket: str) -> bool:
        """Whether a bucket is on this node."""
        return self._nodes is None or self._nodes.node_of(bucket) is self

    def take(self, take: NumberedTake) -> Decisions | Awaitable[Answer]:
        """The decision on a take, which the outage decides if Redis does not answer, at once while it is out."""
        if self.breaker.is_open:
            self._begin_trial(take.take.charges[0])
            return Decisions((self.context.outage.decide(take.take),))
        return self.submit(take, take.take.max_wait_us > 0.0)

    def _begin_trial(self, charge: Charge) -> None:
        """Begin a trial, if one is due: the settlement of nothing, which shows that Redis can write, too.

        Nobody waits for it.
        """
        if self.breaker.begin_call():
            keep(self, self.submit(Settlement(charge, NOTHING, 0.0, randbits(52), token=1)))

    def scheduled_trial(self, charge: Charge, waited_s: float) -> None:
        """While Redis is out, try also where nobody takes anything: the outage ledger may have entries for it."""
        self._next_trial = None
        if self.breaker.is_open:
            self._begin_trial(charge)
            self._schedule_trial(charge, min(2 * waited_s, LONGEST_IDLE_RETRY_S))

    def _schedule_trial(self, charge: Charge, delay_s: float) -> None:
        self._next_trial = self._loop.call_later(delay_s, _scheduled_trial, ref(self), charge, delay_s)

    def instead(self, action: Action, error: BaseException) -> Answer | BaseException:
        """The decision of the outage on a take that Redis did not answer; the error for anything else.

        A settlement waits for Redis, even if its caller is gone.
        """
        if not isinstance(error, StoreError):
            return error
        if self._next_trial is None:
            self._schedule_trial(charges_of(action)[0], IDLE_RETRY_S)
        if type(action) is NumberedTake and action.id and not action.is_part:
            return Decisions((self.context.outage.decide(action.take),))
        if type(action) is Settlement and action.id and not action.token:
            self.context.outage.ledger.postpone(action)
        return error

    def answer(self, action: Action) -> Awaitable[Answer]:
        """The answer to ``action``, which is submitted at once. May raise ``StoreError`` when it is awaited."""
        if isinstance(action, NumberedTake) and self.breaker.is_open:  # a peek, or a part of a take, is no trial
            self._begin_trial(action.take.charges[0])
        elif self.breaker.begin_call():
            return keep(self, self.submit(action))
        answer = keep(self, self._loop.create_future())
        error = StoreUnavailable(f"not called, because the last call failed: {self._failure}")
        self._end([(action, answer, 0.0, 0)], error)
        return answer

    async def aclose(self) -> None:
        """Answer what waits, and charge Redis with the outage ledger while it answers."""
        await asyncio.wait([self.repay_soon()], timeout=CLOSE_WITHIN)
        await self.drain()
        if self._next_trial is not None:
            self._next_trial.cancel()
        if self._nodes is None:
            await self.connection.aclose()

    def within_slot(self, settlement: Settlement) -> Settlement:
        """The settlement as it is: one server has all buckets."""
        return settlement

    def weight_of(self, action: Action) -> int:
        """As how many charges of a token bucket it counts, for the work that the script has with it.

        A rolling window can have thousands of parts where slots are booked ahead.
        """
        ahead = action.take.max_wait_us if isinstance(action, NumberedTake) else action.booked.slot - action.booked.at
        quotas = [charge.quota for charge in charges_of(action)]
        return sum([LONG_WINDOW if ahead > 0.0 and type(quota) is RollingWindow else quota.weight for quota in quotas])

    async def send(self, actions: list[Action]) -> Sequence[Answer | Exception]:
        """The answers to all actions; sums of the outage ledger for their buckets are charged before them."""
        since, outage = self._loop.time(), self.context.outage
        entries: list[Action] = []
        if outage.ledger:
            own = set(map(id, actions))
            buckets = {charge.bucket for action in actions for charge in charges_of(action)}
            entries = [each for each in outage.ledger.of_buckets(buckets) if id(each) not in own]
        error: StoreError | None = timed_out(self.context.timeout)
        try:
            sent = [*entries, *actions]
            answers = await self.carry_out(sent)
            error = next((each for each in answers if isinstance(each, StoreError)), None)
            if error is None:
                self._succeeded(sent, answers)
            else:
                self._failed(error)
            return answers[len(entries) :]
        finally:
            if self.context.observers:
                self._report(len(actions), self._loop.time() - since, error)

    def _report(self, size: int, seconds: float, error: Exception | None) -> None:
        outage = self.context.outage
        call = StoreCall(self.context.prefix, size, seconds, error, bool(outage.nodes), len(outage.ledger))
        for observer in self.context.observers.values():
            try:
                observer.store_called(call)
            except Exception as failure:  # noqa: BLE001  # it is the user's, and may raise anything
                _failures.report(f"the hook {observer!r} failed", failure, id(observer))

    async def carry_out(self, actions: Sequence[Action]) -> list[Answer | Exception]:
        """The answers to actions that one call of the script carries out; a ``StoreError`` for each if it fails."""
        context, mark = self.context, randbits(64).to_bytes(8, "little")
        own_clock, sent_us = context.clock, context.denials.now_us()
        now, least_ttl_ms = (-1.0, 1) if own_clock is None else (int(own_clock.now_us()), OWN_CLOCK_TTL_MS)
        keys, packed = encode(context.prefix, actions)
        argument = HEAD.pack(mark, now, least_ttl_ms, context.operation_ttl_ms) + packed
        try:
            client = self.connection.client or await self.connection.open()
            try:
                reply = await client.evalsha(SCRIPT_SHA, len(keys), *keys, argument)
            except NoScriptError:  # Redis forgets scripts when it restarts; then the text is sent, once
                context.outage.renew_soon()  # it may have forgotten what is held, too
                reply = await client.eval(SCRIPT, len(keys), *keys, argument)
            answers: list[Answer | Exception] = list(decode(actions, reply, mark))
        except Exception as error:  # noqa: BLE001  # redis-py raises many kinds
            failure = store_error_of(error, context.timeout, context.prefix)
            failure.__cause__ = None if failure is error else error
            return [failure] * len(actions)
        for at, (action, answer) in enumerate(zip(actions, answers)):
            if type(answer) is Decisions and not answer[0].allowed:
                context.denials.note(answer[0], sent_us)
            elif isinstance(answer, StoreUnavailable):  # the text of an error that Redis gave to the script
                answers[at] = store_error_of(ResponseError(str(answer)), context.timeout, context.prefix)
            elif context.denials.by_bucket and not (type(action) is NumberedTake and action.id == PEEK_ID):
                context.denials.forget(charges_of(action))
        return answers

    def _succeeded(self, actions: Sequence[Action], answers: Sequence[Answer | Exception]) -> None:
        """Close the breaker, once Redis has written, and charge it with the outage ledger from now on."""
        outage = self.context.outage
        if (self.breaker.is_open or outage.nodes) and any(map(_has_written, answers)):
            if self.breaker.is_open:  # it may have lost what this process holds, which goes before any later take
                for held in outage.held_of(self.is_here)[:MAX_ITEMS]:  # the others are put back soon
                    keep(self, self.submit(held))
            self.breaker.is_open = False
            client = self.connection.client if self._nodes else None  # it may have been closed
            primaries = {each.name for each in client.get_primaries()} if client else ()
            for each in [each for each in list(outage.nodes) if each == self.name or each not in primaries]:
                outage.store_is_back(each)  # others have the slots of a node that is no primary
        if outage.ledger:
            for action, answer in zip(actions, answers):
                if type(action) is Settlement and type(answer) is Settled:
                    outage.ledger.done(action)
            self.repay_soon()

    def _failed(self, failure: StoreError) -> None:
        self.breaker.record_failure()
        self._failure = failure
        self.context.outage.store_is_out(failure, self.name)
        self.connection.failed()
        self.fail_waiting(failure)

    def timed_out(self) -> Exception:
        """Redis has not answered a batch."""
        failure = timed_out(self.context.timeout)
        self._failed(failure)
        return failure

    def repay_soon(self) -> asyncio.Task[None]:
        """Charge Redis with the outage ledger in the background, unless that is under way."""
        if self._repaying is None or self._repaying.done():
            self._repaying = keep(None, self._loop.create_task(self._repay()))
        return self._repaying

    async def _repay(self) -> None:
        """Send entries, between the takes, until none is left or one fails."""
        ledger = self.context.outage.ledger
        while entries := ledger.some(REPAID_TOGETHER, self.is_here):
            answers = await asyncio.gather(*map(self.submit, entries), return_exceptions=True)
            if any(isinstance(answer, BaseException) for answer in answers):
                return


def _scheduled_trial(node: ref[Node], charge: Charge, waited_s: float) -> None:
    """Call ``Node.scheduled_trial``, unless the store of a node was dropped meanwhile."""
    if (living := node()) is not None:
        living.scheduled_trial(charge, waited_s)


def _has_written(answer: Answer | Exception) -> bool:
    return type(answer) is Settled or (type(answer) is Decisions and answer[0].id != 0)


class NodeOfCluster(Node):
    """One primary, which carries out each slot by a call of its own."""

    async def carry_out(self, actions: Sequence[Action]) -> list[Answer | Exception]:
        """The answers to actions, from one call for each slot."""
        parts: dict[str, list[Action]] = {}
        for action in actions:
            parts.setdefault(charges_of(action)[0].key, []).append(action)
        waiting, answers = list(parts.values()), dict[int, Answer | Exception]()
        client, time = self.connection.client, self._loop.time()
        if time >= self.renews_at:
            self.renews_at = time + LONGEST_IDLE_S
            if client is not None and (node := client.get_node(node_name=self.name)):
                # The server may have closed one that was idle, which redis-py does not see; closing may take too long
                await asyncio.gather(node.disconnect(), return_exceptions=True)
        while waiting:
            now, waiting = waiting[:MOST_CONNECTIONS], waiting[MOST_CONNECTIONS:]
            for part, result in zip(now, await asyncio.gather(*map(super().carry_out, now))):
                answers.update(zip(map(id, part), result))
        return [answers[id(action)] for action in actions]


class ClusterNodes:
    """All primaries of a cluster, for one event loop.

    A take whose keys are equal is one call. The charges of any other take are taken one key after the other, and given
    back where a later one refuses. Such a take is never booked ahead, whatever its ``max_wait``: it is granted if all
    of it fits now, else ``retry_after`` is the longest wait of its parts.
    """

    def __init__(self, context: Context, connection: Connection, name: str) -> None:
        self._context = context
        self._connection = connection
        self._nodes: dict[str, Node] = {}
        # Stands for all nodes until one has said which slot is where.
        self._unknown = NodeOfCluster(context, connection, name, self)

    def node_of(self, bucket: str) -> Node:
        """The node that has a bucket."""
        client = self._connection.client
        if client is None:
            return self._unknown
        name: str = client.get_node_from_key(f"{self._context.prefix}:{bucket}").name
        if name not in self._nodes:
            node = self._nodes[name] = NodeOfCluster(self._context, self._connection, name, self)
            node.renews_at = self._unknown.renews_at  # the client has opened its connections before
            node.repay_soon()
        return self._nodes[name]

    def take(self, take: NumberedTake) -> Decisions | Awaitable[Answer]:
        """The decision on a take, of one key or of several; the outage decides if a node does not answer.

        A caller that gives up does not end a take of several keys, of which some may be charged.
        """
        if len(_parts_of(take.take)) == 1:
            return self.node_of(take.take.charges[0].bucket).take(take)
        return unharmed(keep(self, asyncio.ensure_future(self._take(take))))

    def answer(self, action: Action) -> Awaitable[Answer]:
        """The answer to an action of one key, or to a peek of several. May raise ``StoreError`` when it is awaited."""
        if isinstance(action, NumberedTake) and len(_parts_of(action.take)) > 1:
            return self._peek_all(action.take)
        return self.node_of(charges_of(action)[0].bucket).answer(action)

    async def _peek_all(self, take: Take) -> Answer:
        return Decisions((_joined(take, await self._peek(take), PEEK_ID),))

    def within_slot(self, settlement: Settlement) -> Settlement:
        """A settlement that can be carried out where its bucket is: each part of an operation is forgotten there."""
        if settlement.undone is None:
            return settlement
        parts = _parts_of(settlement.undone)
        return replace(settlement, undone=next(part for part in parts if settlement.charge.key == part.charges[0].key))

    async def aclose(self) -> None:
        """Answer what waits, and close the connections."""
        await see_all_through(self)
        await self._unknown.aclose()  # which finds the nodes of the outage ledger
        await asyncio.gather(*[node.aclose() for node in self._nodes.values()])
        await self._connection.aclose()

    async def _take(self, numbered: NumberedTake) -> Decisions:
        """Take the parts one after the other; if one is refused, the earlier ones are given back."""
        if numbered.take.best_effort:
            raise ConfigurationError("best_effort on a cluster needs one key for all quotas: take from each by itself")
        take, sent_us = replace(numbered.take, max_wait=0.0), self._context.denials.now_us()
        decisions: list[Decision] = []
        with suppress(StoreError):  # the node has logged it
            for part in _parts_of(take):
                decisions.append(await self._decision(part, numbered.id))
                if not decisions[-1].allowed:
                    break
            else:
                earlier = next((each.id for each in decisions if each.repeated), numbered.id)
                return Decisions((_joined(take, decisions, earlier),))
        for settlement in [each for earlier in decisions if not earlier.repeated for each in undoing(earlier)]:
            with suppress(StoreError):  # what a node cannot take back now stays charged
                await self.answer(settlement)
        with suppress(StoreError):
            if decisions and not decisions[-1].allowed:
                return Decisions((await self._refused(take, decisions[-1].wait_us, sent_us),))
        return Decisions((self._context.outage.decide(numbered.take),))

    async def _refused(self, take: Take, wait_us: float, sent_us: float) -> Decision:
        """The refusal of a take, with the longest wait of all parts, now that nothing of it is taken."""
        parts = await self._peek(take)
        longest_us, latest_us = max(wait_us, *[each.wait_us for each in parts]), max(each.now_us for each in parts)
        refused = replace(_joined(take, parts, 0), allowed=False, wait_us=longest_us)
        self._context.denials.note(replace(refused, now_us=latest_us), sent_us)  # no node's time is behind that
        return refused

    async def _peek(self, take: Take) -> list[Decision]:
        return [await self._decision(part, PEEK_ID) for part in _parts_of(take)]

    async def _decision(self, part: Take, identity: int) -> Decision:
        (decision,) = cast("Decisions", await self.answer(NumberedTake(part, identity, is_part=True)))
        return decision


def _parts_of(take: Take) -> list[Take]:
    """The take, as one take for each of its keys."""
    keys = dict.fromkeys([charge.key for charge in take.charges])
    if len(keys) == 1:
        return [take]
    return [replace(take, charges=tuple([each for each in take.charges if each.key == key])) for key in keys]


def _joined(take: Take, decisions: Sequence[Decision], identity: int) -> Decision:
    """One decision of the decisions on the parts of a take."""
    own = {"allowed": all(decisions), "id": identity, "repeated": any(each.repeated for each in decisions)}
    wait_us, now_us = max(each.wait_us for each in decisions), min(each.now_us for each in decisions)
    return joined(take, decisions, **own, wait_us=wait_us, now_us=now_us, asked_us=0.0)

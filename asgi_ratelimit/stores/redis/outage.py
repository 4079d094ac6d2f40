"""What happens while Redis is out: who decides, what is still to be charged there, and when it is tried again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from secrets import randbits

from ...algorithms import Booked
from ...algorithms.in_flight import ENDS, HOLDS, InFlightState
from ...algorithms.take import State, decide, in_use, place_of, unused
from ...clock import Clock
from ...decision import Charge, Decision, OnError, Take, checked_on_error
from ...errors import QuotaError, StoreError, require_number
from ...logs import FailureLog, logger
from ...quotas import InFlight, Quota, TokenBucket
from ..base import Settled, Settlement, lease_settlement, lock
from ..memory import MemoryStore, Remembered

# A charge of nothing.
NOTHING = Booked(0.0, 0.0, 0.0, 0.0)

# The least microseconds between the end of one failed call and the next trial.
RETRY_EVERY_US = 100_000.0

# The wait of a take that ``on_error="deny"`` refuses.
DENIED_FOR_US = 1_000_000.0

# The most buckets of the outage ledger, and the most settlements that wait for Redis.
MOST_BUCKETS = 100_000


class Breaker:
    """Opens when a call fails, and then lets one call at a time try whether Redis is back.

    ``now_us`` is a clock that never jumps; a trial that has not ended after ``longest_us`` no longer keeps others from
    trying.
    """

    def __init__(self, now_us: Callable[[], float], longest_us: float) -> None:
        self.is_open = False
        self._now_us = now_us
        self._longest_us = longest_us
        self._next_us = 0.0

    def begin_call(self) -> bool:
        """Whether a call may be made now; while the breaker is open, that is a trial."""
        if not self.is_open:
            return True
        now = self._now_us()
        if now < self._next_us:
            return False
        self._next_us = now + self._longest_us + RETRY_EVERY_US
        return True

    def record_failure(self) -> None:
        """A call has failed."""
        self.is_open = True
        self._next_us = self._now_us() + RETRY_EVERY_US


class OutageLedger:
    """What was taken here while Redis was out, and is still to be charged there: one number for each bucket.

    A sum is sent as a settlement with an id, so it is charged once, however often it is sent; what is taken meanwhile
    makes another sum. What has come back meanwhile is not charged: a sum is no more than what is ``in_use`` of its
    bucket when it is sent. It also holds settlements that wait for Redis. Threads share it.
    """

    def __init__(self, in_use: Callable[[str], float]) -> None:
        self._in_use = in_use
        self._lock = threading.Lock()
        # By bucket, what has not been sent yet.
        self._sums: dict[str, Settlement] = {}
        # By bucket, sums that were sent, whose answers may have been lost; by their marks, settlements that wait.
        self._sent: dict[str, Settlement] = {}
        self._log = FailureLog()

    def __len__(self) -> int:
        return len(self._sums) + len(self._sent)

    def add(self, charge: Charge, units: float) -> None:
        """Note that units of a bucket were taken; fewer than 0 were given back, as far as they are not sent yet.

        All count as taken when Redis is back, by its clock.
        """
        with self._lock:
            entry = self._sums.get(charge.bucket)
            total = units if entry is None else entry.actual + units
            if total <= 0.0:
                self._sums.pop(charge.bucket, None)
            elif entry is not None or self._has_room(self._sums):
                identity = randbits(52) if entry is None else entry.id
                self._sums[charge.bucket] = Settlement(charge, NOTHING, total, identity, token=identity)

    def is_waiting(self, settlement: Settlement) -> bool:
        """Whether a settlement of the same charge of the same decision waits for Redis."""
        return settlement.text in self._sent

    def postpone(self, settlement: Settlement) -> None:
        """Keep a settlement until Redis is back."""
        with self._lock:
            if self._has_room(self._sent):
                self._sent.setdefault(settlement.text, settlement)

    def of_buckets(self, buckets: Iterable[str]) -> list[Settlement]:
        """The sums of these buckets, which are being sent from now on."""
        with self._lock:
            return [each for bucket in buckets for each in self._begin(bucket)]

    def some(self, most: int, is_here: Callable[[str], bool]) -> list[Settlement]:
        """Some entries for which ``is_here`` is true of the bucket, which are being sent from now on."""
        with self._lock:
            keys = list(islice(filter(is_here, chain(self._sent, self._sums)), most))
            return [each for key in dict.fromkeys(keys) for each in self._begin(key)]

    def _begin(self, key: str) -> list[Settlement]:
        """The sum of a bucket that is sent now; what has been taken since an earlier one was sent stays behind."""
        entry = self._sent.get(key) or self._sums.pop(key, None)
        if entry is None:
            return []
        self._sent[key] = entry
        if entry.token:  # it is a sum
            newer = self._sums.get(key)
            before = self._in_use(key) - (0.0 if newer is None else newer.actual)
            entry.actual = min(entry.actual, max(before, 0.0))
        return [entry]

    def done(self, settlement: Settlement) -> None:
        """Redis has carried it out."""
        with self._lock:
            for key in (settlement.charge.bucket, settlement.text):
                if self._sent.get(key) is settlement:
                    del self._sent[key]

    def forget(self, charges: Iterable[Charge]) -> None:
        """Drop the sums of buckets that are reset."""
        with self._lock:
            for charge in charges:
                self._sums.pop(charge.bucket, None)
                self._sent.pop(charge.bucket, None)

    def _has_room(self, entries: Sized) -> bool:
        if len(entries) < MOST_BUCKETS:
            return True
        if self._log.unreported(None) is not None:
            text = "the outage ledger is full: what more than %d buckets take is never charged to the rate limit store"
            logger.error(text, MOST_BUCKETS)
        return False


class Outage:
    """Decisions for the time that the store is out, each ``degraded``; logs when the store goes out and comes back.

    ``"local"`` limits in this process, with the quotas divided by ``replicas``, the number of processes that share the
    store, but never to less than one take that the whole quota can grant. It writes what it admits into the ledger.
    ``"allow"`` admits all takes, and ``"deny"`` refuses all. Raises ``ConfigurationError`` for any other ``on_error``.
    """

    def __init__(self, on_error: OnError, replicas: int, clock: Clock, operation_ttl: float) -> None:
        require_number("replicas must be a whole number of at least 1", replicas, 1, math.inf, "replicas=4", int)
        self._on_error = checked_on_error(on_error)
        self._replicas = replicas
        self._clock = clock
        self.local = MemoryStore(clock=clock, operation_ttl=operation_ttl)
        # By bucket, the least units of its share, which takes of any cost have for a period after a large one.
        self._least: Remembered[float] = Remembered(MOST_BUCKETS)
        # By share, the whole quota.
        self._whole: Remembered[Quota] = Remembered(MOST_BUCKETS)
        # The renewals of what this process holds of the buckets for which a function is true.
        self.held_of: Callable[[Callable[[str], bool]], Sequence[Settlement]] = lambda is_asked: ()
        # Puts back what this process holds, which a store that is back may have lost.
        self.renew_soon: Callable[[], None] = lambda: None
        # The names of the nodes that are out.
        self.nodes: set[str] = set()
        self.begin_ledger()

    def begin_ledger(self) -> None:
        """Begin with an empty ledger."""
        self.ledger = OutageLedger(self._in_use)

    def store_is_back(self, node: str) -> None:
        """Note that the store, or one ``node`` of it, which was out, answers again."""
        self.nodes.discard(node)
        self.renew_soon()
        logger.warning("the rate limit store at %s is back", node)

    def store_is_out(self, error: StoreError, node: str) -> None:
        """Note that the store, or one ``node`` of it, does not answer."""
        if node not in self.nodes:
            self.nodes.add(node)
            text = "the rate limit store at %s is out, so on_error=%r decides, unless a limit has its own: %s"
            logger.error(text, node, self._on_error, error)

    def earlier(self, take: Take) -> Decision | None:
        """The answer that the operation of a take has had here, which is charged by the ledger."""
        answer = self.local.earlier(take)
        return None if answer is None else replace(answer, degraded=True)

    def decide(self, take: Take) -> Decision:
        """The decision on ``take`` without the store."""
        on_error, now = take.on_error or self._on_error, float(self._clock.now_us())
        if on_error == "local":
            return self._decide_locally(take, now)
        states = [unused(charge.quota, now) for charge in take.charges]
        if on_error == "allow":
            return Decision(take, True, 0.0, states, now, degraded=True)
        wait_us, after = decide(take.charges, states, now, take.max_wait_us)
        if after is None:  # it can never pass
            return Decision(take, False, wait_us, states, now, degraded=True)
        return Decision(replace(take, max_wait=0.0), False, DENIED_FOR_US, states, now, degraded=True)

    def _decide_locally(self, take: Take, now: float) -> Decision:
        with lock:  # of other event loops
            charges = tuple([self._shared(charge, take, now) for charge in take.charges])
        for charge in charges:
            if type(charge.quota) is InFlight:
                self.local.settle_now(self.held_of(charge.bucket.__eq__))
                take = replace(take, max_wait=0.0)  # no lease waits here: only the first caller looks
        decision = self.local.take((replace(take, charges=charges),))[0]
        if decision.allowed and not decision.wait_us:
            decision = replace(decision, stored=list(map(self._renamed, charges, decision.stored)))
        if decision.allowed and not decision.repeated:
            for charge, own in zip(take.charges, decision.take.charges):
                if type(own.quota) is not InFlight:  # what is still held then is put into the store by renewals
                    self.ledger.add(charge, own.cost)
        return replace(decision, degraded=True)

    def _renamed(self, charge: Charge, state: State) -> State:
        """The state in which the lease of a charge, if it is one, has an id that no other process has in the store."""
        if not isinstance(state, InFlightState):
            return state
        lease, (*others, (_, end)) = place_of(charge.quota, state), state.leases
        unique = lease - randbits(32)  # an earlier one, so that later ids stay near the time
        self.local.settle_now((lease_settlement(charge, lease, ENDS), lease_settlement(charge, unique, HOLDS)))
        return InFlightState(state.at, (*others, (unique, end)))

    def settle(self, settlement: Settlement) -> Settled:
        """Settle a charge that was decided here: less changes what is still to be charged, more is added to it."""
        (settled,) = self.local.settle_now((settlement,))
        if settled.is_first and type(settlement.charge.quota) is not InFlight:
            charge = settlement.charge
            whole = replace(charge, quota=self._whole.find(charge.quota, 0.0) or charge.quota)
            self.ledger.add(whole, settlement.actual - settlement.booked.cost)
        return settled

    def _in_use(self, bucket: str) -> float:
        """The units of a bucket that this process still counts as used; no bound if it has forgotten them."""
        held = self.local.held(bucket)
        return math.inf if held is None else in_use(*held, float(self._clock.now_us()))

    def _shared(self, charge: Charge, take: Take, now: float) -> Charge:
        """The charge of this process's share of a quota: a take that fits the whole quota must fit the share too."""
        if self._replicas == 1:
            return charge
        own = _share(charge.quota, self._replicas, min(self._least.find(charge.bucket, now) or 1, charge.quota.most))
        if own.most < charge.cost <= charge.quota.most and not take.best_effort:
            least = min(2.0 ** math.ceil(math.log2(charge.cost)), charge.quota.most)  # so that a bucket has few shares
            self._least.add(charge.bucket, least, now, now + charge.quota.period_us)
            own = _share(charge.quota, self._replicas, least)
        self._whole.add(own, charge.quota, now, math.inf)
        return replace(charge, quota=own)


@lru_cache(maxsize=1024)
def _share(quota: Quota, replicas: int, least: float) -> Quota:
    """One replica's share of a quota, at least ``least`` units at once."""
    if isinstance(quota, InFlight):
        return replace(quota, limit=max(1, quota.limit // replicas))
    with suppress(QuotaError):  # a burst of the least would take more than a hundred years to come back
        if isinstance(quota, TokenBucket):
            return replace(quota, limit=quota.limit / replicas, burst=max(least, quota.burst / replicas))
        return replace(quota, limit=max(least, quota.limit / replicas))
    return quota

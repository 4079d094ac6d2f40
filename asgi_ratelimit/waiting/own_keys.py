"""Takes over several keys, where the last one is shared with others: 10 in 10 seconds for each guild, 50/s for all.

A slot booked far ahead in the own quota would hold the shared one empty until then, and one busy key would stop all the
others. So the callers of an own key wait at a gate without booking: one at a time looks when its own quota will have
room, sleeps until then, and books all charges at once; only the shared quota's own short wait is booked ahead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace

from ..algorithms import decide, foresee
from ..clock import Clock, time_of
from ..decision import Decision, Take
from ..errors import PaceTimeout
from ..quotas import SECOND_US
from ..stores import Store
from .concurrency import Gates, pass_gate
from .drivers import Ask, Flow, sleep

SLACK_US = 50_000.0
"""How much further ahead than foreseen the shared quota may be booked: others book, too, between look and take.

What another process takes of the own quota in that time may hold the shared one empty for as long as this.
"""


def own_part(take: Take) -> Take | None:
    """The charges of all keys but the last, which is shared; ``None`` where there is only one key."""
    if len(take.charges) == 1:
        return None
    shared = take.charges[-1].key
    own = tuple([charge for charge in take.charges if charge.key != shared])
    return Take(own, take.max_wait) if own else None


def too_far(take: Take, decision: Decision) -> PaceTimeout:
    """What to raise where ``take`` was refused."""
    key = take.charges[0].key
    if decision.degraded:
        return PaceTimeout(f"no slot for {key!r}: the store is out, and its on_error refuses", decision)
    if decision.retry_after == math.inf:
        return PaceTimeout(f"no slot for {key!r}, ever: the cost is above what {decision.quota!r} can give", decision)
    away = take.max_wait + decision.retry_after
    return PaceTimeout(f"the next slot for {key!r} is {away:.6g} s away, max_delay is {take.max_wait:g} s", decision)


def refused(decision: Decision, too_long_us: float) -> Decision:
    """A decision as it is for one who cannot wait so long."""
    return replace(decision, allowed=False, granted=0, delay=0.0, retry_after=max(too_long_us, 0.0) / SECOND_US)


class OwnKeys:
    """Books takes over several keys. ``ask`` books a take if it can, and answers either way."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None,
        gates: Gates,
        ask: Callable[[Take], Flow[Decision]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._now_us = time_of(clock)
        self._gates = gates
        self._ask = ask

    def book(self, take: Take, own: Take) -> Flow[Decision]:
        """Wait for the own keys, then book all; raises ``PaceTimeout``."""
        deadline_us = self._now_us() + take.max_wait_us
        key = tuple([charge.bucket for charge in own.charges])
        yield from self._enter(key, take, own, deadline_us)
        try:
            return (yield from self._book_first(take, own, deadline_us))
        finally:
            self._gates.leave(key)

    def _enter(self, key: Hashable, take: Take, own: Take, deadline_us: float) -> Flow[None]:
        if take.max_wait < math.inf:
            yield from self._require_near(own, self._gates.ahead(key))
        if not (yield from pass_gate(self._gates, key, self._clock, deadline_us)):
            looked: Decision = yield Ask(self._store, self._store.peek(take))
            raise too_far(take, refused(looked, 0.0))

    def _require_near(self, own: Take, ahead: int) -> Flow[None]:
        """Whether the own keys will have room in time, with so many callers ahead who have booked nothing."""
        looked: Decision = yield Ask(self._store, self._store.peek(own))
        states = looked.before or [None] * len(own.charges)
        for _ in range(ahead + 1):
            decision, states = decide(own, states, looked.now_us)
            if not decision.allowed:
                raise too_far(own, decision)

    def _book_first(self, take: Take, own: Take, deadline_us: float) -> Flow[Decision]:
        patience_us, slack_us = 0.0, SLACK_US
        while True:
            decision = yield from self._ask(replace(take, max_wait=patience_us / SECOND_US))
            if decision.allowed:
                return decision
            own_us, longest_us = _waits(take, own, decision)
            too_long_us = longest_us if longest_us == math.inf else self._now_us() + longest_us - deadline_us
            if decision.before is None or too_long_us > 0.0:
                raise too_far(take, refused(decision, too_long_us))
            if own_us > 0.0:
                yield from sleep(self._clock, own_us)
                patience_us = 0.0
            else:
                patience_us, slack_us = longest_us + slack_us, 2 * slack_us


def _waits(take: Take, own: Take, decision: Decision) -> tuple[float, float]:
    """Microseconds until the own part of a refused take would conform, and until all of it would."""
    if decision.before is None:
        return 0.0, 0.0
    waits = []
    for charge, state in zip(take.charges, decision.before):
        foreseen = foresee(Take((charge,), math.inf), [state], decision.now_us)
        waits.append(foreseen.delay * SECOND_US if foreseen.allowed else math.inf)
    return max([wait for charge, wait in zip(take.charges, waits) if charge in own.charges]), max(waits)

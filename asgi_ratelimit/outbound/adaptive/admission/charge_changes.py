"""How the charge of a learned bucket changes for all processes, when an answer shows that it has another size.

The new charge is to a bucket of the store that knows of no request yet. If processes simply went on with it, they would
use all units a second time. So the process that has the answer takes these steps; ``Publisher`` carries them out:

1. From now on, it charges its own requests by the new charge: ``apply_new_rates``.
2. It fills the bucket of the new charge: ``ChargeChange.fill``. So nobody can use a unit of it before step 6.
3. It reads the document of the route. If another process has written at least as much (``is_no_less``), it adopts that,
   gives back what it has filled, and is done: the other process takes the steps that follow.
4. Otherwise, it writes the document.
5. It fills the bucket of the old charge: ``ChargeChange.close``. So requests of other processes, which still have the
   old charge, are refused. These processes then read the document, and go on with the new charge.
6. What was left of the bucket in step 5 shows how many units are really used: ``ChargeChange.used``. The others of
   those that were filled in step 2 are given back.

If there is no old charge, because the bucket was unknown, step 2 fills only as many units as the answer says are used.
They are never given back, and steps 5 and 6 are left out.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ....decision import Charge, Decision, Take
from ....quotas import RollingWindow, TokenBucket
from ..queued_requests import Call
from ..server_buckets import LEAST, Rate
from .shared_quotas import EQUAL, learned_charge, raised_to, rate_of, used_up

CLOSED_S = 3.0
"""For how many seconds a bucket stays full after it was closed."""


class ChargeChange(NamedTuple):
    """A bucket whose requests are charged differently from now on: with ``charge``, and before with ``old``.

    The answer behind this change has left ``reported`` units.
    """

    charge: Charge
    reported: float
    old: Charge | None

    def fill(self) -> Take:
        """Step 2: a take of the units that may be used already, which are all of them if there is an old charge."""
        limit = self.charge.quota.limit
        return used_up(self.charge, limit - self.reported) if self.old is None else raised_to(self.charge, limit)

    def close(self, old: Charge) -> Take:
        """Step 5: a take of everything that the bucket of the old charge has, and of what comes back for a while."""
        refilled = CLOSED_S / old.quota.period if isinstance(old.quota, TokenBucket) else 0.0
        return raised_to(old, old.quota.limit * (1.0 + refilled))

    def used(self, closed: Decision) -> float:
        """Step 6: how many units may really be used, according to the earlier charges that ``close`` has shown.

        If a window was mistaken for units that come back one by one, these are the charges within the length of the
        window. Otherwise, the number is not known.
        """
        quota, old = self.charge.quota, self.old and self.old.quota
        if not isinstance(quota, RollingWindow) or not isinstance(old, TokenBucket):
            return min(quota.most + 1.0, quota.limit)
        refill = old.limit / old.period
        level = closed.states[0].reset_after * refill - closed.granted
        charged = math.floor((level + quota.period * refill) / self.charge.cost + LEAST) * self.charge.cost
        return max(charged, quota.limit - self.reported)


def apply_new_rates(call: Call) -> list[ChargeChange]:
    """Step 1, for all buckets of a request's route; return the changes that steps 2 to 6 are for."""
    host, changes = call.host.name, []
    new_rates = [(bucket, rate_of(bucket)) for bucket in call.route.buckets]
    for bucket, rate in new_rates:
        old, bucket.stored.rate = bucket.stored.rate, rate
        if rate is not None and (old is None or old != rate._replace(is_sure=old.is_sure)):
            charge = learned_charge(host, bucket.name, rate, bucket.size.cost)
            before = None if old is None else learned_charge(host, bucket.name, old, bucket.size.cost)
            changes.append(ChargeChange(charge, bucket.stored.reported, before))
    return changes


def is_no_less(known: Rate | None, learned: Rate | None) -> bool:
    """Whether what another process has written about a bucket is at least as certain as what this one has learned."""
    if known is None or learned is None:
        return learned is None
    if known.limit != learned.limit or known.is_sure < learned.is_sure:
        return False
    if not learned.is_sure and (known.is_sure or (known.burst and known.refills and not learned.refills)):
        return True
    has_burst = (known.burst or known.limit) >= (learned.burst or learned.limit)
    return known.refills == learned.refills and has_burst and known.period >= learned.period * (1.0 - EQUAL)

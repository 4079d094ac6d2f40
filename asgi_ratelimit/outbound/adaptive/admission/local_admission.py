"""Admission over a store that holds only declared quotas and pauses: one for one process, or one without documents."""

from __future__ import annotations

from ....decision import Charge, Take
from ....limiter import Limiter
from ....quotas import SECOND_US
from ....waiting import Flow, SlotWaiter
from ...sending.pauses import Pauses
from ..queued_requests import Call
from ..server_buckets import ProbedBucket
from .locked_model import LockedModel

LONGEST_KEY = 250
"""The most characters in the key of a pause."""


class LocalAdmission:
    """Lets requests wait for the declared quota, and for pauses; the model knows how much is left of a bucket."""

    def __init__(self, locked: LockedModel, slots: SlotWaiter, limiter: Limiter | None, name: str) -> None:
        self._locked = locked
        self._slots = slots
        self._limiter = limiter
        self._pauses = Pauses(slots.store, name, slots.now_us)

    def enter(self, call: Call) -> Flow[bool]:
        """Whether an admitted request is sent now; if not, it waits in the model again."""
        take = None if self._limiter is None else self._take(self._limiter, call)
        if take is not None:
            call.taken.append((yield from self._slots.wait(take)))
        lefts_us: list[float] = []
        if self._pauses:
            lefts_us = yield from self._pauses.each_left_us([_key(call, bucket) for bucket, _ in call.probed()])
        if take is not None:
            yield from self._slots.depart(take.charges)
        with self._locked as model:
            now_us = self._slots.now_us()
            for (bucket, _), left_us in zip(call.probed(), lefts_us):
                if left_us > 0.0:
                    bucket.pause(now_us + left_us)
            is_sent = model.sends(call, now_us)
        if is_sent:
            call.taken.clear()
        else:
            yield from self.leave(call)
        return is_sent

    def leave(self, call: Call) -> Flow[None]:
        """Give back the slot of the declared quota of a request that is not sent."""
        taken, call.taken = call.taken, []
        for decision in taken:
            yield from self._slots.pass_on(decision)

    def answered(self, call: Call, paused: tuple[ProbedBucket, ...]) -> Flow[None]:
        """Let all transports on the store wait for the buckets that an answer has paused."""
        for bucket in paused:
            left_us = bucket.paused_us(self._slots.now_us())
            yield from self._pauses.begin(_key(call, bucket), left_us / SECOND_US)

    def died(self, _call: Call) -> Flow[None]:
        """Note that a request has failed."""
        yield from ()

    def _take(self, limiter: Limiter, call: Call) -> Take:
        left_s = max(call.deadline_us - self._slots.now_us(), 0.0) / SECOND_US
        return Take(tuple([Charge(quota, call.host.name, 1, limiter.name) for quota in limiter.quotas]), left_s)


def _key(call: Call, bucket: ProbedBucket) -> str:
    """The key of a bucket's pause in the store."""
    return f"{call.host.name} {bucket.name}"[:LONGEST_KEY]

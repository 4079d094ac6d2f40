"""The record of an operation that Redis was charged with after an outage: where its units are, for all who send it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis
from asgi_ratelimit.stores.redis.outage.repayments import Repayments
from asgi_ratelimit.stores.redis.script_actions import Action, Answer, Repaid, Repayment
from asgi_ratelimit.stores.redis.script_encoding import decode, encode
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import debited, unpack, used
from asgi_ratelimit.decision import Charge, Decision, Settlement, Take
from asgi_ratelimit.errors import StoreError
from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from asgi_ratelimit.stores.operations import settled_as, take_text
from tests.support.direct_script import BIRTHS, NOW_US, SCRIPT
from tests.support.examples import up_to
from tests.support.redis_server import RedisServer
from tests.support.strategies import costs, quotas, steps_us

TTL_US = 3e13  # no operation is forgotten
UNITS = struct.Struct("<dd")


class Server:
    """The script on one Redis, and the time there."""

    def __init__(self, client: redis.Redis) -> None:
        self.client, self.now_us, self._births = client, NOW_US, BIRTHS
        self._sha = client.script_load(SCRIPT)
        client.flushdb()

    def answer(self, action: Action) -> Answer | StoreError:
        """The answer to one action, now."""
        self._births += 10
        keys, packed_quotas, packed = encode(b"rl", [action], TTL_US)
        arguments = (packed_quotas, packed, b"%d" % self.now_us, 3_600_000, self._births, b"mark ")
        reply = self.client.evalsha(self._sha, len(keys), *keys, *arguments)
        return decode([action], reply, self._births)[0][0]

    def debit(self, charge: Charge, units: float) -> None:
        """Others use so many units, whether they fit or not."""
        self.answer(Settlement(float(self._births), (debited(charge, units),)))

    def used(self, charge: Charge) -> float:
        """The units of a bucket that are in use."""
        state = unpack(charge.quota, self.client.get(b"rl:" + charge.bucket.encode()))
        return 0.0 if state is None else used(charge.quota, state, float(self.now_us))

    def record(self, take: Take) -> bytes:
        """The record of an operation."""
        record: bytes = self.client.get(self.key(take))
        return record

    def key(self, take: Take) -> bytes:
        """The key of a record."""
        return b"rl:" + take_text(take).encode()


@pytest.fixture(scope="module")
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as made:
        yield made


def repayment(take: Take, *owed: float) -> Repayment:
    """What a take owes after an outage."""
    settled = tuple([debited(charge, units) for charge, units in zip(take.charges, owed)])
    return Repayment(take_text(take), settled, 0.0, True)


def of_repaying_process(take: Take, repaid: Repaid, actual: float) -> list[Settlement]:
    """What the process of the outage sends to Redis, when it settles a take that it was repaid for."""
    repayments, sent = Repayments(), repayment(take, *[charge.cost for charge in take.charges])
    repayments.add(sent)
    repayments.remove(sent, repaid)
    settled = tuple([replace(debited(charge, 0.0), actual=actual) for charge in take.charges])
    undone = None if actual else take
    return repayments.settle(Settlement(1.0, settled, True, undone=undone, taken=take), [take], "name")


@given(data=st.data())
@up_to(400)
def test_no_more_comes_back_than_was_debited(client: redis.Redis, data: st.DataObject) -> None:
    """Whatever others use before and after, they keep it; all who settle the operation settle it as the same."""
    quota: Quota = data.draw(quotas("quota"))
    charge, control = Charge(quota, "key", data.draw(costs(quota.most))), Charge(quota, "control")
    take = Take((charge,), may_settle=True, operation="id")
    owed = charge.cost * data.draw(st.sampled_from([1.0, 0.5, 0.001, 0.0]) | st.floats(0.001, 1.0))
    actual = charge.cost * data.draw(st.sampled_from([0.0, 0.25, 1.5]) | st.floats(0.0, 2.0))
    server = Server(client)
    most = 0.9 * (quota.most - owed) if isinstance(quota, TokenBucket) else math.inf  # so that what is repaid fits
    for step in ("others", "repayment", "others", "others"):
        if step == "repayment":
            repaid = server.answer(repayment(take, owed))
            assert isinstance(repaid, Repaid)
        else:
            units = min(data.draw(costs(quota.most)), most)
            most = math.inf
            server.debit(charge, units)
            server.debit(control, units)
        server.now_us += data.draw(steps_us(quota))
    decision = server.answer(take)
    assert isinstance(decision, Decision)
    assert decision.allowed
    assert server.answer(repayment(take, charge.cost)) == Repaid(repaid.id, list(repaid.settled_charges))
    settlement, before = settled_as(decision, [actual]), server.used(charge)
    if settlement is not None and any(each.actual != each.charge.cost for each in settlement.settled_charges):
        assert of_repaying_process(take, repaid, actual) == [replace(settlement, taken=None)]
    if settlement is None:
        return
    assert [server.answer(settlement) for _ in range(2)] == [True, False]
    noise = 5e-6 + 5 / quota.period_us + 1e-9 * quota.most  # costs are rounded
    if actual > charge.cost:
        assert server.used(charge) == pytest.approx(before + actual - charge.cost, abs=noise)
    else:
        assert before + noise >= server.used(charge) >= max(before - owed, server.used(control)) - noise


QUOTAS = [TokenBucket(10, 60, name="bucket"), FixedWindow(10, 60, name="fixed"), RollingWindow(10, 60, name="rolling")]


def test_what_a_record_holds(client: redis.Redis) -> None:
    """The quota of each charge, its cost, and that with what was debited: so much was added to the older format."""
    server = Server(client)
    take = Take(tuple([Charge(quota, "key", 4) for quota in QUOTAS]), may_settle=True, operation="id")
    server.answer(repayment(take, 1.5, 4.0, 0.0))
    record = server.record(take)
    assert len(record) == 32 + 3 * 4 + 3 * (56 + 16)
    ends = [record[44 + 72 * number :][56:72] for number in range(3)]
    assert [UNITS.unpack(each) for each in ends] == [(4.0, 5.5), (4.0, 8.0), (4.0, 4.0)]
    decision = server.answer(take)
    assert isinstance(decision, Decision)
    assert decision.booked is not None
    assert [(each.charge.bucket, each.charge.cost) for each in decision.booked] == [
        (take.charges[0].bucket, 1.5),
        (take.charges[1].bucket, 4.0),
    ]


def test_a_record_of_an_older_version(client: redis.Redis) -> None:
    """It says nothing of debits: the take is allowed, and cannot be settled; a repayment knows its own."""
    server = Server(client)
    take = Take((Charge(QUOTAS[0], "key", 4),), may_settle=True, operation="id")
    repaid = server.answer(repayment(take, 3.0))
    server.client.set(server.key(take), server.record(take)[:-72])
    decision = server.answer(take)
    assert isinstance(decision, Decision)
    assert decision.allowed
    assert settled_as(decision, [1.0]) is None
    assert server.answer(repayment(take, 3.0)) == repaid


@pytest.mark.parametrize("units", [(4.0, math.nan), (math.nan, 4.0), (4.0, math.inf), (-1.0, 4.0), (4.0, 3.0)])
def test_a_damaged_record(client: redis.Redis, units: tuple[float, float]) -> None:
    """With numbers that no debit has: it concerns its own takes alone."""
    server = Server(client)
    take = Take((Charge(QUOTAS[1], "key", 4),), may_settle=True, operation="id")
    server.answer(repayment(take, 3.0))
    server.client.set(server.key(take), server.record(take)[:-16] + UNITS.pack(*units))
    assert isinstance(server.answer(take), StoreError)

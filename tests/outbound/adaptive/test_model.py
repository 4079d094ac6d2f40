"""Whatever a server answers, and whenever: no request waits for ever, and none is lost or counted twice."""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from asgi_ratelimit.headers import ServerLimit, ServerLimits
from asgi_ratelimit.outbound.adaptive.model import Call, Model
from asgi_ratelimit.profiles import aimd, named
from asgi_ratelimit.waiting.drivers import WakeUp
from tests.support.examples import up_to

SECOND = 1_000_000.0

numbers = st.one_of(st.none(), st.integers(0, 6), st.floats(0, 6))
times = st.one_of(st.none(), st.just(0.0), st.floats(0, 30))
limits = st.builds(
    ServerLimit,
    name=st.sampled_from(["a", "b"]),
    limit=numbers,
    remaining=numbers,
    window=st.one_of(st.none(), st.floats(0.1, 30)),
    reset_after=times,
    reset_means=st.sampled_from(["window end", "next unit", "full refill"]),
    refill=st.one_of(st.none(), st.floats(0.1, 10)),
    cost=st.one_of(st.none(), st.floats(0, 4)),
    unit=st.sampled_from(["requests", "tokens"]),
    bucket=st.sampled_from([None, "x", "y"]),
)
answers = st.builds(
    ServerLimits,
    profile=st.sampled_from(["auto", "discord", "github"]),
    limits=st.lists(limits, max_size=3, unique_by=lambda limit: (limit.name, limit.bucket)).map(tuple),
    is_throttled=st.booleans(),
    retry_after=times,
    scope=st.sampled_from([None, "shared", "cloudflare"]),
    covers_all=st.booleans(),
)
statuses = st.sampled_from([200, 404, 429, 502])


class ModelMachine(RuleBasedStateMachine):
    """A model, requests that wait, that are admitted, and that were sent; and time, which only goes on."""

    profile = named("auto")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.profile, lambda *_: None)
        self.now = 1e12
        self.calls: list[Call] = []
        self.sent: list[Call] = []

    def waiting(self) -> list[Call]:
        """The requests that wait."""
        return [call for call in self.calls if not call.is_admitted]

    def admitted(self) -> list[Call]:
        """The requests that may go, and have not gone yet."""
        return [call for call in self.calls if call.is_admitted]

    @rule(path=st.sampled_from(["/channels/1/a", "/channels/2/a", "/users/1"]), count=st.integers(1, 4))
    def ask(self, path: str, count: int) -> None:
        """Requests come."""
        for _ in range(count):
            call = self.model.call("host", "GET", path, math.inf, self.now)
            self.model.begin(call, WakeUp(None), self.now)
            self.calls.append(call)
            self.model.ask(call, self.now)

    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        """A request that may go does so."""
        if self.admitted():
            call = self.admitted()[data.draw(st.integers(0, len(self.admitted()) - 1))]
            if self.model.sends(call, self.now):
                self.calls.remove(call)
                self.sent.append(call)

    @rule(data=st.data(), answer=answers, status=statuses)
    def answer(self, data: st.DataObject, answer: ServerLimits, status: int) -> None:
        """An answer comes, in any order."""
        if self.sent:
            call = self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1)))
            self.model.answered(call, status, answer, self.now)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A connection is lost."""
        if self.sent:
            self.model.died(self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1))), self.now)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A caller gives up before its request was sent."""
        if self.calls:
            self.model.left(self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1))), self.now)

    @rule(seconds=st.floats(0, 20))
    def pass_time(self, seconds: float) -> None:
        """Time passes, and whoever looks again then does."""
        self.now += round(seconds * SECOND)
        for call in self.waiting():
            if call.wake_up.at_us <= self.now:
                self.model.woke(call, self.now)

    @invariant()
    def somebody_looks_again(self) -> None:
        """Of the requests that wait, at least one looks again at a time that will come."""
        waiting = self.waiting()
        assert not waiting or min(call.wake_up.at_us for call in waiting) < math.inf

    def teardown(self) -> None:
        """Everybody who waits is served in the end, when the server answers as it should; then nothing is left."""
        good = ServerLimits(profile="auto", limits=(ServerLimit(limit=4, remaining=3, reset_after=1.0),))
        for _ in range(2_000):
            for call in self.sent:
                self.model.answered(call, 200, good, self.now)
            self.sent = []
            for call in self.admitted():
                if self.model.sends(call, self.now):
                    self.calls.remove(call)
                    self.sent.append(call)
            waiting = self.waiting()
            if not self.sent and waiting:
                self.now = max(self.now, min(call.wake_up.at_us for call in waiting))
                for call in waiting:
                    if call.wake_up.at_us <= self.now:
                        self.model.woke(call, self.now)
            if not self.calls and not self.sent:
                break
        assert self.calls == self.sent == []
        for host in self.model.hosts.values():
            pioneers = [host.everything, *host.hidden, *(route.section.pioneer for route in host.routes.values())]
            assert all((bucket.unsent, len(bucket.waiting)) == (0, 0) for bucket in (*pioneers, *host.buckets.values()))


class HiddenLimitsMachine(ModelMachine):
    """The same where a rate is searched for."""

    profile = aimd(0.5, 20)


ModelMachine.TestCase.settings = settings(up_to(200), stateful_step_count=40)
HiddenLimitsMachine.TestCase.settings = settings(up_to(200), stateful_step_count=40)
TestModel = ModelMachine.TestCase
TestHiddenLimits = HiddenLimitsMachine.TestCase

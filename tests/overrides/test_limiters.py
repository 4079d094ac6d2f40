"""Limiters, paced functions and transports under overrides of their names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import httpx
import pytest

from asgi_ratelimit import Limiter, MemoryStore, Overrides, PacedTransport, PaceTimeout, RedisStore, Store, pace
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.quotas import FixedWindow, RollingWindow, TokenBucket
from asgi_ratelimit.testing import SteppedClock
from tests.support.overriding import until

pytestmark = pytest.mark.anyio

Shared: TypeAlias = tuple[Store, Overrides]
Call: TypeAlias = Callable[[], Awaitable[object]]


async def test_a_limit_changes_and_comes_back(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    """What was used stays used, and the log says each change once."""
    store, overrides = shared
    limiter, other = (Limiter("5/hour", store=store, name="api") for _ in range(2))
    assert [bool(await limiter.rate_limit("key")) for _ in range(6)] == [True] * 5 + [False]
    await overrides.set("api", "8/hour", by="alice")
    await until(lambda: limiter.quotas == other.quotas == (TokenBucket(8, 3600),))
    assert [bool(await limiter.rate_limit("key")) for _ in range(4)] == [True] * 3 + [False]
    assert await overrides.unset("api", by="bob")
    await until(lambda: limiter.quotas == other.quotas == (TokenBucket(5, 3600),))
    assert not await limiter.rate_limit("key")
    lines = ["api: 5/hour -> 8/hour, by alice", "api: 8/hour -> 5/hour, by bob"]
    await until(lambda: [line for line in caplog.messages if "->" in line] == lines)


async def test_costs_and_keys_by_name_under_an_override() -> None:
    """Those that the override has no quota for are not charged, and none fails that was right before."""
    store = MemoryStore()
    overrides = Overrides(store)
    limiter = Limiter([TokenBucket(10, 60, name="requests"), TokenBucket(100, 60, name="tokens")], store=store)
    await overrides.set("default", [TokenBucket(20, 60, name="requests"), FixedWindow(5, 60, name="new")])
    decision = await limiter.rate_limit({"requests": "a", "tokens": "b"}, {"requests": 11, "tokens": 1000})
    assert [state.quota.name for state in decision.states] == ["requests"]
    await limiter.settle(decision, {"requests": 4, "tokens": 900})
    assert (await limiter.peek("a")).states[0].remaining == 16
    async with limiter.spend("a", {"requests": 1, "tokens": 5}) as spent:
        spent.settle(tokens=3)
    assert (await limiter.rate_limit("a", {"tokens": 7})).states[0].quota.name == "tokens"
    with pytest.raises(ValueError, match=r"cost names \['new'\].*: cost={'requests': 1}"):
        await limiter.rate_limit("a", {"new": 1})


async def test_shadow_decides_and_counts_and_lets_all_pass(shared: Shared) -> None:
    """No call waits or fails; hooks see what is decided; settlements and tickets do no harm."""
    store, overrides = shared
    seen: list[Event] = []
    limiter = Limiter("2/hour", store=store, name="api", hooks=[seen.append])
    await limiter.rate_limit("other")
    await overrides.set("api", "shadow")
    await until(lambda: limiter.live.word)
    seen.clear()
    decisions = [await limiter.rate_limit("key") for _ in range(3)]
    decisions += [await limiter.pace("key"), await limiter.acquire("key"), await limiter.peek("key")]
    assert all(each.allowed and each.shadow and not each.delay and not each.retry_after for each in decisions)
    assert [each.remaining for each in decisions[:3]] == [1, 0, 0]
    assert len(seen) == 5
    async with limiter.spend("key", 5) as spent:
        spent.settle(3)
    for each in decisions:
        await limiter.refund(each)
    assert await limiter.eta("key", 100) == 0.0
    await overrides.unset("api")
    await until(lambda: limiter.live.word is None)
    assert (await limiter.rate_limit("key", 2)).allowed


async def test_off_lets_all_pass_without_a_charge(shared: Shared) -> None:
    """The bucket is as before; nothing is there to be settled."""
    store, overrides = shared
    limiter = Limiter("2/hour", store=store, name="api")
    await limiter.rate_limit("key")
    await overrides.set("api", "off")
    await until(lambda: limiter.live.word)
    for _ in range(3):
        decisions = [await limiter.rate_limit("key"), await limiter.acquire("key", 50), await limiter.peek("key")]
        assert all(each.allowed and not each.shadow and each.granted for each in decisions)
        await limiter.refund(decisions[0])
    async with limiter.spend("key", 5) as spent:
        spent.settle(3)
    await overrides.unset("api")
    await until(lambda: limiter.live.word is None)
    assert (await limiter.peek("key")).remaining == 1


def paced(store: Store) -> Call:
    """A paced function, whose limit leaves a part unused."""

    @pace("1/hour", store=store, name="mail", max_delay=0.0, margin=0.1)
    async def send() -> None: ...

    return send


def sent(store: Store) -> Call:
    """Requests of a transport."""
    service = httpx.MockTransport(lambda request: httpx.Response(200))
    transport = PacedTransport(service, "1/hour", store=store, name="mail", max_delay=0.0)
    return lambda: transport.handle_async_request(httpx.Request("GET", "http://shop/"))


@pytest.mark.parametrize("kind", [paced, sent])
async def test_paced_calls(kind: Callable[[Store], Call]) -> None:
    """They go at once under a word, and as the quota says under another one."""
    store = MemoryStore()
    call, overrides = kind(store), Overrides(store)
    await call()
    for quota, times in (("off", 3), ("shadow", 3), ("20/hour burst 3", 1)):
        with pytest.raises(PaceTimeout):
            await call()
        await overrides.set("mail", quota)
        for _ in range(times):
            await call()
        await overrides.unset("mail")


def test_a_function_without_a_name_under_an_override(clock: SteppedClock) -> None:
    """Also for an own and a shared key, where callers wait without having booked."""
    own, shared, store = TokenBucket(10, 60, name="guild"), TokenBucket(50, name="all"), MemoryStore(clock=clock)

    @pace([own, shared], key={"guild": lambda guild: guild, "all": ""}, store=store)
    async def send(guild: str) -> float:
        return clock.now - start

    async def main() -> list[float]:
        await Overrides(store).set(f"{send.__module__}.{send.__qualname__}", [replace(own, period=10, burst=1), shared])
        return await asyncio.gather(*[send("one") for _ in range(3)])

    start = clock.now
    assert clock.run(main()) == pytest.approx([0.0, 1.0, 2.0])


async def test_a_reset_under_an_override(shared: Shared) -> None:
    """The buckets of the program's own quotas are as good as new as well, when the override ends."""
    store, overrides = shared
    limiter = Limiter("2/hour", store=store, name="api")
    await limiter.rate_limit("key", 2)
    await overrides.set("api", "5/hour fixed")
    await until(lambda: limiter.quotas == (FixedWindow(5, 3600),))
    assert (await limiter.rate_limit("key")).remaining == 4
    await limiter.reset("key")
    assert (await limiter.peek("key")).remaining == 5
    await overrides.unset("api")
    await until(lambda: limiter.quotas == (TokenBucket(2, 3600),))
    assert (await limiter.peek("key")).remaining == 2


async def test_of_two_changes_at_once_the_later_one_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the thread that has written first applies what it has written last."""
    store = MemoryStore()
    limiter = Limiter("5/hour", store=store, name="api")
    replace = store.documents.replace

    async def replace_before_another(name: str, old: bytes | None, new: bytes | None) -> bool:
        monkeypatch.setattr(store.documents, "replace", replace)
        is_written = await replace(name, old, new)
        await Overrides(store).set("api", "9/hour")
        return is_written

    monkeypatch.setattr(store.documents, "replace", replace_before_another)
    await Overrides(store).set("api", "8/hour")
    assert limiter.quotas[0].limit == 9
    assert (await Overrides(store).all())["api"].text == "9/hour"


QUOTAS = {kind.__name__: kind for kind in (TokenBucket, FixedWindow, RollingWindow)}
MODEL = (TokenBucket(500, 60, name="requests"), TokenBucket(100_000, 86_400, name="tokens"))


@pytest.mark.parametrize("override", ["3/minute", "3/minute; 500/day fixed", "3/hour rolling"])
async def test_an_override_that_names_no_quota_of_a_call_logs(override: str, caplog: pytest.LogCaptureFixture) -> None:
    """The program's quotas decide, and a warning says once how to name what the override is to replace."""
    store = MemoryStore()
    overrides, limiter = Overrides(store), Limiter(MODEL, store=store, name="model")
    await overrides.set("model", override)
    assert all([await limiter.rate_limit("key", {"requests": 1, "tokens": 10}) for _ in range(5)])
    (message,) = [message for message in caplog.messages if "not applied" in message]
    assert f"the override \"{override}\" of the limit 'model' was not applied" in message
    assert "for the quotas 'requests', 'tokens': its own are named 'per-" in message
    assert "(docs/warnings.md#an-override-that-does-not-apply)" in message
    example = "[" + message.partition(", [")[2].partition(")])")[0] + ")]"
    assert "name='requests'" in example
    await overrides.set("model", eval(example, QUOTAS))
    decisions = [await limiter.rate_limit("other", {"requests": 1, "tokens": 10}) for _ in range(5)]
    assert [bool(decision) for decision in decisions] == [True] * 3 + [False] * 2


async def test_one_quota_keeps_its_name_and_what_was_used() -> None:
    """Also where the override has another period; several are named after theirs."""
    store = MemoryStore()
    overrides, limiter = Overrides(store), Limiter("5/hour", store=store, name="api")
    await limiter.rate_limit("key", 5)
    await overrides.set("api", "6/day")
    assert [quota.name for quota in limiter.quotas] == ["per-hour"]
    decision = await limiter.rate_limit("key", 6)
    assert not decision
    assert decision.remaining <= 5
    await overrides.set("api", "6/day; 7/minute")
    assert [quota.name for quota in limiter.quotas] == ["per-day", "per-minute"]


KINDS = ["hour", "week fixed", "hour rolling"]


async def test_what_is_used_under_an_override_counts_when_it_ends(shared: tuple[Store, Overrides]) -> None:
    """Under a higher one and under a lower one, for each kind of quota."""
    store, overrides = shared
    higher, lower = ([Limiter(f"5/{kind}", store=store, name=f"{kind} {way}") for kind in KINDS] for way in "hl")
    limiters = [*higher, *lower]
    assert [(await limiter.rate_limit("key", 2)).remaining for limiter in limiters] == [3] * 6
    for limit, limiters_of_way in [(8, higher), (4, lower)]:
        for limiter, kind in zip(limiters_of_way, KINDS):
            await overrides.set(limiter.name, f"{limit}/{kind}")
    await until(lambda: [limiter.quotas[0].limit for limiter in limiters] == [8] * 3 + [4] * 3)
    assert [(await limiter.rate_limit("key", 5)).remaining for limiter in higher] == [1] * 3
    assert [(await limiter.rate_limit("key", 2)).remaining for limiter in lower] == [0] * 3
    assert [(await limiter.rate_limit("new", 4)).remaining for limiter in limiters] == [4] * 3 + [0] * 3
    for limiter in limiters:
        await overrides.unset(limiter.name)
    await until(lambda: [limiter.quotas[0].limit for limiter in limiters] == [5] * 6)
    assert [(await limiter.rate_limit("key")).allowed for limiter in limiters] == [False] * 3 + [True] * 3
    assert [(await limiter.peek("key")).remaining for limiter in limiters] == [0] * 6
    assert [(await limiter.peek("new")).remaining for limiter in limiters] == [1] * 6


async def test_a_limit_that_is_off_is_on_again_wherever_nobody_uses_its_store(redis_url: str) -> None:
    """What is off takes nothing, so no take begins to watch for its end: neither a first one, nor one after closing."""
    store = RedisStore(redis_url, timeout=30)
    limiter, overrides = Limiter("2/hour", store=store, name="api"), Overrides(store)
    await overrides.set("api", "off", seconds=0.2)
    assert limiter.live.word == "off"
    await until(lambda: limiter.live.word is None)
    await overrides.set("api", "off")
    await store.aclose()
    assert limiter.live.word is None
    await limiter.rate_limit("key")
    await until(lambda: limiter.live.word == "off")
    await store.aclose()


async def test_an_override_that_is_none_for_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the limit, whose own quotas apply, and does not say that it changed."""
    store = MemoryStore()
    limiter = Limiter("5/hour", store=store, name="mail")
    await Overrides(store).set("mail", "3 at once")
    assert limiter.quotas == (TokenBucket(5, 3600),)
    assert ["cannot be applied to 'mail'" in each for each in caplog.messages] == [True]

"""``Overrides``: what is set, until when, and who has changed what."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from asgi_ratelimit import Change, FixedWindow, MemoryStore, Override, Overrides, RedisStore, RollingWindow, TokenBucket
from asgi_ratelimit.errors import ConfigurationError, QuotaError, StoreError
from asgi_ratelimit.stores import Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.clocks import wrong_clock

pytestmark = pytest.mark.anyio


async def test_what_is_set_is_there_until_it_is_unset(shared: tuple[Store, Overrides]) -> None:
    """Whoever asks; another one of the same name replaces it."""
    store, overrides = shared
    others = Overrides(store)
    assert await overrides.all() == {}
    await overrides.set("login", "10/minute", by="alice")
    await overrides.set("search", "shadow")
    await others.set("login", "off")
    assert {name: each.quota for name, each in (await overrides.all()).items()} == {"search": "shadow", "login": "off"}
    assert await others.unset("login")
    assert not await others.unset("login")
    assert list(await overrides.all()) == ["search"]


@pytest.mark.parametrize("hours", [-2, 2])
async def test_a_process_whose_clock_is_wrong(redis_url: str, hours: int) -> None:
    """An override lasts as long as was said, whichever process sets it, and whichever applies it."""
    with wrong_clock(hours):
        wrong = RedisStore(redis_url, timeout=30)
        others = Overrides(wrong)
    right = RedisStore(redis_url, timeout=30)
    overrides = Overrides(right)
    await others.set("login", "5/minute", seconds=3600)
    await overrides.set("search", "5/minute", seconds=3600)
    for each in (overrides, others):
        ends = [override.until for override in (await each.all()).values()]
        assert ends == pytest.approx([time.time() + 3600] * 2, abs=60)
    await asyncio.gather(wrong.aclose(), right.aclose())


@pytest.mark.parametrize(
    "quota",
    [
        "10/minute; 100/hour rolling",
        TokenBucket(5, 60, burst=2, burst_allowance_factor=0.5, name="own"),
        [FixedWindow(5, 60), RollingWindow(100, 3600, 10, name="other")],
    ],
)
async def test_any_quota_can_be_set(shared: tuple[Store, Overrides], quota: Any) -> None:
    """A text stays as it was written; quotas come back equal."""
    _, overrides = shared
    await overrides.set("login", quota)
    (override,) = (await overrides.all()).values()
    if isinstance(quota, str):
        assert override.quota == override.text == quota
    else:
        assert override.quota == (tuple(quota) if isinstance(quota, list) else (quota,))
        assert override.text.startswith("5/minute")


async def test_an_override_ends_by_the_clock_of_the_store(clock: SteppedClock) -> None:
    """Exactly after its seconds; then it counts as none."""
    overrides = Overrides(MemoryStore(clock=clock))
    await overrides.set("login", "10/minute", seconds=60)
    assert (await overrides.all())["login"].until == clock.now + 60
    clock.advance(59.999999)
    assert list(await overrides.all()) == ["login"]
    clock.advance(0.000001)
    assert await overrides.all() == {}
    assert not await overrides.unset("login")


async def test_the_history_says_who_changed_what_and_when(clock: SteppedClock) -> None:
    """The newest change comes first; what changed nothing is not in it."""
    overrides = Overrides(MemoryStore(clock=clock))
    start = clock.now
    await overrides.set("login", "10/minute", seconds=60, by="alice")
    clock.advance(1)
    await overrides.set("login", "shadow")
    clock.advance(1)
    await overrides.unset("login", by="bob")
    await overrides.unset("login", by="eve")
    first = Override("10/minute", until=start + 60, by="alice", at=start)
    second = Override("shadow", at=start + 1)
    assert await overrides.history() == [
        Change("login", start + 2, "bob", second, None),
        Change("login", start + 1, None, first, second),
        Change("login", start, "alice", None, first),
    ]


async def test_the_last_hundred_changes_are_kept() -> None:
    """Older ones are forgotten."""
    overrides = Overrides(MemoryStore())
    for number in range(103):
        await overrides.set("login", f"{number + 1}/minute")
    history = await overrides.history()
    assert [each.after and each.after.quota for each in history] == [f"{n}/minute" for n in range(103, 3, -1)]


async def test_no_change_is_lost_among_many(shared: tuple[Store, Overrides]) -> None:
    """Those who change different limits at once all succeed."""
    store, overrides = shared
    others = Overrides(store)
    await asyncio.gather(*[(overrides, others)[n % 2].set(f"limit {n}", "5/minute") for n in range(20)])
    assert set(await overrides.all()) == {f"limit {n}" for n in range(20)}
    assert len(await overrides.history()) == 20


SET = {"name": "login", "quota": "5/minute"}


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"quota": "10/minit"}, QuotaError, "'minit' is not a unit of time"),
        ({"quota": ""}, QuotaError, "a limit such as 100 is missing"),
        ({"quota": "5/minute; 6/minute"}, ConfigurationError, "two quotas are named"),
        ({"quota": "10/minute" + " " * 1024}, QuotaError, 'at most 1024 characters fit, not 1033, .*: "10/minute"'),
        ({"name": ""}, ConfigurationError, "name must be a text of 1 to 256 .*, not '': name=\"login\""),
        ({"name": "log\udcff"}, ConfigurationError, "name must be a text"),
        ({"name": "log\x1b[2J"}, ConfigurationError, "name must be a text"),
        ({"seconds": 0}, ValueError, "not 0: seconds=3600"),
        ({"seconds": 10**400}, ValueError, "at most 100 years"),
        ({"by": "x" * 257}, ConfigurationError, 'by="alice"'),
        ({"by": "eve\n2026-11-27 ERROR"}, ConfigurationError, "by must be a text"),
    ],
)
async def test_what_cannot_be_changes_nothing(wrong: dict[str, Any], error: type[Exception], message: str) -> None:
    """The error quotes it, and shows a right example."""
    overrides = Overrides(MemoryStore())
    with pytest.raises(error, match="(?s)" + message):
        await overrides.set(**{**SET, **wrong})
    assert await overrides.all() == {}
    assert await overrides.history() == []


async def test_a_store_that_is_out() -> None:
    """Each method raises."""
    overrides = Overrides(RedisStore("redis://localhost:1"))
    with pytest.raises(StoreError):
        await overrides.set("login", "5/minute")
    with pytest.raises(StoreError):
        await overrides.all()


def with_override(**values: Any) -> bytes:
    """A document with one override that has these values."""
    override = {"quota": "off", "until": None, "by": None, "at": 0, **values}
    return json.dumps({"format": 1, "version": 1, "overrides": {"a": override}, "history": []}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense",
        b"[" * 100_000,
        b'{"format": 2}',
        with_override().replace(b'"version": 1', b'"version": Infinity'),
        with_override(quota="x"),
        with_override(quota=[{"kind": "os"}]),
        with_override(until=10**400),
        with_override(by="\x1b"),
    ],
    ids=lambda content: content[:90].decode()[-20:],
)
async def test_a_document_that_cannot_be_read(content: bytes) -> None:
    """The error says which key to delete, and the document stays as it is."""
    store = MemoryStore()
    await store.documents.write("overrides", content)
    overrides = Overrides(store)
    with pytest.raises(StoreError, match="its key ends in :documents:overrides"):
        await overrides.set("login", "5/minute")
    with pytest.raises(StoreError, match="does not hold overrides"):
        await overrides.all()
    assert await store.documents.read("overrides") == content


async def test_too_many_overrides_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not fit into the document changes nothing."""
    monkeypatch.setattr("asgi_ratelimit.overrides.MAX_BYTES", 2000)
    overrides = Overrides(MemoryStore())
    await overrides.set("login", "10/minute")
    with pytest.raises(ConfigurationError, match="2 overrides are too many for a document: unset some"):
        await overrides.set("search", "10/minute" + " " * 1000)
    assert list(await overrides.all()) == ["login"]

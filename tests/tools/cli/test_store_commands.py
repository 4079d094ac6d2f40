"""The commands on a live store: on its buckets, its limits and its counts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from asgi_ratelimit import (
    Blocks,
    InFlight,
    Limiter,
    Overrides,
    Penalty,
    RateLimitMiddleware,
    RedisStore,
    Rule,
    TokenBucket,
)
from asgi_ratelimit.counts import counts_of
from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.keys import client_ip, combine, header
from asgi_ratelimit.tools.cli import main
from tests.support.asgi import ask, http, ok
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer

KEY = "203.0.113.7"
NOT_USED = "warning: nobody has used '{}' in the last hour, but"


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command on a store that the environment names; its exit code, and its output as JSON or as text."""
    monkeypatch.setenv("ASGI_RATELIMIT_STORE", redis_url)
    monkeypatch.setenv("USER", "")

    def run(*arguments: str) -> tuple[int, Any]:
        code = main(arguments)
        out, err = capsys.readouterr()
        assert not err or err.startswith("warning: ")
        return code, json.loads(out) if "--json" in arguments else out

    return run


def on(url: str, work: Callable[[RedisStore], Awaitable[Any]], prefix: str = "rl") -> Any:
    """What ``work`` returns for the store of a program."""

    async def with_store() -> Any:
        store = RedisStore(url, prefix=prefix, timeout=30, on_error="deny")
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(with_store())


def used(url: str, name: str, quota: str, key: str, times: int = 1, prefix: str = "rl") -> None:
    """Let a program use a key."""

    async def use(store: RedisStore) -> None:
        limiter = Limiter(quota, store=store, name=name)
        for _ in range(times):
            assert await limiter.rate_limit(key)

    on(url, use, prefix)


def test_a_limit_is_set_by_a_user_of_redis_who_may_not_read_the_counts(
    redis_url: str, redis_server: RedisServer, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done is no error; only the warning about names that nobody has used is missing."""
    asked(redis_server, "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-hgetall")
    monkeypatch.setenv("ASGI_RATELIMIT_STORE", redis_url.replace("//", "//app:secret@"))
    assert run("set", "login", "5/minute")[0] == 0
    assert list(on(redis_url, lambda store: Overrides(store).all())) == ["login"]
    asked(redis_server, "ACL", "DELUSER", "app")


def test_peek_shows_the_limit_that_is_in_force(redis_url: str, run: Callable[..., Any]) -> None:
    """That of the program, or the one that was set in its place, with who did it."""
    serve(redis_url)
    assert run("peek", "shop", "192.0.2.1", "--json")[1]["in_force"] == "2/hour"
    run("set", "shop", "9/minute", "--by", "ann")
    shown = run("peek", "shop", "192.0.2.1")[1].splitlines()
    assert (shown[0], shown[2].split()[0]) == ("in force: 9/minute, set by ann", "per-hour")


def test_reset_makes_a_key_as_good_as_new(redis_url: str, run: Callable[..., Any]) -> None:
    """All of its quotas; other keys stay."""
    used(redis_url, "/login", "10/day; 3/hour fixed", KEY)
    used(redis_url, "/login", "10/day", "other")
    code, out = run("reset", "/login", KEY)
    assert (code, sorted(out.removeprefix("reset: ").strip().split(", "))) == (0, ["per-day", "per-hour"])
    assert run("reset", "/login", KEY, "--json") == (1, {"reset": []})
    assert [each["key"] for each in run("buckets", "--json")[1]["buckets"]] == ["other"]
    used(redis_url, "/login", "10/day", "2001:db8::/64")
    assert run("reset", "/login", "2001:db8::7") == (0, "reset: per-day\n")


def test_block_and_unblock(redis_url: str, run: Callable[..., Any]) -> None:
    """A program sees the block; exit code 1 where there is nothing to do."""

    async def blocked_for(store: RedisStore) -> float:
        return await Blocks(store=store, name="/login").blocked_for(KEY)

    assert run("unblock", "/login", KEY) == (1, f"{KEY!r} was not blocked\n")
    assert run("block", "/login", KEY, "--for", "1h") == (0, f"{KEY!r} is blocked for 1h\n")
    assert run("block", "/login", KEY, "--for", "2h", "--json") == (1, {"blocked": False})
    assert 3500 < on(redis_url, blocked_for) <= 3600
    code, out = run("peek", "/login", KEY)
    assert (code, out.startswith("blocked for ")) == (0, True)
    assert run("unblock", "/login", KEY, "--by", "ann") == (0, f"{KEY!r} may pass again\n")
    assert on(redis_url, blocked_for) == 0
    assert run("history")[1].splitlines()[3].split()[2:] == ["/login", KEY, "unblocked", "ann"]


def test_the_value_of_a_header_is_hashed(redis_url: str, run: Callable[..., Any]) -> None:
    """With ``--hash``, a key is what a client sends, and all commands on keys find its bucket."""
    hashed = header("x-api-key").key_of("k1")
    used(redis_url, "/login", "10/day", hashed)
    assert run("peek", "/login", "k1", "--hash")[0] == 0
    assert run("block", "/login", "k1", "--for", "1h", "--hash") == (0, f"{hashed!r} is blocked for 1h\n")
    assert 3500 < run("peek", "/login", hashed, "--json")[1]["blocked_for"] <= 3600
    assert run("unblock", "/login", "k1", "--hash") == (0, f"{hashed!r} may pass again\n")
    assert run("reset", "/login", "k1", "--hash") == (0, "reset: per-day\n")


def serve(url: str, *rules: Rule, **request: Any) -> None:
    """Let a program with these rules, and a quota of its own, serve one request."""

    async def once(store: RedisStore) -> None:
        middleware = RateLimitMiddleware(ok, "2/hour", store=store, name="shop", rules=rules)
        await ask(middleware, http(**request))
        await counts_of(store).end()

    on(url, once)


BLOCKED = "'203.0.113.7' is blocked for 1h\n"


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("login", ""),
        ("pair", "warning: '203.0.113.7' has used nothing of 'pair': is it a key as these show it, "),
        ("shop", "warning: 'shop' has no Penalty, so it does not check for blocks, and lets the key pass: "),
        ("/login", f"{NOT_USED.format('/login')} 'login', 'pair' and 'shop': did you mean 'login'?\n"),
    ],
)
def test_a_block_that_nobody_looks_for_is_warned_of(
    redis_url: str, name: str, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only rules with a penalty look for blocks: under another name, or another key, it passes."""
    penalty, both = Penalty("1 hour", after=3), combine(client_ip(), header("x"))
    pair = Rule("/login", "5/minute", name="pair", penalty=penalty, key=both)
    serve(redis_url, Rule("/login", "5/minute", name="login", penalty=penalty), pair, path="/login", client=(KEY, 1))
    assert main(["block", name, KEY, "--for", "1h", "--store", redis_url]) == 0
    out, err = capsys.readouterr()
    assert (out, err[: len(warning)], bool(err)) == (BLOCKED, warning, bool(warning))


def test_buckets_show_who_uses_most(redis_url: str, run: Callable[..., Any]) -> None:
    """With keys and names of any kind; blocks are none of them."""
    used(redis_url, "a b:c", "10/day rolling", "ann é{}", 9)
    used(redis_url, "/login", "100/day burst 50", KEY, 10)
    used(redis_url, "/login", "100/day burst 50", "k" * 300, 20)
    run("block", "/login", "blocked", "--for", "1h")
    _, shown = run("buckets", "--json")
    assert [(each["name"], each["quota"], round(each["used"])) for each in shown["buckets"]] == [
        ("/login", "per-day", 20),
        ("/login", "per-day", 10),
        ("a b:c", "per-day", 9),
    ]
    assert [each["key"] for each in shown["buckets"]][1:] == [KEY, "ann é{}"]
    assert re.fullmatch("#[0-9a-f]{32}", shown["buckets"][0]["key"])
    _, table = run("buckets", "--name", "/login", "--count", "1")
    assert table.splitlines()[1].split()[0] == "/login"
    assert len(table.splitlines()) == 2


def test_places_are_shown_and_given_back(redis_url: str, run: Callable[..., Any]) -> None:
    """They are buckets like others."""
    take = Take((Charge(InFlight(5), KEY, 1, "/reports"), Charge(TokenBucket(9, 86_400), KEY, 1, "/reports")))
    on(redis_url, lambda store: store.take([take, take]))
    rows = [("at-once", 2), ("per-day", 2)]
    for command in (("buckets",), ("peek", "/reports", KEY)):
        _, shown = run(*command, "--json")
        assert sorted((each["quota"], round(each["used"], 2)) for each in shown["buckets"]) == rows
    assert run("reset", "/reports", KEY)[0] == 0
    assert run("buckets", "--json")[1]["buckets"] == []


def test_limits_are_changed_live(redis_url: str, run: Callable[..., Any]) -> None:
    """And what was changed is kept, with whom; a page of the docs shows it as text."""
    assert run("set", "/login", "20/minute", "--for", "1h", "--by", "ann")[0] == 0
    assert run("set", "/login", "off", "--json") == (0, {"name": "/login", "quota": "off"})
    _, shown = run("history", "--json")
    assert [(each["by"], each["after"]["quota"]) for each in shown["history"]] == [(None, "off"), ("ann", "20/minute")]
    assert shown["overrides"]["/login"]["until"] is None
    assert run("unset", "/login", "--json") == (0, {"unset": True})
    assert run("unset", "/login") == (1, "'/login' was not overridden\n")


def test_a_name_that_nobody_has_used_is_told(redis_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be misspelt; the limit is set all the same."""

    serve(redis_url)
    for name, warning in (
        ("shop", ""),
        ("shpo", f"{NOT_USED.format('shpo')} 'shop': did you mean 'shop'?\n"),
        ("api", f"{NOT_USED.format('api')} 'shop'\n"),
    ):
        assert main(["set", name, "5/s", "--store", redis_url]) == 0
        assert capsys.readouterr() == (f"{name!r} is 5/s\n", warning)


WRONG = [
    (["peek", "a", "b"], "which store? --store redis://localhost:6379/0, or ASGI_RATELIMIT_STORE"),
    (["peek", "a", "b", "--store", "memory://"], "which store? --store redis://localhost:6379/0"),
    (["peek", "a", "b", "--store", "redis"], "'redis' is not the URL of a store"),
    (["peek", "a", "b", "--store", "redis://localhost:1/0"], "Redis cannot be reached"),
    (["block", "a", "b", "--for", "long", "--store", "redis://localhost:1/0"], "--for: 'long' is not a duration"),
    (["set", "a", "5/s", "--for", "600", "--store", "redis://localhost:1/0"], "--for: '600' is not a duration"),
    (["buckets", "--count", "-1", "--store", "redis://localhost:1/0"], "--count must be a whole number of at least 1"),
    (["set", "a", "often", "--store", "redis://localhost:1/0"], "'often'"),
]


@pytest.mark.parametrize(("arguments", "error"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_wrong_input_is_an_error(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit code 2."""
    monkeypatch.delenv("ASGI_RATELIMIT_STORE", raising=False)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err[:7]) == ("", "error: ")
    assert error in err

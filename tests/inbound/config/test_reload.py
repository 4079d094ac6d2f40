"""A file of limits is read again while the program runs; the last good one counts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, Overrides, RateLimitMiddleware, Rule
from asgi_ratelimit.inbound.config import USUAL, LimitsFile, Options
from tests.inbound.config.limits_of import limited
from tests.support.asgi import ask, http
from tests.support.overriding import rewrite, until

pytestmark = pytest.mark.anyio

RULE = '[[rules]]\npath = "/x"\nname = "x"\nquota = "{}"\n'
MINE = RULE.replace('"x"', '"mine"')


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at many times a second, so that tests are done sooner."""
    monkeypatch.setattr("asgi_ratelimit.inbound.config.EVERY", 0.02)
    monkeypatch.setattr("asgi_ratelimit.inbound.config.SETTLED_AFTER", 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of limits."""
    return tmp_path / "limits.toml"


@pytest.fixture
def lines(path: Path, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged of the file; those of earlier tests may still be watched."""
    return lambda: [line.removeprefix(f"{path}") for line in caplog.messages if line.startswith(str(path))]


async def statuses(app: Any, times: int = 1) -> list[int]:
    """The statuses of so many requests; the first one starts the app."""
    return [(await ask(app, http("/x"))).status for _ in range(times)]


def limit_of(middleware: RateLimitMiddleware, name: str) -> Any:
    """The limits that apply under a name."""
    rules = [rule for rule in middleware.rule_table.charging if rule.name == name]
    return [quota.limit for rule in rules for quota in rule.quota]  # type: ignore[union-attr]


async def test_a_change_applies_and_what_was_used_stays_used(path: Path, lines: Callable[[], list[str]]) -> None:
    """A line says what each limit is that is another now."""
    middleware = limited(path, 'quota = "100/hour"\n' + RULE.format("3/hour"), store=MemoryStore())
    assert await statuses(middleware, 4) == [200] * 3 + [429]
    new = '[[rules]]\npath = "/y"\nquota = "1/s"\nmethods = ["GET"]\n'
    rewrite(path, 'quota = "200/hour"\n' + RULE.format("5/hour") + "cost = 2\n" + new)
    await until(lambda: limit_of(middleware, "x") == [5])
    assert await statuses(middleware, 2) == [200, 429]
    rewrite(path, 'quota = "200/hour"\n' + new)
    await until(lambda: limit_of(middleware, "x") == [])
    await until(lambda: len(lines()) == 2)
    changes = "default: 100/hour -> 200/hour; x: 3/hour -> 5/hour; default GET /y: none -> 1/second"
    assert lines() == [f": its limits apply from now on; {each}" for each in (changes, "x: 5/hour -> none")]


async def test_a_file_without_its_limits_turns_none_off(path: Path, lines: Callable[[], list[str]]) -> None:
    """As after a write that was cut off: the last limits stay."""
    middleware = limited(path, 'headers = "both"\n' + RULE.format("3/hour"))
    await statuses(middleware)
    rewrite(path, 'headers = "both"\n')
    await until(lambda: lines() == [' changes nothing: no limit is left: quota = "100/minute"'])
    assert limit_of(middleware, "x") == [3]


async def test_a_broken_file_changes_nothing(path: Path, lines: Callable[[], list[str]]) -> None:
    """Each version of it is reported once; neither does one that is gone, or a file without limits."""
    middleware = limited(path, RULE.format("3/hour"), rules=[Rule("/z", "9/s", name="z")])
    await statuses(middleware)
    broken = {
        RULE.format("3/year"): "rules[1].quota",
        '# quota = "2/minute"\n\n  # a note\n': "is empty, or has nothing but comments: quota",
        RULE.replace('"x"', '"z"').format("8/s"): "two rules named 'z'",
        "a = [": "is not valid TOML",
    }
    for count, (text, message) in enumerate(broken.items(), 1):
        rewrite(path, text)
        await until(lambda: len(lines()) == count)  # noqa: B023
        assert lines()[-1].startswith(" changes nothing: ")
        assert message in lines()[-1]
    os.unlink(path)
    await until(lambda: "cannot be read" in lines()[-1])
    assert limit_of(middleware, "x") == [3]
    rewrite(path, RULE.format("6/hour"))
    await until(lambda: limit_of(middleware, "x") == [6])


def test_a_file_that_is_being_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it is valid, too, and not read: it has to be the same at two looks."""
    applied: list[Options] = []

    class Subscriber:
        options_changed = staticmethod(applied.append)
        limit_texts = staticmethod(lambda: dict.fromkeys([str(path.write_text('quota = "9/s"'))], ""))  # a later save

    path.write_text('quota = "1/s"')
    file, subscriber = LimitsFile(path, USUAL), Subscriber()
    monkeypatch.setattr(file, "start", lambda: None)
    file.watch(subscriber)
    for text in ('quota = "2/s"', 'quota = "2/s"\n' + RULE.format("1/s")):
        path.write_text(text)
        asyncio.run(file.run())
        assert applied == []
    asyncio.run(file.run())
    asyncio.run(file.run())
    assert [(options.quota, len(options.rules)) for options in applied] == [("2/s", 1)]


async def test_a_rule_that_matches_no_route_any_more(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is warned of as at the start: a mistyped path takes the limit away from the right one."""
    app = Starlette(routes=[Route("/x", PlainTextResponse("fine"))])
    middleware = limited(path, RULE.format("3/hour"), inside=app, store=MemoryStore())
    await statuses(middleware)
    assert "matches no route" not in caplog.text
    rewrite(path, RULE.format("3/hour").replace("/x", "/nowhere-now"))
    await until(lambda: "/nowhere-now" in caplog.text)
    assert "Rule('/nowhere-now', '3/hour', name='x') matches no route of the app" in caplog.text


async def test_an_override_wins_over_the_file_and_unset_brings_it_back(path: Path) -> None:
    """As the file is by then."""
    store = MemoryStore()
    middleware = limited(path, RULE.format("3/hour"), store=store)
    await statuses(middleware)
    await Overrides(store).set("x", "4/hour")
    assert limit_of(middleware, "x") == [4]
    rewrite(path, 'quota = "9/hour"\n' + RULE.format("5/hour"))
    await until(lambda: limit_of(middleware, "default") == [9])
    assert limit_of(middleware, "x") == [4]
    await Overrides(store).unset("x")
    assert limit_of(middleware, "x") == [5]


async def test_what_counts_at_the_next_start_only(path: Path) -> None:
    """All else applies."""
    middleware = limited(path, 'name = "api"\nquota = "5/hour"\n')
    await statuses(middleware)
    rewrite(path, 'name = "shop"\nquota = "6/hour"\nheaders = "none"\n')
    await until(lambda: limit_of(middleware, "api") == [6])
    assert "ratelimit" in (await ask(middleware, http("/x"))).headers


# Names: a file may not give one that another limit on the store has, as at the start


async def test_a_name_of_another_limit_is_refused(path: Path, lines: Callable[[], list[str]]) -> None:
    """Nothing changes, names beside the wrong one stay free, and the file is refused at the next start, too."""
    store = MemoryStore()
    others = [Limiter("3/hour", name="mine", store=store)]
    reading = limited(path, RULE.format("100/hour"), store=store)
    await statuses(reading)
    rewrite(path, RULE.replace('"x"', '"free"').format("5/hour") + MINE.format("100/hour"))
    await until(lambda: bool(lines()))
    assert lines()[0].startswith(" changes nothing: two limits named 'mine' share a store")
    assert [limit_of(reading, name) for name in ("x", "mine", "free")] == [[100], [], []]
    with pytest.raises(ConfigurationError, match="two limits named 'mine'"):
        await statuses(RateLimitMiddleware(PlainTextResponse(""), config=path, store=store))
    others.append(Limiter("9/hour", name="free", store=store))
    rewrite(path, MINE.format("3/hour"))
    await until(lambda: limit_of(reading, "mine") == [3])


async def test_middlewares_with_one_file_change_together(path: Path) -> None:
    """The first to read a change does not wait for the others, which own the old quota under the same name."""
    store = MemoryStore()
    respelled = path.parent / ".." / path.parent.name / path.name
    readers = [limited(each, RULE.format("3/hour"), store=store) for each in (path, path, respelled)]
    for reader in readers:
        await statuses(reader)
    rewrite(path, RULE.format("5/hour"))
    await until(lambda: [limit_of(reader, "x") for reader in readers] == [[5]] * 3)
    with pytest.raises(ConfigurationError, match="two limits named 'x'"):
        Limiter("3/hour", name="x", store=store)

"""A file of limits is read again while the program runs; the last good one counts."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any
from weakref import ref

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import MemoryStore, Overrides, RateLimit, RateLimitMiddleware, Rule
from tests.inbound.config.limits_of import limited
from tests.support.overriding import rewrite, until

pytestmark = pytest.mark.anyio

RULE = '[[rules]]\npath = "/x"\nname = "x"\nquota = "{}"\n'
OTHER = '[[rules]]\npath = "/y"\nname = "z"\nquota = "8/s"\n'


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at many times a second, so that tests are done sooner."""
    monkeypatch.setattr("asgi_ratelimit.inbound.config.EVERY", 0.02)
    monkeypatch.setattr("asgi_ratelimit.inbound.config.SETTLED_AFTER", 0.01)


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")


def limit_of(middleware: RateLimitMiddleware, name: str) -> Any:
    """The limits that apply under a name."""
    rules = [rule for rule in middleware.rule_table.charging if rule.name == name]
    return [quota.limit for rule in rules for quota in rule.quota]  # type: ignore[union-attr]


def lines_of(caplog: pytest.LogCaptureFixture, path: Path) -> list[str]:
    """What was logged of a file; those of earlier tests may still be watched."""
    return [line for line in caplog.messages if str(path) in line]


async def test_a_change_applies_and_what_was_used_stays_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line for each change says what it is."""
    path = tmp_path / "limits.toml"
    middleware = limited(path, 'quota = "100/hour"\n' + RULE.format("3/hour"), store=MemoryStore())
    async with client_of(middleware) as client:
        assert [(await client.get("/x")).status_code for _ in range(4)] == [200] * 3 + [429]
        new = '[[rules]]\npath = "/y"\nquota = "1/s"\nmethods = ["GET"]\n'
        rewrite(path, 'quota = "200/hour"\n' + RULE.format("5/hour") + "cost = 2\n" + new)
        await until(lambda: limit_of(middleware, "x") == [5])
        assert [(await client.get("/x")).status_code for _ in range(2)] == [200, 429]
        rewrite(path, 'quota = "200/hour"\n' + new)
        await until(lambda: limit_of(middleware, "x") == [])
    await until(lambda: len(lines_of(caplog, path)) == 5)
    assert [line.removeprefix(f"{path}: ") for line in lines_of(caplog, path)] == [
        "quota 100/hour -> 200/hour",
        "x: quota 3/hour -> 5/hour",
        "x: cost none -> 2",
        "GET /y is new: 1/s",
        "x is gone: 5/hour",
    ]


async def test_a_rule_that_matches_no_route_any_more_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As at the start: a mistyped path takes the limit away from the right one."""
    path = tmp_path / "limits.toml"
    rewrite(path, RULE.format("3/hour"))
    app = Starlette(routes=[Route("/x", lambda request: PlainTextResponse("fine"))])
    middleware = RateLimitMiddleware(app, config=path, store=MemoryStore())
    async with client_of(middleware) as client:
        await client.get("/x")
        assert "matches no route" not in caplog.text
        rewrite(path, RULE.format("3/hour").replace("/x", "/nowhere-now"))
        await until(lambda: "/nowhere-now" in caplog.text)
    assert "Rule('/nowhere-now', '3/hour', name='x') matches no route of the app" in caplog.text


async def test_a_module_that_ends_the_program_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported, and the next good version of the file counts."""
    (tmp_path / "ending_module.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "limits.toml"
    middleware = limited(path, RULE.format("3/hour"), store=MemoryStore())
    async with client_of(middleware) as client:
        await client.get("/x")
    rewrite(path, RULE.format("4/hour") + 'settle = "ending_module:settle"')
    await until(lambda: len(lines_of(caplog, path)) == 1)
    assert "rules[1].settle" in lines_of(caplog, path)[0]
    rewrite(path, RULE.format("5/hour"))
    await until(lambda: len(lines_of(caplog, path)) == 2)
    assert limit_of(middleware, "x") == [5]


async def test_a_broken_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each version of it is reported once; neither does one that is gone or without limits."""
    path = tmp_path / "limits.toml"
    middleware = limited(path, RULE.format("3/hour"), rules=[Rule("/z", "9/s", name="z")])
    async with client_of(middleware) as client:
        await client.get("/x")
        broken = {
            RULE.format("3/year"): "rules[1].quota",
            '# quota = "2/minute"\n\n  # a note\n': "is empty, or has nothing but comments: quota",
            RULE.format("4/hour")
            + '[[rules]]\npath = "/y"\nname = "z"\nquota = "8/s"\n': "rules[2] (z): two rules named 'z'",
            "a = [": "is not valid TOML",
        }
        for count, (text, message) in enumerate(broken.items(), 1):
            rewrite(path, text)
            await until(lambda: len(lines_of(caplog, path)) == count)  # noqa: B023
            assert message in lines_of(caplog, path)[-1]
            assert lines_of(caplog, path)[-1].startswith("the limits stay as they were: ")
        path.unlink()
        await until(lambda: len(lines_of(caplog, path)) == len(broken) + 1)
        assert "cannot be read" in lines_of(caplog, path)[-1]
        assert limit_of(middleware, "x") == [3]
        rewrite(path, RULE.format("6/hour"))
        await until(lambda: limit_of(middleware, "x") == [6])
        await until(lambda: len(lines_of(caplog, path)) == len(broken) + 2)


async def test_a_pipe_in_place_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """To open it would block for ever, and the file that comes after it would never be read."""
    path = tmp_path / "limits.toml"
    middleware = limited(path, RULE.format("3/hour"), store=MemoryStore())
    async with client_of(middleware) as client:
        await client.get("/x")
        path.unlink()
        os.mkfifo(path)
        await until(lambda: any("is no file" in line for line in lines_of(caplog, path)))
        path.unlink()
        rewrite(path, RULE.format("5/hour"))
        await until(lambda: limit_of(middleware, "x") == [5])


async def test_an_override_wins_over_the_file_and_unset_brings_it_back(tmp_path: Path) -> None:
    """As the file is by then."""
    path, store = tmp_path / "limits.toml", MemoryStore()
    middleware = limited(path, RULE.format("3/hour"), store=store)
    async with client_of(middleware) as client:
        await client.get("/x")
        await Overrides(store).set("x", "4/hour")
        assert limit_of(middleware, "x") == [4]
        rewrite(path, 'quota = "9/hour"\n' + RULE.format("5/hour"))
        await until(lambda: limit_of(middleware, "default") == [9])
        assert limit_of(middleware, "x") == [4]
        await Overrides(store).unset("x")
        assert limit_of(middleware, "x") == [5]


async def test_a_list_that_fails_goes_by_the_file(tmp_path: Path) -> None:
    """What happens then is in its ``on_error``, also after a change."""
    path = tmp_path / "limits.toml"
    middleware = limited(path, 'quota = "9/s"\non_error = "deny"\n', store=MemoryStore(), deny=lambda request: 1 / 0)
    async with client_of(middleware) as client:
        assert (await client.get("/")).status_code == 503
        rewrite(path, 'quota = "8/s"\non_error = "allow"\n')
        await until(lambda: limit_of(middleware, "default") == [8])
        assert (await client.get("/")).status_code == 200


async def test_dependencies_follow_the_key_of_the_file(tmp_path: Path) -> None:
    """Those without a key of their own."""
    path, app = tmp_path / "limits.toml", FastAPI(dependencies=[Depends(RateLimit("1/hour", name="api"))])
    app.get("/")(lambda: None)
    middleware = limited(path, 'quota = "9/s"\nkey = "header:X-One"\n', store=MemoryStore(), inside=app)
    async with client_of(middleware) as client:
        ones = [{"x-one": one, "x-two": "2"} for one in "abcc"]
        assert [(await client.get("/", headers=each)).status_code for each in ones] == [200, 200, 200, 429]
        rewrite(path, 'quota = "8/s"\nkey = "header:X-Two"\n')
        await until(lambda: limit_of(middleware, "default") == [8])
        assert [(await client.get("/", headers=each)).status_code for each in ones] == [200, 429, 429, 429]


async def test_a_file_that_is_replaced_as_one(tmp_path: Path) -> None:
    """Another file under its name, or behind a link, is seen even if its time and size are the same."""
    path, link = tmp_path / "a.toml", tmp_path / "limits.toml"
    rewrite(path, RULE.format("3/hour"))
    link.symlink_to(path)
    middleware = RateLimitMiddleware(app_of_nothing, config=link)
    async with client_of(middleware) as client:
        await client.get("/x")
        other, status = tmp_path / "b.toml", path.stat()
        rewrite(other, RULE.format("7/hour"))
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        (tmp_path / "new").symlink_to(other)
        (tmp_path / "new").replace(link)
        await until(lambda: limit_of(middleware, "x") == [7])


async def test_a_file_that_is_written_in_place(tmp_path: Path) -> None:
    """It is seen even if its size is the same, and somebody has set its time back."""
    path = tmp_path / "limits.toml"
    rewrite(path, RULE.format("3/hour"))
    middleware = RateLimitMiddleware(app_of_nothing, config=path)
    async with client_of(middleware) as client:
        await client.get("/x")
        status = path.stat()
        path.write_text(RULE.format("7/hour"), "utf-8")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        await until(lambda: limit_of(middleware, "x") == [7])


async def app_of_nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


async def test_what_counts_at_the_next_start_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so; all else applies."""
    path = tmp_path / "limits.toml"
    middleware = limited(path, 'name = "api"\nquota = "5/hour"\n')
    async with client_of(middleware) as client:
        await client.get("/x")
        rewrite(path, 'name = "shop"\nquota = "6/hour"\nheaders = "none"\n')
        await until(lambda: limit_of(middleware, "api") == [6])
        assert "ratelimit" in (await client.get("/x")).headers
    await until(lambda: len(lines_of(caplog, path)) == 3)
    assert f"{path}: name api -> shop, from the next start on" in lines_of(caplog, path)


async def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    """A middleware that is dropped is gone, although its file was watched."""
    middleware = limited(tmp_path / "limits.toml", RULE.format("3/hour"))
    async with client_of(middleware) as client:
        await client.get("/x")
    gone = ref(middleware)
    del middleware, client
    gc.collect()
    await until(lambda: gone() is None)

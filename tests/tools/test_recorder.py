"""Recorders, and what a replay of their recordings foretells."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from asgi_ratelimit import ConfigurationError, Limiter, MemoryStore, Penalty, RateLimit, RateLimitMiddleware, Rule
from asgi_ratelimit.keys import header
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools import Recorder
from asgi_ratelimit.tools.logs import LogReader
from asgi_ratelimit.tools.replay import Replay, limits_of

pytestmark = pytest.mark.anyio


async def show(request: Any) -> PlainTextResponse:
    """An endpoint."""
    return PlainTextResponse("fine")


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a recording, without the first one."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()][1:]


async def statuses(app: Any, clock: SteppedClock, load: Iterable[tuple[float, str, str]]) -> list[int]:
    """The statuses of requests at these times, of these clients, for these paths."""
    start, answers = clock.now, []
    for time, client, path in load:
        clock.move_to(start + time)
        transport = httpx.ASGITransport(app, client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            answers.append((await http.get(path)).status_code)
    return answers


def load(count: int) -> list[tuple[float, str, str]]:
    """Requests of many clients, most of few, at random times, for two paths."""
    generator, time, requests = random.Random(3), 0.0, []
    clients = [f"192.0.2.{number}" for number in range(60)]
    for client in generator.choices(clients, [1 / (number + 1) for number in range(60)], k=count):
        time += generator.expovariate(20)
        requests.append((time, client, generator.choice(["/items/1", "/items/2", "/search"])))
    return requests


def app_with(clock: SteppedClock, rules: Sequence[Rule], hooks: Sequence[Any]) -> Starlette:
    """An app with these rules."""
    app = Starlette(routes=[Route("/items/{id}", show), Route("/search", show)])
    app.add_middleware(RateLimitMiddleware, rules=rules, store=MemoryStore(clock=clock), hooks=hooks)
    return app


@pytest.mark.parametrize("quota", ["20/minute", "2/s burst 4", "9 per 10 s rolling", "30/minute fixed"])
async def test_a_replay_foretells_a_live_run(quota: str, tmp_path: Path) -> None:
    """What a recording under a loose limit says of a strict one is what that refuses under the same load."""
    clock = SteppedClock()
    recorder = Recorder(tmp_path / "a.jsonl")
    loose = Rule("/items/{id}", "1000/s", name="items")
    await statuses(app_with(clock, [loose, Rule("/search", "9/s")], [recorder]), clock, load(600))
    recorder.close()
    foretold = {}
    for texts in ([f"items {quota}"], [f"/items/{{id}} {quota}"]):
        replay = Replay(limits_of(None, texts))
        reader = LogReader([str(tmp_path / "a.jsonl")], by_rule=texts[0].startswith("items"))
        await replay.run(reader.requests())
        (counts,) = replay.rules.values()
        foretold[texts[0]] = (counts.requests, counts.refused, counts.refused_keys)
    answers = await statuses(app_with(clock, [Rule("/items/{id}", quota)], []), clock, load(600))
    refused = [client for (_, client, _), status in zip(load(600), answers) if status == 429]
    items = sum(path.startswith("/items") for _, _, path in load(600))
    assert len(refused) > 20
    assert set(foretold.values()) == {(items, len(refused), len(set(refused)))}


async def test_a_line_is_a_decision(tmp_path: Path) -> None:
    """With the rule, its key, its cost, what came of it, and the request, of which one line is the first."""
    clock = SteppedClock()
    rules = [
        Rule("/search", "5/s", name="search", key=header("x-user"), cost=3),
        Rule("/search", "1/s", name="trial", shadow=True),
        Rule("/items/{id}", "1/s", name="items", penalty=Penalty("1 minute")),
    ]
    recorder = Recorder(tmp_path / "a.jsonl", show_keys=True)
    app = app_with(clock, rules, [recorder])
    sent = [(0, "192.0.2.1", "/search?q=1"), (0, "192.0.2.1", "/search"), *[(0, "192.0.2.2", "/items/7")] * 2]
    await statuses(app, clock, sent)
    recorder.close()
    search = {"key": "192.0.2.1", "rule": "trial", "cost": 1, "method": "GET", "path": "/search"}
    items = {"key": "192.0.2.2", "rule": "items", "cost": 1, "method": "GET", "path": "/items/7"}
    assert lines(tmp_path / "a.jsonl") == [
        {"time": clock.now, **search, "result": "allowed"},
        {"time": clock.now, **search, "result": "shadowed"},
        {"time": clock.now, **items, "result": "allowed"},
        {"time": clock.now, **items, "result": "refused"},
    ]


async def test_a_request_is_one_however_many_limits_decide(tmp_path: Path) -> None:
    """In the middleware and in a dependency behind it; and calls of a limiter are decisions, too."""
    recorder = Recorder(tmp_path / "a.jsonl")
    app = FastAPI(dependencies=[Depends(RateLimit("5/s", name="all"))])
    app.get("/")(lambda: "fine")
    app.add_middleware(
        RateLimitMiddleware, quota="9/s", rules=[Rule("/", "8/s", name="root")], hooks=[recorder], name="app"
    )
    await statuses(app, SteppedClock(), [(0, "192.0.2.1", "/")])
    await Limiter("5/s", name="calls", hooks=[recorder]).rate_limit("x", 2)
    recorder.close()
    assert [(line["rule"], line["cost"], "again" in line) for line in lines(tmp_path / "a.jsonl")] == [
        ("app", 1, False),
        ("root", 1, True),
        ("all", 1, True),
        ("calls", 2, False),
    ]


def recorded_key(path: Path, **options: Any) -> str:
    """The key of one request as a recorder with these options writes it."""
    recorder = Recorder(path, **options)
    recorder.request("203.0.113.7", "GET", "/")
    recorder.close()
    key: str = lines(path)[-1]["key"]
    return key


def test_keys_are_hashed(tmp_path: Path) -> None:
    """With a salt of the recorder's own, or one that several share; unless it is told to show them."""
    own = {recorded_key(tmp_path / name) for name in ("a", "b")}
    shared = {recorded_key(tmp_path / name, salt=salt) for name, salt in (("c", "x" * 9), ("d", b"x" * 9))}
    assert (len(own), len(shared), len(own | shared)) == (2, 1, 3)
    assert all(len(key) == 16 and "203" not in key for key in own)
    assert recorded_key(tmp_path / "e", show_keys=True) == "203.0.113.7"
    assert "203.0.113.7" not in (tmp_path / "a").read_text("utf-8")


def test_a_recording_is_bounded(tmp_path: Path) -> None:
    """The file and the one before it, also where several recorders write it; no line is lost before that."""
    path = tmp_path / "a.jsonl"
    recorders = [Recorder(path, max_bytes=100_000, salt="x") for _ in range(2)]
    for number in range(8000):
        recorders[number % 2].request("k" * 40, "GET", "/")
    for recorder in recorders:
        recorder.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.jsonl", "a.jsonl.1"]
    assert all(each.stat().st_size < 300_000 for each in tmp_path.iterdir())
    assert path.with_name("a.jsonl.1").stat().st_size >= 100_000
    reader = LogReader([str(path), f"{path}.1"])
    read = list(reader.requests())
    assert len(read) > 1000
    assert (reader.unreadable, len(reader.salts)) == (0, 1)


def test_a_recorder_goes_on_after_it_was_closed(tmp_path: Path) -> None:
    """And what was recorded before it started stays."""
    path = tmp_path / "a.jsonl"
    for _ in range(2):
        recorder = Recorder(path, salt="x")
        for _ in range(2):
            recorder.request("k", "GET", "/")
            recorder.close()
    assert len(list(LogReader([str(path)]).requests())) == 4


def test_a_process_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """And one that was forked may go on with the same recorder."""
    recorder = Recorder(tmp_path / "a.jsonl", salt="x")
    recorder.request("parent", "GET", "/")
    child = os.fork()
    if not child:
        recorder.request("child", "GET", "/")
        os._exit(9)
    os.waitpid(child, 0)
    assert [line["path"] for line in lines(tmp_path / "a.jsonl")] == ["/", "/"]
    recorder.close()


def test_invalid_arguments(tmp_path: Path) -> None:
    """The error shows right ones."""
    with pytest.raises(ConfigurationError, match="not 5: Recorder"):
        Recorder(tmp_path / "a", max_bytes=5)
    with pytest.raises(ConfigurationError, match="salt must be"):
        Recorder(tmp_path / "a", salt="")
    with pytest.raises(OSError, match="nowhere"):
        Recorder("/nowhere/a")


def test_a_recorder_does_not_disturb_the_app(tmp_path: Path) -> None:
    """It adds nothing to the answer."""
    recorder = Recorder(tmp_path / "a")
    answers = asyncio.run(
        statuses(
            app_with(SteppedClock(), [Rule("/search", "1/minute")], [recorder]),
            SteppedClock(),
            [(0, "k", "/search")] * 2,
        )
    )
    recorder.close()
    assert answers == [200, 429]

"""Replays of what a served app has recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from asgi_ratelimit.tools.logs import LogReader
from asgi_ratelimit.tools.replay import Replay, limits_of
from tests.support.server import Uvicorn

pytestmark = pytest.mark.anyio

APP = """
import os
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from asgi_ratelimit import RateLimitMiddleware, Rule
from asgi_ratelimit.keys import header
from asgi_ratelimit.tools import Recorder

async def show(request):
    return PlainTextResponse("fine")

rules = [
    Rule("/items/{number}", "3/s burst 5", key=header("x-client"), name="bucket"),
    Rule("/items/{number}", "20 per 2 s rolling", key=header("x-client"), name="rolling"),
]
hooks = [Recorder(os.environ["OUT"])]
app = RateLimitMiddleware(Starlette(routes=[Route("/items/{number}", show)]), rules=rules, hooks=hooks)
"""

CLIENTS, REQUESTS = 5, 120


async def sent_at_once(url: str) -> list[int]:
    """The statuses of requests of some clients, a few at a time, as fast as they are answered."""
    limits = httpx.Limits(max_connections=10)
    async with httpx.AsyncClient(trust_env=False, base_url=url, limits=limits, timeout=60) as http:
        headers = [{"x-client": f"client-{number % CLIENTS}"} for number in range(REQUESTS)]
        sent = [http.get(f"/items/{number}", headers=each) for number, each in enumerate(headers)]
        return [answer.status_code for answer in await asyncio.gather(*sent)]


async def test_a_replay_refuses_what_the_server_has_refused(tmp_path: Path) -> None:
    """On the machine's clock, under the same limits, exactly; the times of a recording are those of the decisions."""
    (tmp_path / "main.py").write_text(APP, "utf-8")
    out = tmp_path / "requests.jsonl"
    with Uvicorn("main:app", app_dir=tmp_path, env={"OUT": str(out)}) as server:
        statuses = await sent_at_once(server.url)
    refused = statuses.count(429)
    results = [json.loads(line).get("result") for line in out.read_text("utf-8").splitlines()]
    assert 0 < refused < REQUESTS
    assert results.count("refused") == 2 * refused
    replay = Replay(limits_of(None, ["/items/{number} 3/s burst 5; 20 per 2 s rolling"]))
    await replay.run(LogReader([str(out)]).requests())
    assert (replay.requests, replay.refused, len(replay.clients)) == (REQUESTS, refused, CLIENTS)

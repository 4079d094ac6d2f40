"""The examples behave as described, on Starlette and on FastAPI, and the demo sees every expected fact."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import count

import httpx
import pytest

from examples import dashboard_app, fastapi_app, stand_ins, starlette_app
from tests.support.server import ROOT, Uvicorn

pytestmark = pytest.mark.anyio

hosts = count(1)


@pytest.fixture(params=[starlette_app.app, fastapi_app.app], ids=["starlette", "fastapi"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    """A client of each app, with an address that no other test uses."""
    transport = httpx.ASGITransport(request.param, client=(f"192.0.2.{next(hosts)}", 50000))
    async with httpx.AsyncClient(transport=transport, base_url="http://example") as client:
        yield client


async def test_the_default_limit(client: httpx.AsyncClient) -> None:
    """Five requests at once pass."""
    assert [(await client.get("/")).status_code for _ in range(6)] == [200] * 5 + [429]


async def test_the_rule_for_one_route(client: httpx.AsyncClient) -> None:
    """Three logins pass, and the fourth leaves the default limit as it was."""
    assert [(await client.post("/login")).status_code for _ in range(4)] == [200] * 3 + [429]
    assert (await client.get("/")).status_code == 200


async def test_the_page_is_for_this_machine_alone() -> None:
    """The app with the page limits others, and shows the page to nobody else."""
    statuses = []
    for address in ("127.0.0.1", "192.0.2.77"):
        transport = httpx.ASGITransport(dashboard_app.app, client=(address, 50000))
        async with httpx.AsyncClient(transport=transport, base_url="http://example") as client:
            statuses.append((await client.get("/limits/")).status_code)
            assert [(await client.get("/login")).status_code for _ in range(6)] == [200] * 5 + [429]
    assert statuses == [200, 403]


async def test_the_part_of_the_app_with_a_limit_for_each_api_key(client: httpx.AsyncClient) -> None:
    """Two requests pass with each key, whatever the page."""
    keys = ["one", "one", "one", "two"]
    answers = [await client.get(f"/api/reports/{n}", headers={"x-api-key": key}) for n, key in enumerate(keys)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 200]


async def test_the_route_whose_requests_wait(client: httpx.AsyncClient) -> None:
    """All of those at once pass, one after the other, and say how long they have waited."""
    answers = await asyncio.gather(*[client.get("/search") for _ in range(4)])
    assert [answer.status_code for answer in answers] == [200] * 4
    assert any("x-ratelimit-delay" in answer.headers for answer in answers)


class StandIn(Uvicorn):
    """A server that the example starts."""

    def command(self) -> list[str]:
        """The command line of the example."""
        return [sys.executable, "-m", "examples.stand_ins", self._app, "--port", str(self.port)]


@pytest.mark.parametrize("name", stand_ins.STAND_INS)
def test_a_stand_in_can_be_started(name: str) -> None:
    """Each of them answers: with a limit, or that something is missing from the request."""
    path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}.get(name, "/channels/1/messages")
    with StandIn(name, env={"PYTHONPATH": str(ROOT)}) as server:
        assert httpx.get(f"{server.url}{path}").status_code in (200, 405)


@pytest.mark.parametrize("options", [[], ["--redis"]], ids=["memory", "redis"])
def test_the_demo_sees_what_it_should(options: list[str]) -> None:
    """It shows admitted and refused requests, and succeeds."""
    command = (sys.executable, "-m", "examples.demo", *options)
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "200 OK" in run.stdout
    assert "429 Too Many Requests" in run.stdout
    assert run.stdout.splitlines()[-1].startswith("OK")

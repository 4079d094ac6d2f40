"""What the page is made of, and how it learns of changes."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

from asgi_ratelimit import MemoryStore, StoreTimeout
from asgi_ratelimit.dashboard import FILES, dashboard
from tests.support.asgi import Peer, http
from tests.support.dashboards import app_with_page, state_of, visitor

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["", *FILES])
async def test_every_answer_has_a_strict_policy(name: str) -> None:
    """Nothing runs that is written into the page, and nothing is loaded from elsewhere."""
    async with visitor(app_with_page(MemoryStore())) as client:
        answer = await client.get(f"/limits/{name}")
    assert answer.status_code == 200
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


async def test_other_paths_are_unknown() -> None:
    """Without the slash at its end it redirects, so that its files are found."""
    async with visitor(app_with_page(MemoryStore())) as client:
        answers = [await client.request(*each) for each in (("GET", "/limits/nothing"), ("PATCH", "/limits/"))]
    assert [answer.status_code for answer in answers] == [404, 405]
    peer = Peer()
    page = dashboard(MemoryStore(), allow=lambda request: True)
    await page(http("/admin/limits", root_path="/admin/limits"), peer.receive, peer.send)
    assert (peer.status, peer.headers["location"]) == (307, "limits/")


@pytest.mark.parametrize("show_keys", [False, True])
async def test_the_state(clock: Any, show_keys: bool) -> None:
    """It has what rules say, and what was admitted and refused. Keys are hashes, unless they are to be shown."""
    store = MemoryStore(clock=clock)
    async with visitor(app_with_page(store, show_keys=show_keys)) as client:
        for _ in range(3):
            await client.get("/login")
        state = await state_of(client, store)
        searches = [(await client.get("/limits/keys", params={"search": text})).json() for text in ("192.0.2.1", "0.2")]
    rules = {rule["name"]: rule for rule in state["rules"]}
    assert (rules["login"]["admitted"], rules["login"]["refused"], rules["login"]["quotas"]) == (2, 1, "2/minute")
    assert (rules["api"]["admitted"], rules["api"]["quotas"]) == (2, "100/minute")
    assert state["store"]["kind"] == "memory"
    assert ("192.0.2.1" in json.dumps(state)) is show_keys
    assert {key["rule"] for key in state["keys"]} == {"api", "login"}
    assert searches == [state["keys"], state["keys"] if show_keys else []]
    assert [process["latest"] <= clock.now for process in state["processes"]] == [True]


async def test_an_outage_is_told() -> None:
    """Where the store does not answer, the page says so, and stays."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        await client.get("/limits/")
        with mock.patch.object(type(store.documents), "read_parts", side_effect=StoreTimeout("no answer in 1 s")):
            answer = await client.get("/limits/state")
    assert answer.status_code == 503
    assert "no answer in 1 s" in answer.json()["error"]

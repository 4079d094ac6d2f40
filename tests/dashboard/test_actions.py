"""What the forms of the page do."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from asgi_ratelimit import Blocks, MemoryStore, Overrides, Penalty, Rule, Store
from asgi_ratelimit.testing import SteppedClock
from tests.support.dashboards import app_with_page, send_form, state_of, visitor

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("by", [lambda request: request.nobody, lambda request: "x" * 10_000], ids=["raises", "long"])
async def test_a_change_by_nobody_knows_whom(by: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A function that fails is logged, and the change is made without a name."""
    store = MemoryStore()
    async with visitor(app_with_page(store, by=by)) as client:
        done = await send_form(client, "set", rule="login", quota="5/minute")
    assert done.status_code == 200
    assert (await Overrides(store).all())["login"].by is None
    assert "by of the dashboard failed, so the history names nobody" in caplog.text


async def test_a_change_by_somebody_who_is_looked_up() -> None:
    """The function may be async, and say that there is no name; an ``HTTPException`` is answered as it says."""
    store = MemoryStore()

    async def by(request: Request) -> str | None:
        if "alice" not in request.headers["x-role"]:
            raise HTTPException(401, "who?")
        return "alice" if request.headers["x-role"] == "alice" else None

    app = app_with_page(store, by=by, allow=lambda request: True)
    names = []
    for role in ("alice", "alice's friend"):
        async with visitor(app, role) as client:
            await send_form(client, "set", rule="login", quota="5/minute")
        names.append((await Overrides(store).all())["login"].by)
    assert names == ["alice", None]
    async with visitor(app, "bob") as client:
        assert (await send_form(client, "unset", rule="login")).status_code == 401
    assert "login" in await Overrides(store).all()


WRONG = {
    "a wrong quota": ("set", {"rule": "login", "quota": "5/mintue"}, "mintue"),
    "a wrong duration": ("set", {"rule": "login", "quota": "5/minute", "for": "a while"}, "while"),
    "no rule": ("set", {"quota": "5/minute"}, "'rule' is empty"),
    "a rule that is none": ("reset", {"rule": "nothing", "key": "192.0.2.1"}, "no process .* 'nothing'"),
    "a key of yesterday": ("reset", {"id": "0" * 12}, "type it"),
    "too much": ("set", {"rule": "login", "quota": "5" * 10_000}, "a form has at most 8192 bytes"),
}


@pytest.mark.parametrize(("action", "fields", "why"), WRONG.values(), ids=WRONG)
async def test_a_wrong_field_changes_nothing(action: str, fields: dict[str, str], why: str) -> None:
    """The answer says what is wrong."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        answer = await send_form(client, action, **fields)
    assert answer.status_code == 400
    assert re.search(why, answer.json()["error"])
    assert await Overrides(store).all() == {}


async def test_a_key_is_reset(store: Store) -> None:
    """It may send its whole limit again; by its name, or by the row that shows only a hash of it."""
    async with visitor(app_with_page(store)) as client:
        statuses = []
        for number in range(2):
            statuses += [(await client.get("/login")).status_code for _ in range(3)]
            state = await state_of(client, store)
            row = next(key for key in state["keys"] if key["rule"] == "login")
            fields = {"id": row["id"]} if number else {"rule": "login", "key": "192.0.2.1"}
            done = (await send_form(client, "reset", **fields)).json()["done"]
            assert done == f"{fields.get('key', 'key ' + row['id'])} has used nothing of login now"
        statuses.append((await client.get("/login")).status_code)
    assert statuses == [200, 200, 429, 200, 200, 429, 200]


async def test_a_key_is_blocked_and_let_in_again(clock: SteppedClock) -> None:
    """As by ``Blocks``; the page lists the block and who did what. A rule without a penalty has none."""
    store = MemoryStore(clock=clock)
    blocks = Blocks(store=store, name="upload")
    upload = Rule("/upload", "5/minute", name="upload", penalty=Penalty("1 minute", after=3))
    async with visitor(app_with_page(store, upload)) as client:
        client.headers["authorization"] = "Basic " + b64encode(b"ann:secret").decode()
        await client.get("/upload")
        fields = {"rule": "upload", "key": "192.0.2.9"}
        await send_form(client, "block", **fields, **{"for": "1 day"})
        assert await blocks.blocked_for("192.0.2.9") == pytest.approx(86_400, abs=1)
        assert "already" in (await send_form(client, "block", **fields, **{"for": "1 day"})).json()["done"]
        (listed,) = (await state_of(client, store))["blocks"]
        await send_form(client, "lift", **fields)
        none = await send_form(client, "block", rule="login", key="192.0.2.9", **{"for": "1 hour"})
        state = await state_of(client, store)
    assert await blocks.blocked_for("192.0.2.9") == 0.0
    assert (none.status_code, "has no Penalty" in none.json()["error"]) == (400, True)
    assert (listed["rule"], listed["key"], listed["left"]) == ("upload", None, pytest.approx(86_400, abs=1))
    assert [each["action"] for each in state["history"]] == ["unblocked", "blocked for 1 day"]
    assert {(each["key"]["id"], each["by"]) for each in state["history"]} == {(listed["id"], "ann")}
    assert state["blocks"] == []


async def test_a_limit_that_is_set_applies_at_once(store: Store) -> None:
    """Requests are decided by it, and what the program says is still shown beside it; then it applies again."""
    async with visitor(app_with_page(store, by=lambda request: request.headers["x-role"])) as client:
        statuses = [(await client.get("/login")).status_code for _ in range(3)]
        await send_form(client, "set", rule="login", quota="5/minute")
        statuses += [(await client.get("/login")).status_code for _ in range(4)]
        state = await state_of(client, store)
        await send_form(client, "unset", rule="login")
        statuses.append((await client.get("/login")).status_code)
    (rule,) = (rule for rule in state["rules"] if rule["name"] == "login")
    assert statuses == [200, 200, 429, 200, 200, 200, 429, 429]
    assert (rule["quotas"], rule["override"]["quota"]) == ("2/minute", "5/minute")
    assert [(change["name"], change["by"]) for change in state["history"]] == [("login", "admin")]
    assert (rule["admitted"], rule["refused"]) == (5, 2)

"""Who may see the page, and forms that were not sent from it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request

from asgi_ratelimit import ConfigurationError, MemoryStore, Overrides, RateLimitMiddleware, RedisStore
from asgi_ratelimit.dashboard import dashboard
from asgi_ratelimit.keys import client_ip
from tests.support.dashboards import BY_SCRIPT, ORIGIN, app_with_page, send_form, state_of, visitor
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.anyio

PATHS = ["/", "/state", "/keys", "/what-if?rule=api&quota=1/s", "/page.js", "/uPlot.min.css", "/nothing"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"'allow': app.mount\(\"/limits\", dashboard\(store, allow=is_admin"),
        ({"allow": HTTPBearer()}, r"allow is a function of .*, not .*HTTPBearer.*: dashboard\(store, allow=lambda"),
        ({"allow": print, "by": "ann"}, "by is a function of .*, not 'ann'"),
    ],
    ids=["nothing", "a security scheme", "a name"],
)
def test_the_page_cannot_be_built_without_an_allow(options: Any, message: str) -> None:
    """There is no default, and what would let everybody in is refused, with an example of a right one."""
    with pytest.raises(ConfigurationError, match=message):
        dashboard(MemoryStore(), **options)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
async def test_an_anonymous_request_learns_nothing(method: str, path: str) -> None:
    """Every path is answered with the same 403, which neither names the page nor sets a cookie."""
    async with visitor(app_with_page(MemoryStore()), role="anonymous") as client:
        answers = [await client.request(method, f"/limits{each}") for each in (path, "/no-such-page")]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert answers[0].headers == answers[1].headers
    assert answers[0].content in (b"Forbidden", b"")
    assert "set-cookie" not in answers[0].headers


@pytest.mark.parametrize(
    "allow",
    [lambda _: "yes", lambda _: None, lambda request: request.headers["x-missing"]],
    ids=["text", "nothing", "failure"],
)
async def test_only_true_lets_in(allow: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is merely true in a condition is refused, as is a failure, and the log says so."""
    async with visitor(app_with_page(MemoryStore(), allow=allow)) as client:
        assert (await client.get("/limits/")).status_code == 403
    assert "allow of the dashboard failed, so nobody is let in" in caplog.text


async def test_allow_may_ask_for_a_password() -> None:
    """An HTTPException is the answer, with its headers; the function may be async."""

    async def allow(request: Request) -> bool:
        expected = "Basic " + base64.b64encode(b"ann:secret").decode()
        if "authorization" not in request.headers:
            raise HTTPException(401, headers={"www-authenticate": 'Basic realm="limits"'})
        return request.headers["authorization"] == expected

    async with visitor(app_with_page(MemoryStore(), allow=allow)) as client:
        asked = await client.get("/limits/")
        assert (asked.status_code, asked.headers["www-authenticate"]) == (401, 'Basic realm="limits"')
        assert (await client.get("/limits/", auth=("ann", "secret"))).status_code == 200
        assert (await client.get("/limits/", auth=("ann", "wrong"))).status_code == 403


# Forms

FIELDS = {"rule": "login", "quota": "1/day"}

FORGED: Mapping[str, Mapping[str, str]] = {
    "from another site": {"origin": "http://evil.example"},
    "from another scheme and site": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "from a site beside it": {"origin": ORIGIN, "sec-fetch-site": "same-site"},
    "typed by the user": {"sec-fetch-site": "none"},
    "from nowhere": {},
    "from a sandbox, to nowhere": {"origin": "null", "host": ""},
}


@pytest.mark.parametrize("headers", FORGED.values(), ids=FORGED)
async def test_a_form_from_elsewhere_does_nothing(headers: Mapping[str, str]) -> None:
    """Even with the header of the page, a form that another page sends is refused."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        answer = await client.post("/limits/set", data=FIELDS, headers={**headers, **BY_SCRIPT})
    assert answer.status_code == 403
    assert await Overrides(store).all() == {}


@pytest.mark.parametrize("says", [{"origin": ORIGIN}, {"sec-fetch-site": "same-origin"}], ids=["origin", "site"])
async def test_a_form_without_a_script_does_nothing(says: dict[str, str]) -> None:
    """A form that somebody else has put into another page of the site."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        answer = await client.post("/limits/set", data=FIELDS, headers=says)
    assert answer.status_code == 403
    assert await Overrides(store).all() == {}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_only_a_post_changes_anything(method: str) -> None:
    """A link changes nothing."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        await client.request(method, "/limits/set", params=FIELDS, headers={**BY_SCRIPT, "origin": ORIGIN})
    assert await Overrides(store).all() == {}


async def test_workers_share_the_names_of_keys(redis_url: str, redis_server: RedisServer) -> None:
    """The page of one worker names a key to another, also that of one that came after Redis had lost all."""
    stores = [RedisStore(redis_url, timeout=30) for _ in range(3)]
    one, other, later = [visitor(app_with_page(store)) for store in stores]
    async with one as one, other as other, later as later:
        for sender, store in ((one, stores[0]), (later, stores[2])):
            redis_server.flush()
            await sender.get("/login")
            ids = [key["id"] for key in (await state_of(sender, store))["keys"] if key["rule"] == "login"]
            await state_of(other, stores[1])
            done = (await send_form(other, "reset", id=ids[0])).json()["done"]
            assert done == f"key {ids[0]} has used nothing of login now"
    for store in stores:
        await store.aclose()


async def test_passwords_cannot_be_tried_at_will() -> None:
    """An address that was denied too often is refused, whatever it sends then; who is let in costs nothing."""

    def allow(request: Request) -> bool:
        if request.headers["authorization"] == "right":
            return True
        raise HTTPException(401)

    app = RateLimitMiddleware(app_with_page(MemoryStore(), allow=allow), key=client_ip(["192.0.2.1"]))
    async with visitor(app) as client:

        async def statuses(*passwords: str) -> list[int]:
            answers = [await client.get("/limits/", headers={"authorization": each}) for each in passwords]
            return [answer.status_code for answer in answers]

        assert await statuses(*["right"] * 50) == [200] * 50
        assert await statuses(*map(str, range(30))) == [401] * 20 + [429] * 10
        assert await statuses("right") == [429]
        client.headers["x-forwarded-for"] = "192.0.2.2"  # of another address behind a proxy
        assert await statuses("right") == [200]

"""Forms that were not sent from the page."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from asgi_ratelimit import MemoryStore, RedisStore, Store
from asgi_ratelimit.overrides import Overrides
from tests.support.dashboards import ORIGIN, app_with_page, send_form, token_of, visitor

pytestmark = pytest.mark.anyio

FIELDS = {"rule": "login", "quota": "1/day"}

FORGED: Mapping[str, Mapping[str, str]] = {
    "from another site": {"origin": "http://evil.example"},
    "from another port": {"origin": f"{ORIGIN}:8080"},
    "from another scheme and site": {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    "from a site beside it": {"origin": ORIGIN, "sec-fetch-site": "same-site"},
    "typed by the user": {"sec-fetch-site": "none"},
    "from a sandbox": {"origin": "null"},
    "from nowhere": {},
    "from a sandbox, to nowhere": {"origin": "null", "host": ""},
    "from what is no address": {"origin": "http://["},
}


@pytest.mark.parametrize("headers", FORGED.values(), ids=FORGED)
async def test_a_form_from_elsewhere_does_nothing(headers: Mapping[str, str]) -> None:
    """Even with the right cookie and token, a form that another page sends is refused."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        token = await token_of(client)
        answer = await client.post("/limits/set", data=FIELDS, headers={**headers, "x-limits-token": token})
    assert answer.status_code == 403
    assert await Overrides(store).all() == {}


@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"], ids=["none", "empty", "guessed", "not-ascii"])
async def test_a_form_without_the_token_does_nothing(token: str | None) -> None:
    """The cookie alone, which a browser sends by itself, is not enough."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        await token_of(client)
        headers = {b"origin": ORIGIN.encode()}
        if token is not None:
            headers[b"x-limits-token"] = token.encode("utf-8")
        answer = await client.post("/limits/set", data=FIELDS, headers=headers)
    assert answer.status_code == 403
    assert await Overrides(store).all() == {}


async def test_a_token_is_of_one_browser() -> None:
    """The token of somebody else's page is refused, and so is one without its cookie."""
    store = MemoryStore()
    app = app_with_page(store)
    async with visitor(app) as one, visitor(app) as other:
        headers = {"x-limits-token": await token_of(one), "origin": ORIGIN}
        assert (await other.post("/limits/set", data=FIELDS, headers=headers)).status_code == 403
        await token_of(other)
        assert (await other.post("/limits/set", data=FIELDS, headers=headers)).status_code == 403
    assert await Overrides(store).all() == {}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
async def test_only_a_post_changes_anything(method: str) -> None:
    """A link changes nothing."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        headers = {"x-limits-token": await token_of(client), "origin": ORIGIN}
        await client.request(method, "/limits/set", params=FIELDS, headers=headers)
    assert await Overrides(store).all() == {}


async def test_a_form_of_the_page_is_carried_out(store: Store) -> None:
    """With the cookie, the token and the right origin; on all workers that share the store."""
    async with visitor(app_with_page(store)) as client:
        assert (await send_form(client, "set", **FIELDS)).status_code == 200
        headers = {"x-limits-token": await token_of(client), "sec-fetch-site": "same-origin"}
        assert (await client.post("/limits/unset", data={"rule": "login"}, headers=headers)).status_code == 200


async def test_workers_share_the_secret(redis_url: str) -> None:
    """A page from one worker may send its form to another."""
    stores = [RedisStore(redis_url, timeout=30) for _ in range(2)]
    async with visitor(app_with_page(stores[0])) as one, visitor(app_with_page(stores[1])) as other:
        headers = {"x-limits-token": await token_of(one), "origin": ORIGIN}
        other.cookies = one.cookies
        assert (await other.post("/limits/set", data=FIELDS, headers=headers)).status_code == 200
    assert list(await Overrides(stores[0]).all()) == ["login"]
    for store in stores:
        await store.aclose()


async def test_the_cookie_is_for_this_page_alone() -> None:
    """Other sites' requests do not carry it, scripts do not see it, and other pages of the site do not get it."""
    async with visitor(app_with_page(MemoryStore())) as client:
        cookie = (await client.get("/limits/")).headers["set-cookie"]
        secure = (await client.get("https://example.org/limits/")).headers["set-cookie"]
        (kept,) = [each for each in client.cookies.jar if not each.secure]
    assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert kept.path == "/limits"
    assert "Secure" in secure

"""Who may see the page."""

from __future__ import annotations

import base64
import logging
from typing import Annotated, Any

import pytest
from fastapi import Depends
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request

from asgi_ratelimit import ConfigurationError, MemoryStore
from asgi_ratelimit.dashboard import dashboard
from asgi_ratelimit.overrides import Overrides
from tests.support.dashboards import ORIGIN, app_with_page, token_of, visitor

pytestmark = pytest.mark.anyio

PATHS = ["/", "/state", "/what-if?rule=api&quota=1/s", "/page.js", "/uPlot.min.css", "/nothing"]


def test_the_page_cannot_be_built_without_allow() -> None:
    """There is no default: leaving it out is an error in any case."""
    with pytest.raises(ConfigurationError, match=r"'allow': app.mount\(\"/limits\", dashboard\(store, allow=is_admin"):
        dashboard(MemoryStore())  # type: ignore[call-arg]


@pytest.mark.parametrize("allow", [None, True, "admin"])
def test_allow_is_a_function(allow: Any) -> None:
    """Anything else is refused with an example of a right one."""
    with pytest.raises(ConfigurationError, match=r"allow is a function .*not .*: dashboard\(store, allow=lambda"):
        dashboard(MemoryStore(), allow=allow)


def is_staff(user: Annotated[str, Depends(print)]) -> bool:
    return True


def test_allow_is_no_dependency() -> None:
    """Called with a request as the user, it would let everybody in."""
    with pytest.raises(ConfigurationError, match="allow=is_staff is a dependency of FastAPI"):
        dashboard(MemoryStore(), allow=is_staff)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", [APIKeyHeader(name="x-key"), HTTPBearer()], ids=lambda each: type(each).__name__)
def test_allow_is_no_security_scheme(scheme: Any) -> None:
    """It checks nothing that a client sends, and so it would let nobody in, or everybody."""
    with pytest.raises(ConfigurationError, match=r"allow=(APIKeyHeader|HTTPBearer) is a dependency of FastAPI"):
        dashboard(MemoryStore(), allow=scheme)


def test_by_is_a_function() -> None:
    """A name instead of a function of the request is refused."""
    with pytest.raises(ConfigurationError, match=r"by is a function of .*, not 'ann'"):
        dashboard(MemoryStore(), allow=lambda request: True, by="ann")  # type: ignore[arg-type]


def test_a_store_without_documents_has_no_page() -> None:
    """What cannot be read or changed for all processes is refused."""

    class OwnStore:
        in_process = True

        async def take(self) -> None: ...

    with pytest.raises((ConfigurationError, TypeError)):
        dashboard(OwnStore(), allow=lambda request: True)  # type: ignore[arg-type]


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


async def test_an_anonymous_form_does_nothing() -> None:
    """Not even with the cookie and the token of an admin."""
    store = MemoryStore()
    async with visitor(app_with_page(store)) as client:
        headers = {"x-limits-token": await token_of(client), "origin": ORIGIN, "x-role": "anonymous"}
        answer = await client.post("/limits/set", data={"rule": "login", "quota": "1/day"}, headers=headers)
    assert answer.status_code == 403
    assert await Overrides(store).all() == {}


@pytest.mark.parametrize("answer", ["yes", 1, None, object()])
async def test_only_true_lets_in(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is merely true in a condition is refused, and the log says so."""
    async with visitor(app_with_page(MemoryStore(), allow=lambda request: answer)) as client:
        assert (await client.get("/limits/")).status_code == 403
    assert "it must return True or False" in caplog.text


async def test_allow_that_fails_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    """A failure is logged."""
    caplog.set_level(logging.ERROR)

    def allow(request: Request) -> bool:
        return bool(request.headers["x-missing"])

    async with visitor(app_with_page(MemoryStore(), allow=allow)) as client:
        assert (await client.get("/limits/")).status_code == 403
    assert "nobody is let in" in caplog.text


async def test_an_asynchronous_allow() -> None:
    """It is awaited."""

    async def allow(request: Request) -> bool:
        return request.headers.get("x-role") == "admin"

    app = app_with_page(MemoryStore(), allow=allow)
    async with visitor(app) as client:
        assert (await client.get("/limits/")).status_code == 200
        assert (await client.get("/limits/", headers={"x-role": "guest"})).status_code == 403


async def test_allow_may_ask_for_a_password() -> None:
    """An HTTPException is the answer, with its headers."""

    def allow(request: Request) -> bool:
        expected = "Basic " + base64.b64encode(b"ann:secret").decode()
        if "authorization" not in request.headers:
            raise HTTPException(401, headers={"www-authenticate": 'Basic realm="limits"'})
        return request.headers["authorization"] == expected

    async with visitor(app_with_page(MemoryStore(), allow=allow)) as client:
        asked = await client.get("/limits/")
        assert (asked.status_code, asked.headers["www-authenticate"]) == (401, 'Basic realm="limits"')
        assert (await client.get("/limits/", auth=("ann", "secret"))).status_code == 200
        assert (await client.get("/limits/", auth=("ann", "wrong"))).status_code == 403


async def test_passwords_cannot_be_tried_at_will() -> None:
    """An address that was denied too often is refused, whatever it sends then; who is let in costs nothing."""

    def allow(request: Request) -> bool:
        if request.headers["authorization"] == "right":
            return True
        raise HTTPException(401)

    async with visitor(app_with_page(MemoryStore(), allow=allow)) as client:

        async def statuses(*passwords: str) -> list[int]:
            answers = [await client.get("/limits/", headers={"authorization": each}) for each in passwords]
            return [answer.status_code for answer in answers]

        assert await statuses(*["right"] * 50) == [200] * 50
        assert await statuses(*map(str, range(30))) == [401] * 20 + [429] * 10
        assert await statuses("right") == [429]

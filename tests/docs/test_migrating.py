"""The page on other limiters: every line of its tables is built, and does what it should."""

from __future__ import annotations

import inspect
import re
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.params import Depends as Dependency
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse

import asgi_ratelimit
from asgi_ratelimit import MemoryStore, RateLimit, RateLimitMiddleware, Rule, Store, open_store, parse_quotas
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ok
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "migrating.md").read_text("utf-8")
ROWS = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
STRINGS = [[cell.strip() for cell in row] for row in ROWS if len(row) == 4 and "theirs" not in row[0]]
CODE = [re.findall(r"`([^`]+)`", row[1])[0] for row in ROWS if len(row) == 2 and "`" in row[1]]
LIMITS = [code for code in dict.fromkeys(CODE) if code.startswith(("Rule", "Depends", "RateLimit"))]


def f(connection: HTTPConnection) -> bool:
    return connection.headers.get("x-staff") == "yes"


def tier(connection: HTTPConnection) -> str:
    return "2/minute fixed"


def cost(connection: HTTPConnection) -> float:
    return 2


def answer(connection: HTTPConnection, decision: Any) -> PlainTextResponse:
    return PlainTextResponse("slow down", 429)


OPENED: list[Store] = []


def on_a_clock_that_stands_still(*arguments: Any, store: str = "memory://", **options: Any) -> RateLimitMiddleware:
    """The middleware, so that no window ends in the middle of a test, and with a store that is closed after it."""
    OPENED.append(open_store(store, clock=SteppedClock()))
    return RateLimitMiddleware(*arguments, store=OPENED[-1], **options)


NAMES: dict[str, Any] = {name: getattr(asgi_ratelimit, name) for name in asgi_ratelimit.__all__}
NAMES |= {"app": ok, "f": f, "tier": tier, "cost": cost, "answer": answer, "note": lambda event: None}
NAMES |= {"Depends": Depends, "RateLimitMiddleware": on_a_clock_that_stands_still}


@pytest.mark.parametrize("row", STRINGS, ids=[row[0][:60] for row in STRINGS])
def test_a_string_means_what_it_meant(row: list[str]) -> None:
    """As many units in as many seconds, in a window of the kind that was counted in."""
    theirs, here, units, seconds = row
    quota = parse_quotas(here.strip("`"))[0]
    assert (quota.limit, quota.period) == (int(units), int(seconds))
    assert re.search(r"\d+", theirs)[0] == units  # type: ignore[index]
    assert type(quota).__name__ == ("RollingWindow" if "window" in theirs else "FixedWindow")


def built(code: str) -> Any:
    """What a cell of a table comes to."""
    return eval(code, dict(NAMES))


def passes(code: str) -> int | None:
    """How many requests of one client should pass at once, by the first window; ``None``: all of them."""
    if ("None" in code and "lambda" not in code) or "settle" in code:
        return None
    quota = re.search(r'"(\d+) ?(?:/|per)[^"]*"', code)
    if quota is None:
        return 2 if "tier" in code else None
    least = min(each.limit for each in parse_quotas(quota[0].strip('"')))
    return int(least / (3 if "cost=3" in code else 2 if "cost=cost" in code else 1))


def app_for(thing: Any) -> tuple[Any, str]:
    """An app with a limit, and a path that it is for."""
    store = MemoryStore(clock=SteppedClock())
    if isinstance(thing, Rule):
        path = thing.path.replace("{rest:path}", "").replace("{id}", "7")
        return RateLimitMiddleware(ok, rules=[thing], store=store), path
    if isinstance(thing, RateLimit):
        thing = Depends(thing)
    if isinstance(thing, Dependency):
        app = FastAPI(dependencies=[thing])
        app.add_api_route("/", lambda: "fine")
        app.add_middleware(RateLimitMiddleware, store=store)
        return app, "/"
    return thing, "/"


@pytest.mark.parametrize("code", LIMITS)
async def test_a_limit_lets_as_many_pass_as_it_says(code: str, redis_url: str) -> None:
    """Built as it is written, it refuses the request after that, and none before."""
    app, path = app_for(built(code.replace("redis://localhost", redis_url)))
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    headers = {"x-user": "ann", "cookie": "session=1"}
    async with httpx.AsyncClient(transport=transport, base_url="http://app", headers=headers) as client:
        answers = [(await client.get(path)).status_code for _ in range(8)]
    while OPENED:
        await OPENED.pop().aclose()
    expected = passes(code)
    assert answers == ([200] * 8 if expected is None else [200] * expected + [429] * (8 - expected))


@pytest.mark.parametrize("code", [code for code in dict.fromkeys(CODE) if code not in LIMITS])
async def test_all_else_can_be_written_so(code: str, redis_url: str) -> None:
    """Keys, stores and limiters are built as they are written, and what is to be awaited can be."""
    thing = built(code.replace("redis://localhost", redis_url))
    if inspect.isawaitable(thing):
        await thing
    assert thing is not True


def test_no_line_is_left_out() -> None:
    """Every line of the tables has been found, but for the headings."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    headings = sum(line.startswith("| ---") for line in PAGE.splitlines())
    assert headings == 5
    assert len(STRINGS) + len(CODE) == len(lines) - headings

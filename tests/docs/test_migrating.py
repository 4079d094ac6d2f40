"""The page on other limiters: every row of its tables is built, and limits as it says."""

from __future__ import annotations

import inspect
import re
from functools import partial
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.params import Depends as Dependency
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse

import asgi_ratelimit
from asgi_ratelimit import Limiter, RateLimit, RateLimitMiddleware, Rule, keys, parse_quotas
from asgi_ratelimit.stores import MemoryStore, Store, open_store
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ok
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs" / "migrating.md").read_text("utf-8")
ROWS = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
STRINGS = [[cell.strip() for cell in row] for row in ROWS if len(row) == 4 and "theirs" not in row[0]]
CODE = [re.findall(r"`([^`]+)`", row[1])[0] for row in ROWS if len(row) == 2 and "`" in row[1]]
LIMITS = [code for code in dict.fromkeys(CODE) if code.startswith(("Rule", "Depends", "RateLimit"))]


OPENED: list[Store] = []


def middleware_on_a_stepped_clock(*arguments: Any, store: str = "memory://", **options: Any) -> RateLimitMiddleware:
    """The middleware on a stepped clock, so that no window ends during a test; the test closes its store."""
    OPENED.append(open_store(store, clock=SteppedClock()))
    return RateLimitMiddleware(*arguments, store=OPENED[-1], **options)


NAMES: dict[str, Any] = {name: getattr(module, name) for module in (keys, asgi_ratelimit) for name in module.__all__}
NAMES |= {"app": ok, "f": lambda connection: False, "who": lambda connection: connection.headers.get("x-user")}
NAMES |= {"tier": lambda connection: "2/minute fixed", "cost": lambda connection: 2}
NAMES |= {"path": lambda connection: connection.url.path}
NAMES |= {"answer": lambda connection, decision: PlainTextResponse("slow down", 429)}
NAMES |= {"note": lambda event: None, "Depends": Depends, "RateLimitMiddleware": middleware_on_a_stepped_clock}


@pytest.mark.parametrize("row", STRINGS, ids=[row[0][:60] for row in STRINGS])
def test_a_string_has_the_same_meaning(row: list[str]) -> None:
    """The quota has the same units, the same seconds and the same kind of window."""
    theirs, here, units, seconds = row
    quota = parse_quotas(here.strip("`"))[0]
    assert (quota.limit, quota.period) == (int(units), int(seconds))
    assert re.search(r"\d+", theirs)[0] == units  # type: ignore[index]
    assert type(quota).__name__ == ("RollingWindow" if "window" in theirs else "FixedWindow")


def built(code: str) -> Any:
    """The value of the code in a cell of a table."""
    return eval(code, dict(NAMES))


def passes(code: str) -> int | None:
    """The number of requests of one client that should pass at once; ``None`` for all of them."""
    if ("None" in code and "lambda" not in code) or "settle" in code:
        return None
    quota = re.search(r'"(\d+) ?(?:/|per)[^"]*"', code)
    if quota is None:
        return 2 if "tier" in code else None
    least = min(each.limit for each in parse_quotas(quota[0].strip('"')))
    return int(least / (3 if "cost=3" in code else 2 if "cost=cost" in code else 1))


def app_for(thing: Any) -> tuple[Any, str]:
    """An app with a limit, and a path that it limits."""
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
async def test_a_limit_admits_as_many_as_it_says(code: str, redis_url: str) -> None:
    """Built as written, it admits that many requests, and refuses the next."""
    app, path = app_for(built(code.replace("redis://localhost", redis_url)))
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 1))
    headers = {"x-user": "ann", "cookie": "session=1"}
    async with httpx.AsyncClient(transport=transport, base_url="http://app", headers=headers) as client:
        answers = [(await client.get(path)).status_code for _ in range(8)]
    while OPENED:
        await OPENED.pop().aclose()
    expected = passes(code)
    assert answers == ([200] * 8 if expected is None else [200] * expected + [429] * (8 - expected))


OWN_CALLS = [row for row in ROWS if re.search(r"\.(rate_limit|acquire)\(", row[-1])]


@pytest.mark.parametrize("row", OWN_CALLS, ids=[row[0].strip()[:40] for row in OWN_CALLS])
def test_a_limit_in_an_endpoint_limits(row: list[str]) -> None:
    """The limiter is made once, and ten awaited calls are limited by it: two pass at once, and the others wait."""
    made, called = re.findall(r"`([^`]+)`", row[-1])
    clock = SteppedClock()
    with_clock: dict[str, Any] = {**NAMES, "Limiter": partial(Limiter, store=MemoryStore(clock=clock))}
    connection = HTTPConnection({"type": "http", "headers": [(b"x-user", b"ann")]})
    exec(f"{made}\nasync def call(connection):\n    return {called}", with_clock)

    async def ten_calls() -> list[Any]:
        return [await with_clock["call"](connection) for _ in range(10)]

    started = clock.now
    decisions = clock.run(ten_calls())
    if "acquire" in called:
        assert clock.now - started == 8 * 2.5
    else:
        assert [bool(each) for each in decisions] == [True] * 2 + [False] * 8


@pytest.mark.parametrize("code", [code for code in dict.fromkeys(CODE) if code not in LIMITS and " = " not in code])
async def test_everything_else_is_valid(code: str, redis_url: str) -> None:
    """Keys, stores and limiters are built as written, and coroutines can be awaited."""
    thing = built(code.replace("redis://localhost", redis_url))
    if inspect.isawaitable(thing):
        await thing
    assert thing is not True


def test_no_row_is_left_out() -> None:
    """Every row of the tables is tested, except the headings."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    headings = sum(line.startswith("| ---") for line in PAGE.splitlines())
    assert headings == 5
    assert len(STRINGS) + len(CODE) == len(rows) - headings

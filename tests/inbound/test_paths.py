"""Paths that apps read in another way than routers do: no spelling of a path leads past a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, Rule
from asgi_ratelimit.keys import path_param
from asgi_ratelimit.testing import SteppedClock
from tests.support.asgi import ask, http, ok

pytestmark = pytest.mark.anyio

SPELLINGS = ["/login", "//login", "/./login", "/x/../login", "/../login", "login", "/login/", "/login//", "/login/."]
SPELLINGS += ["http://shop/login", "//x/..//login", "/login/x/.."]


def limited(*rules: Rule, app: Any = ok, quota: Any = None) -> RateLimitMiddleware:
    return RateLimitMiddleware(app, quota, rules=rules, store=MemoryStore(clock=SteppedClock()))


async def statuses(app: Any, *paths: str) -> list[int]:
    return [(await ask(app, http(path))).status for path in paths]


@pytest.mark.parametrize("path", SPELLINGS)
async def test_a_rule_charges_each_spelling_of_its_path(path: str) -> None:
    """Its bucket is the same."""
    assert await statuses(limited(Rule("/login", "1/day")), "/login", path) == [200, 429]
    assert await statuses(limited(Rule("/{page}", "1/day", key=path_param("page"))), "/login", path) == [200, 429]


@pytest.mark.parametrize("path", SPELLINGS[1:])
async def test_a_rule_exempts_no_other_spelling(path: str) -> None:
    """Nor does it lift the other limits by deciding alone: an app may take it for another path."""
    assert await statuses(limited(Rule("/login", None), quota="1/day"), path, path) == [200, 429]
    app = limited(Rule("/login", "100/day", only=True), quota="1/day")
    assert await statuses(app, path, path) == [200, 429]


@pytest.mark.parametrize("path", ["/icons/../big.zip", "/icons/./../big.zip", "/icons//../big.zip"])
async def test_an_exempt_folder_exempts_nothing_outside_of_it(path: str) -> None:
    """Whatever its path begins with."""
    app = limited(Rule("/icons/{name:path}", None), quota="1/day")
    assert await statuses(app, path, path) == [200, 429]
    assert await statuses(app, "/icons/a.svg", "/icons/a/b.svg", "/icons/", "/icons") == [200] * 4


async def test_other_paths_are_other_paths() -> None:
    """A path that only looks alike is charged nothing."""
    app = limited(Rule("/login", "1/day"))
    assert await statuses(app, *["/log", "/login2", "/x/login", "/login/x", "/Login", "/..login"] * 2) == [200] * 12


@pytest.mark.parametrize("rule", ["/dl/big.zip", "/dl/{name}", "/dl/{name:path}"])
@pytest.mark.parametrize("path", ["/dl/big.zip", "/dl//big.zip", "/dl/./big.zip", "/dl/x/../big.zip", "/dl/big.zip/"])
async def test_static_files_are_limited(tmp_path: Path, rule: str, path: str) -> None:
    """They resolve dots and slashes by themselves."""
    (tmp_path / "big.zip").write_bytes(b"x")
    app = Starlette(routes=[Mount("/dl", app=StaticFiles(directory=tmp_path))])
    answers = await statuses(limited(Rule(rule, "1/day"), app=app), path, path, path)
    assert answers.count(200) <= 1
    assert answers[1:] == [429, 429]

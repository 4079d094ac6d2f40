"""Decorators in the wrong order: the route would call the function without its pace."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.routing import Route, Router

from asgi_ratelimit import pace
from asgi_ratelimit.logs import warn_once


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Each test gets all warnings, as in a process of its own."""
    warn_once.cache_clear()


def warned(caplog: pytest.LogCaptureFixture) -> bool:
    return "docs/warnings.md#a-decorator-above-a-route" in caplog.text


@pytest.mark.parametrize("build", [FastAPI, APIRouter])
@pytest.mark.parametrize("method", ["get", "post", "websocket"])
def test_pace_above_a_route(build: Any, method: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is told where the function is decorated, with the path and the remedy."""
    app = build()

    @pace("10/s")
    @getattr(app, method)("/report")
    async def report(websocket: Any = None) -> str:
        return "fine"

    assert warned(caplog)
    assert "the route '/report', which has registered " in caplog.text
    assert "put @pace below it" in caplog.text


def test_pace_above_a_route_of_starlette(caplog: pytest.LogCaptureFixture) -> None:
    """A route that is written as an object has the function itself, too."""

    def report(request: Any) -> Any:
        raise NotImplementedError

    router = Router([Route("/report", report)])
    pace("10/s")(report)
    assert warned(caplog)
    assert router.routes


def test_pace_below_a_route(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right order says nothing, and searches for nothing."""
    monkeypatch.setattr(gc, "get_referrers", lambda *objects: pytest.fail("searched"))
    app = FastAPI()

    @app.get("/report")
    @pace("10/s")
    async def report() -> str:
        return "fine"

    @pace("10/s")
    def plain() -> None:
        pass

    class Client:
        @pace("10/s")
        def call(self) -> None:
            pass

    assert Client
    assert plain
    assert not warned(caplog)


def test_a_function_that_others_know_is_fine(caplog: pytest.LogCaptureFixture) -> None:
    """Only a route that calls it is a mistake."""

    def report() -> None:
        pass

    known = {"report": report, "endpoint": report}
    pace("10/s")(report)
    assert known
    assert not warned(caplog)

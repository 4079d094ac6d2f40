"""Requests straight into an app, and what is measured with them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.types import Receive, Scope, Send

from benchmarks.processes.direct_client import DirectClient, address_of
from benchmarks.processes.event_loop_pauses import PauseMonitor


class RecordingApp:
    """Answers 200 and records the clients."""

    def __init__(self) -> None:
        self.clients: list[Any] = []

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        self.clients.append(scope["client"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def test_clients_have_different_addresses() -> None:
    """No two of a million are equal, and neighbours differ in every changing part."""
    assert len({address_of(client) for client in range(1_000_000)}) == 1_000_000
    first, second = (address_of(client)[0].split(".") for client in (1, 2))
    assert all(one != other for one, other in zip(first[1:], second[1:], strict=True))


def test_a_visit_sends_one_request_from_each_client() -> None:
    """Clients that warm the app up go first and are not counted; an address is a new object each time."""
    app = RecordingApp()
    answer = asyncio.run(DirectClient(app, {}).visit(first=5, clients=3, at_once=2, times=2, warm=[1, 2]))
    assert app.clients == [address_of(client) for client in (1, 2, 5, 6, 7, 5, 6, 7)]
    assert answer["requests"] == 6
    assert answer["statuses"] == {"200": 6}
    assert len({id(client) for client in app.clients}) == 8


def test_a_monitored_visit_sends_the_same_requests() -> None:
    """It also gives the longest pause."""
    app = RecordingApp()
    answer = asyncio.run(DirectClient(app, {}).visit(first=5, clients=3, at_once=2, monitored=True))
    assert sorted(app.clients) == sorted(address_of(client) for client in (5, 6, 7))
    assert answer["pause"] >= 0


def test_an_error_of_the_app_is_counted_by_its_text() -> None:
    """A peer that raises does not end the measurement."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken")

    answer = asyncio.run(DirectClient(app, {}).visit(first=0, clients=3, at_once=2))
    assert answer["statuses"] == {"RuntimeError: broken": 3}


def test_a_busy_event_loop_is_a_pause() -> None:
    """The monitor reports at least most of the CPU time that a task used without a break."""

    async def longest() -> float:
        async with PauseMonitor() as monitor:
            await asyncio.sleep(0)
            sum(range(2_000_000))
        return monitor.longest

    assert asyncio.run(longest()) > 0.003


def test_a_pause_is_one_iteration() -> None:
    """Work that many tasks do in turn, each in an iteration of its own, is many short ones."""
    used = 0.0

    async def longest() -> float:
        nonlocal used
        async with PauseMonitor() as monitor:
            before = time.thread_time()
            for _ in range(20):
                sum(range(500_000))
                await asyncio.sleep(0)
            used = time.thread_time() - before
        return monitor.longest

    assert asyncio.run(longest()) < used / 2

"""The clock, the store and the clients of all tests of outgoing calls."""

from __future__ import annotations

from typing import Any

import httpx
import httpx2
import pytest

from asgi_ratelimit.testing import SteppedClock
from tests.support.counting import CountingStore
from tests.support.paced_clients import Client


@pytest.fixture
def clock() -> SteppedClock:
    """A clock that starts at 0."""
    return SteppedClock(0)


@pytest.fixture
def store(clock: SteppedClock) -> CountingStore:
    """One store for all functions of a test."""
    return CountingStore(clock=clock)


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def module(request: pytest.FixtureRequest) -> Any:
    """Each of the two client libraries."""
    return request.param


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def client(request: pytest.FixtureRequest, module: Any) -> Client:
    """Each kind of client."""
    return Client(module, request.param)

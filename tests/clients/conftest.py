"""The service that all clients call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import Uvicorn


@pytest.fixture(scope="package")
def service() -> Iterator[str]:
    """The URL of a real server."""
    with Uvicorn("tests.clients.service:app") as server:
        yield server.url

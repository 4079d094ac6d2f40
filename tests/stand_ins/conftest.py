"""The stand-in servers, with small limits."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.server import Uvicorn


@pytest.fixture(scope="package")
def openai_url() -> Iterator[str]:
    """OpenAI's stand-in: 20 requests and 4,000 tokens an hour."""
    limits = '{"requests": [20, 3600], "tokens": [4000, 3600]}'
    with Uvicorn("tests.stand_ins.openai_server:app", env={"STAND_IN_LIMITS": limits}) as server:
        yield server.url


@pytest.fixture(scope="package")
def anthropic_url() -> Iterator[str]:
    """Anthropic's stand-in: 20 requests, 4,000 tokens of input and 4,000 of output an hour."""
    limits = '{"requests": [20, 3600], "input-tokens": [4000, 3600], "output-tokens": [4000, 3600]}'
    with Uvicorn("tests.stand_ins.anthropic_server:app", env={"STAND_IN_LIMITS": limits}) as server:
        yield server.url


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A client that is not paced."""
    with httpx.Client(trust_env=False) as made:
        yield made

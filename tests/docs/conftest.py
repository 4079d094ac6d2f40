"""Servers for the programs in the docs that call language models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import Uvicorn


@pytest.fixture(scope="package")
def language_models() -> Iterator[dict[str, str]]:
    """Stand-ins for both vendors, and the variables with which their clients find them."""
    openai, anthropic = (Uvicorn(f"tests.stand_ins.{vendor}_server:app") for vendor in ("openai", "anthropic"))
    with openai, anthropic:
        openai_variables = {"OPENAI_BASE_URL": f"{openai.url}/v1", "OPENAI_API_KEY": "docs"}
        yield {**openai_variables, "ANTHROPIC_BASE_URL": anthropic.url, "ANTHROPIC_API_KEY": "docs"}


@pytest.fixture(autouse=True)
def called_services(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that imports a vendor's client calls the stand-in for the vendor."""
    callspec = getattr(request.node, "callspec", None)
    program = callspec.params.get("program", "") if callspec else ""
    if "import AsyncOpenAI" in program or "import anthropic\n" in program:
        for name, value in request.getfixturevalue("language_models").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")

"""Stand-ins for the vendors, for their own clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.profiles.vendors import Vendor
from tests.support.server import Uvicorn

LIMITS = {
    "openai": ("requests", "tokens"),
    "anthropic": ("requests", "input-tokens", "output-tokens"),
}


@pytest.fixture(scope="package")
def url_of() -> Iterator[Callable[[str, float, float, float], str]]:
    """The URL of a vendor's stand-in with a limit of requests, one of tokens, and a period."""
    urls: dict[tuple[str, float, float, float], str] = {}
    with ExitStack() as servers:

        def url(vendor: str, requests: float, tokens: float, period: float) -> str:
            which = (vendor, requests, tokens, period)
            if which not in urls:
                limits = {name: (requests if name == "requests" else tokens, period) for name in LIMITS[vendor]}
                server = Uvicorn(f"tests.stand_ins.{vendor}_server:app", env={"STAND_IN_LIMITS": json.dumps(limits)})
                urls[which] = servers.enter_context(server).url
            return urls[which]

        yield url


@pytest.fixture
def vendor_with(url_of: Callable[[str, float, float, float], str]) -> Callable[..., Vendor]:
    """A new account with a vendor, with these limits."""

    def made(kind: type[Vendor], requests: float, tokens: float, period: float) -> Vendor:
        vendor = "anthropic" if kind.__name__ == "Anthropic" else "openai"
        return kind(url_of(vendor, requests, tokens, period))

    return made

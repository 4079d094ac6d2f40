"""What ``PacedTransport`` wraps: only a transport, and only in a client of its kind."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import httpx2
import pytest

from asgi_ratelimit import AdaptiveTransport, ConfigurationError, PacedTransport


@pytest.mark.parametrize(
    ("wrong", "mend"),
    [
        ("https://api.example.com", "wraps a transport of httpx or httpx2, not 'https://api.example.com'"),
        (httpx.HTTPTransport, "HTTPTransport lacks its call: PacedTransport(HTTPTransport(), ...)"),
        (httpx.Client(), "goes into a client, not around one such as Client: httpx.Client(transport=PacedTransport("),
    ],
    ids=["url", "class", "client"],
)
def test_what_is_no_transport_is_refused_at_once(wrong: Any, mend: str) -> None:
    """Not at the first request; the error shows what to write."""
    with pytest.raises(ConfigurationError, match=re.escape(mend)):
        PacedTransport(wrong, "20/s")


@pytest.mark.parametrize("module", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("enters", [True, False], ids=["with", "without"])
def test_a_transport_in_a_client_of_the_other_kind_is_refused(module: Any, enters: bool) -> None:
    """Whether the client is entered or not; the error shows the right transport."""
    blocking = PacedTransport(module.HTTPTransport(), "20/s")
    waiting = PacedTransport(module.AsyncHTTPTransport(), "20/s")

    async def with_async() -> None:
        client = module.AsyncClient(transport=blocking)
        await (client.__aenter__() if enters else client.get("http://a.example"))

    with pytest.raises(ConfigurationError, match=r"of a client with async: .*Transport\(httpx2?.AsyncHTTPTransport"):
        asyncio.run(with_async())
    client = module.Client(transport=waiting)
    with pytest.raises(ConfigurationError, match=r"of a client without async: .*PacedTransport\(httpx2?.HTTPTransport"):
        client.__enter__() if enters else client.get("http://a.example")


@pytest.mark.parametrize(("module", "other"), [(httpx, httpx2), (httpx2, httpx)], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("wrap", [lambda inner: PacedTransport(inner, "20/s"), AdaptiveTransport])
def test_a_transport_in_a_client_of_the_other_package_is_refused(module: Any, other: Any, wrap: Any) -> None:
    """Its own error would be an ``AssertionError`` without a text; this one shows the right transport."""
    name = module.__name__
    wrong = rf"is a transport of {other.__name__}, and the client that it is in is one of {name}: "
    blocking = module.Client(transport=wrap(other.HTTPTransport()))
    with pytest.raises(ConfigurationError, match=rf"{wrong}{name}\.Client\(transport=.*\({name}\.HTTPTransport\(\)"):
        blocking.get("http://127.0.0.1:9")

    async def with_async() -> None:
        await module.AsyncClient(transport=wrap(other.AsyncHTTPTransport())).get("http://127.0.0.1:9")

    with pytest.raises(ConfigurationError, match=rf"{wrong}{name}\.AsyncClient.*\({name}\.AsyncHTTPTransport\(\)"):
        asyncio.run(with_async())

"""The vendors' own clients over a ``PacedTransport``: no request is refused, and each is charged what it has used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx2
import pytest

from tests.profiles.vendors import Anthropic, OpenAI, Vendor
from tests.support.server import Uvicorn

NewVendor = Callable[..., Vendor]

# A period in which nothing drains while a test runs.
LONG = 3_600_000.0


@pytest.fixture(scope="module")
def vendor_with() -> Iterator[NewVendor]:
    """A new account with a vendor: with a limit of requests, one for each kind of tokens, and a period."""
    urls: dict[tuple[object, ...], str] = {}
    with ExitStack() as servers:

        def made(kind: type[Vendor], requests: float, tokens: float, period: float) -> Vendor:
            which = (kind, requests, tokens, period)
            if which not in urls:
                limits = {name.replace("_", "-"): (tokens, period) for name in kind.names}
                env = {"STAND_IN_LIMITS": json.dumps({"requests": (requests, period), **limits})}
                server = Uvicorn(f"tests.stand_ins.{kind.vendor.lower()}_server:app", env=env)
                urls[which] = servers.enter_context(server).url
            return kind(urls[which])

        yield made


@pytest.mark.parametrize(
    ("which", "kind", "is_adaptive"),
    [
        (OpenAI, "async", False),
        (OpenAI, "sync streamed", True),
        (Anthropic, "sync", True),
        (Anthropic, "async streamed", False),
    ],
)
def test_each_request_is_charged_what_it_has_used(
    vendor_with: NewVendor, which: type[Vendor], kind: str, is_adaptive: bool
) -> None:
    """Twenty requests that estimate more than 6,000 tokens, at a limit of 4,000, do not wait.

    Nor do they over a transport that learns the limits which the answers report, rounded to thousands.
    """
    vendor = vendor_with(which, 1000, 4000, LONG)
    vendor.is_adaptive = is_adaptive
    quotas = vendor.quotas(1000, 4000, LONG)
    vendor.run(kind, 20, 2, quotas, max_delay=10)
    report = vendor.report()
    assert (report["admitted"], report["refused"]) == (20, 0)
    assert report["used"] == {
        "requests": 20,
        **{name.replace("_", "-"): 20 * used for name, used in vendor.used.items()},
    }
    assert vendor.left(quotas) == {"requests": 980, **{name: 4000 - 20 * used for name, used in vendor.used.items()}}


def test_a_refused_request_is_charged_no_tokens(vendor_with: NewVendor) -> None:
    """The vendor's client sends it again, as a request of its own."""
    vendor = vendor_with(OpenAI, 5, 8000, 1.0)
    quotas = vendor.quotas(1000, 1000, LONG)
    vendor.run("sync", 8, 1, quotas, max_delay=10)
    assert vendor.report()["admitted"] == 8
    assert vendor.report()["refused"] > 0
    assert vendor.left(quotas)["tokens"] == 1000 - 8 * vendor.used["tokens"]


def test_a_stream_that_is_cut_is_charged_its_input(vendor_with: NewVendor) -> None:
    """The estimate of its output stands."""
    vendor = vendor_with(Anthropic, 1000, 1000, LONG)
    quotas = vendor.quotas(1000, 1000, LONG)
    client = vendor.client(vendor.transport(httpx2.HTTPTransport(verify=False), quotas))
    request = {**Anthropic.request, "messages": [{"role": "user", "content": "300"}]}
    with client, client.messages.stream(**request) as stream:
        next(iter(stream))
    left = vendor.left(quotas)
    assert (left["input_tokens"], left["output_tokens"]) == (999, 700)


def test_the_timeouts_of_the_clients_do_not_count_the_wait(vendor_with: NewVendor) -> None:
    """They begin when the request is sent."""
    vendor = vendor_with(OpenAI, 1000, 1000, LONG)

    async def main() -> None:
        transport = vendor.transport(
            httpx2.AsyncHTTPTransport(verify=False), vendor.quotas(5, 100_000, 2.0), cost={"requests": 5}
        )
        async with vendor.client(transport, "Async").with_options(timeout=1.0) as client:
            await asyncio.gather(vendor.async_call(client, False), vendor.async_call(client, False))

    asyncio.run(main())
    assert vendor.report()["admitted"] == 2

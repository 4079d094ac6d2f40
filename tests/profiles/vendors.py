"""The vendors' own clients over a ``PacedTransport``, against stand-ins that count for themselves.

To import them takes a second, and is left to the tests that use them: most runs of tests read this file for others.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, ClassVar
from uuid import uuid4

import httpx2

from asgi_ratelimit import AdaptiveTransport, Limiter, MemoryStore, PacedTransport, TokenBucket
from asgi_ratelimit.profiles import anthropic_estimate, anthropic_usage, model, openai_estimate, openai_usage

WORDS = 5
MOST = 300
INPUT = 10
MESSAGES: Any = [{"role": "user", "content": "x" * 40 + f" {WORDS}"}]


class Vendor:
    """One account with a vendor, whose requests each allow 300 tokens of output and use 10 and 5."""

    vendor: ClassVar[str]
    path: ClassVar[str]
    names: tuple[str, ...]
    estimate: Any
    settle: Any
    is_adaptive = False
    call: Any
    async_call: Any

    def __init__(self, url: str) -> None:
        self.url, self.key = url, str(uuid4())
        self.store = MemoryStore()

    def quotas(self, requests: float, tokens: float, period: float, burst: float = 1.0) -> list[TokenBucket]:
        """A quota for each of the vendor's limits; ``burst`` is a part of the limit."""
        limits = {"requests": requests, **dict.fromkeys(self.names, tokens)}
        return [TokenBucket(limit, period, burst=limit * burst, name=name) for name, limit in limits.items()]

    def transport(self, inner: Any, quotas: list[TokenBucket], **options: Any) -> PacedTransport:
        """A paced transport, as the docs recommend it."""
        if self.is_adaptive:
            inner = AdaptiveTransport(inner, profile=self.vendor.lower(), retries=0)
        defaults = {"key": model, "cost": self.estimate, "settle": self.settle, "store": self.store, "name": "vendor"}
        return PacedTransport(inner, quotas, **{**defaults, **options})

    def left(self, quotas: list[TokenBucket]) -> dict[str, int]:
        """The units that the buckets of the transport have left."""
        peeked = asyncio.run(Limiter(quotas, store=self.store, name="vendor").peek("small"))
        return {state.quota.name: state.remaining for state in peeked.states}

    def report(self) -> Any:
        """What the server has counted."""
        with httpx2.Client(trust_env=False, verify=False) as client:
            headers = {"authorization": f"Bearer {self.key}", "x-api-key": self.key}
            return client.get(f"{self.url}/stand-in/report", headers=headers).json()["small"]

    def run(self, kind: str, calls: int, at_once: int, quotas: list[TokenBucket], **options: Any) -> None:
        """Make calls of a kind, ``sync``, ``async``, ``sync streamed`` or ``async streamed``."""
        streamed = "streamed" in kind
        if kind.startswith("sync"):
            with self.client(self.transport(httpx2.HTTPTransport(verify=False), quotas, **options)) as client:
                for _ in range(calls):
                    self.call(client, streamed)
            return

        async def main() -> None:
            places = asyncio.Semaphore(at_once)
            transport = self.transport(httpx2.AsyncHTTPTransport(verify=False), quotas, **options)
            async with self.client(transport, "Async") as client:

                async def call() -> None:
                    async with places:
                        await self.async_call(client, streamed)

                await asyncio.gather(*[call() for _ in range(calls)])

        asyncio.run(main())

    def client(self, transport: PacedTransport, kind: str = "") -> Any:
        """The vendor's client, or with ``Async`` the one with ``async``."""
        module = import_module(type(self).vendor.lower())
        http_client = getattr(module, f"Default{kind}HttpxClient")(transport=transport, trust_env=False)
        client = getattr(module, f"{kind}{type(self).vendor}")
        return client(api_key=self.key, base_url=f"{self.url}{self.path}", http_client=http_client)


class OpenAI(Vendor):
    """Chat completions."""

    vendor, path = "OpenAI", "/v1"
    names = ("tokens",)
    used: ClassVar = {"tokens": INPUT + WORDS}
    estimate = staticmethod(openai_estimate)
    settle = staticmethod(openai_usage)
    request: ClassVar[Any] = {"model": "small", "messages": MESSAGES, "max_completion_tokens": MOST}
    streaming: ClassVar[Any] = {"stream": True, "stream_options": {"include_usage": True}}

    def call(self, client: Any, streamed: bool) -> None:
        """Make one call, and read the whole answer."""
        if not streamed:
            assert client.chat.completions.create(**self.request).usage.completion_tokens == WORDS
            return
        with client.chat.completions.create(**self.request, **self.streaming) as stream:
            assert [chunk.usage for chunk in stream][-1].completion_tokens == WORDS

    async def async_call(self, client: Any, streamed: bool) -> None:
        """Make one call, and read the whole answer."""
        if not streamed:
            assert (await client.chat.completions.create(**self.request)).usage.completion_tokens == WORDS
            return
        async with await client.chat.completions.create(**self.request, **self.streaming) as stream:
            assert [chunk.usage async for chunk in stream][-1].completion_tokens == WORDS


class Anthropic(Vendor):
    """Messages."""

    vendor, path = "Anthropic", ""
    names = ("input_tokens", "output_tokens")
    used: ClassVar = {"input_tokens": INPUT, "output_tokens": WORDS}
    estimate = staticmethod(anthropic_estimate)
    settle = staticmethod(anthropic_usage)
    request: ClassVar[Any] = {"model": "small", "messages": MESSAGES, "max_tokens": MOST}

    def call(self, client: Any, streamed: bool) -> None:
        """Make one call, and read the whole answer."""
        if not streamed:
            assert client.messages.create(**self.request).usage.output_tokens == WORDS
            return
        with client.messages.stream(**self.request) as stream:
            assert stream.get_final_message().usage.output_tokens == WORDS

    async def async_call(self, client: Any, streamed: bool) -> None:
        """Make one call, and read the whole answer."""
        if not streamed:
            assert (await client.messages.create(**self.request)).usage.output_tokens == WORDS
            return
        async with client.messages.stream(**self.request) as stream:
            assert (await stream.get_final_message()).usage.output_tokens == WORDS

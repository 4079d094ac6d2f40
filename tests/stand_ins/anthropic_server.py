"""A stand-in for Anthropic's API: it answers with words, counts requests, input and output tokens, and refuses.

As documented: input that is read from the prompt cache does not count, input that is written to it does. Output is
charged as ``max_tokens`` when a request is admitted, and settled to what was generated. ``anthropic-ratelimit-*-reset``
is the time at which the whole limit is there again, as RFC 3339; the tokens that remain are rounded to thousands.
Limits are those of one key and one model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.stand_ins.accounts import Account, Accounts, Budget, client_of, streamed, text_of, tokens_of, words_asked

accounts = Accounts({"requests": (50, 60.0), "input-tokens": (30_000, 60.0), "output-tokens": (8_000, 60.0)})
numbers = count(1)


@dataclass
class Call:
    """One request: its account, the words of its answer, and what is charged for it."""

    account: Account
    body: dict[str, Any]

    def __post_init__(self) -> None:
        self.id = next(numbers)
        self.words = words_asked(self.body["messages"], self.body["max_tokens"])
        blocks = self.body.get("system") if isinstance(self.body.get("system"), list) else []
        cacheable = {text_of(block) for block in blocks or () if block.get("cache_control")}
        self.read, self.created = cacheable & self.account.cached, cacheable - self.account.cached
        system = 0 if blocks else len(text_of(self.body.get("system"))) // 4
        self.uncached = tokens_of(self.body["messages"]) + system
        self.input = self.uncached + sum(map(tokens_of, self.created))
        self.estimate = {"requests": 1, "input-tokens": self.input, "output-tokens": self.body["max_tokens"]}

    def usage(self, words: int) -> dict[str, Any]:
        """The usage after so many words."""
        created, read = (sum(map(tokens_of, texts)) for texts in (self.created, self.read))
        cache = {"cache_creation_input_tokens": created, "cache_read_input_tokens": read}
        return {"input_tokens": self.uncached, **cache, "output_tokens": words, "service_tier": "standard"}

    def settle(self, words: int) -> None:
        """End the request after so many words."""
        self.account.cached |= self.created
        self.account.settle(self.estimate, {"requests": 1, "input-tokens": self.input, "output-tokens": words})

    def message(self, words: int, stop_reason: str | None) -> dict[str, Any]:
        """The message after so many words, without its content."""
        base = {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "model": self.body["model"]}
        return {**base, "content": [], "stop_reason": stop_reason, "stop_sequence": None, "usage": self.usage(words)}


async def messages(request: Request) -> Response:
    """``POST /v1/messages``, streamed or not."""
    body, client = await request.json(), client_of(request)
    call = Call(accounts.of(client, body["model"]), body)
    refused = call.account.admit(call.estimate)
    if refused is not None:
        return refusal(call, *refused)
    if body.get("stream"):
        return StreamingResponse(
            streamed(call, events(call)), headers=headers(call), media_type="text/event-stream; charset=utf-8"
        )
    response_headers, words = headers(call), len(call.words)
    call.settle(words)
    content = [{"type": "text", "text": "".join(call.words)}]
    return JSONResponse({**call.message(words, "end_turn"), "content": content}, headers=response_headers)


def events(call: Call) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a message, each with the number of words so far."""
    yield 1, {"type": "message_start", "message": call.message(1, None)}
    yield 1, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield 1, {"type": "ping"}
    for number, word in enumerate(call.words, 1):
        delta = {"type": "text_delta", "text": word}
        yield number, {"type": "content_block_delta", "index": 0, "delta": delta}
    words = len(call.words)
    yield words, {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    yield words, {"type": "message_delta", "delta": stop, "usage": {"output_tokens": words}}
    yield words, {"type": "message_stop"}


def refusal(call: Call, short: str, wait: float) -> Response:
    """A 429 that says which limit is short, and when to come back: in whole seconds, also where it never fits."""
    limit = call.account.budgets[short].limit
    message = f"This request would exceed your rate limit of {limit:.0f} {short.replace('-', ' ')} per minute."
    return error(call, 429, "rate_limit_error", message, {"retry-after": str(math.ceil(min(wait, 60.0)))})


def error(call: Call, status: int, kind: str, message: str, extra: dict[str, str]) -> Response:
    """An error in the vendor's form."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{call.id}"}
    return JSONResponse(body, status, {**headers(call), **extra})


def headers(call: Call) -> dict[str, str]:
    """The headers of every answer; ``tokens`` are those of the limit that has the smaller part left."""
    budgets = call.account.budgets
    shown = {"request-id": f"req_{call.id}", "anthropic-organization-id": "stand-in"}
    tokens = [budgets["input-tokens"], budgets["output-tokens"]]
    all_budgets = {**budgets, "tokens": min(tokens, key=lambda budget: budget.available / budget.limit)}
    for name, budget in all_budgets.items():
        shown |= {f"anthropic-ratelimit-{name}-{what}": text for what, text in state(name, budget).items()}
    return shown


def state(name: str, budget: Budget) -> dict[str, str]:
    """What the headers say of a limit."""
    left = max(0, math.floor(budget.available))
    full_at = datetime.now(UTC) + timedelta(seconds=math.ceil(budget.until_full))
    remaining = left if name == "requests" else round(left, -3)
    return {"limit": f"{budget.limit:.0f}", "remaining": str(remaining), "reset": f"{full_at:%Y-%m-%dT%H:%M:%SZ}"}


app = Starlette(routes=[Route("/v1/messages", messages, methods=["POST"]), Route("/stand-in/report", accounts.report)])

"""A stand-in for OpenAI's API: it answers with words, counts requests and tokens, and refuses what is over its limits.

As documented and observed: a request is admitted by an estimate, the text of its prompt by its letters and the output
that it allows, and settled to what it has used. ``x-ratelimit-reset-*`` is the time until the whole limit is there
again, as a duration of Go. A refusal says when to come back, in seconds and in milliseconds. Limits are those of one
key and one model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.stand_ins.accounts import Account, Accounts, client_of, streamed, tokens_of, words_asked

accounts = Accounts({"requests": (500, 60.0), "tokens": (30_000, 60.0)})
numbers = count(1)


@dataclass
class Call:
    """One request: its account, its prompt, the words of its answer, and what is charged for it."""

    account: Account
    body: dict[str, Any]
    prompt: Any
    most: int

    def __post_init__(self) -> None:
        self.id = next(numbers)
        self.model = str(self.body.get("model"))
        self.words = words_asked(self.prompt, self.most)
        self.input = tokens_of(self.prompt)
        self.estimate = {"requests": 1, "tokens": self.input + self.most}

    def usage(self, words: int, names: tuple[str, str] = ("prompt_tokens", "completion_tokens")) -> dict[str, Any]:
        """The usage after so many words."""
        details = {f"{names[0]}_details": {"cached_tokens": 0}, f"{names[1]}_details": {"reasoning_tokens": 0}}
        return {names[0]: self.input, names[1]: words, "total_tokens": self.input + words, **details}

    def settle(self, words: int) -> None:
        """End the request after so many words."""
        self.account.settle(self.estimate, {"requests": 1, "tokens": self.input + words})


async def chat_completions(request: Request) -> Response:
    """``POST /v1/chat/completions``, streamed or not."""
    body = await request.json()
    most = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
    return answer(Call(account_of(request, body), body, body["messages"], most), chat_answer, chat_events)


def answer(
    call: Call, whole: Callable[[Call], dict[str, Any]], events: Callable[[Call], Iterator[tuple[int, Any]]]
) -> Response:
    """The answer to a call, or a refusal."""
    refused = call.account.admit(call.estimate)
    if refused is not None:
        return refusal(call, *refused)
    if call.body.get("stream"):
        end = "[DONE]" if "messages" in call.body else ""
        return StreamingResponse(
            streamed(call, events(call), end), headers=headers(call), media_type="text/event-stream"
        )
    response_headers = headers(call)  # before it is settled: the limits as they were when the request was admitted
    call.settle(len(call.words))
    return JSONResponse(whole(call), headers=response_headers)


def chat_answer(call: Call) -> dict[str, Any]:
    """A chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "".join(call.words)}, "finish_reason": "stop"}
    base = {"id": f"chatcmpl-{call.id}", "object": "chat.completion", "created": 1_700_000_000, "model": call.model}
    return {**base, "choices": [choice], "usage": call.usage(len(call.words))}


def chat_events(call: Call) -> Iterator[tuple[int, Any]]:
    """The chunks of a chat completion, each with the number of words so far."""
    include_usage = (call.body.get("stream_options") or {}).get("include_usage")
    chunk = {"id": f"chatcmpl-{call.id}", "object": "chat.completion.chunk", "created": 1_700_000_000}
    chunk |= {"model": call.model, **({"usage": None} if include_usage else {})}
    for number, word in enumerate(call.words, 1):
        yield number, {**chunk, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
    words = len(call.words)
    yield words, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    if include_usage:
        yield words, {**chunk, "choices": [], "usage": call.usage(words)}


def refusal(call: Call, short: str, wait: float) -> Response:
    """A 429 that says which limit is short, and when to come back."""
    limit, per = call.account.budgets[short], f"{short} per min ({short[0].upper()}PM)"
    asked = f"Limit {limit.limit:.0f}, Used {limit.limit - limit.available:.0f}, Requested {call.estimate[short]}"
    if math.isinf(wait):
        message = f"Request too large for {call.model} on {per}: {asked}."
        return error(429, message, short, "rate_limit_exceeded", headers(call))
    message = f"Rate limit reached for {call.model} on {per}: {asked}. Please try again in {go_duration(wait)}."
    come_back = {"retry-after-ms": str(math.ceil(wait * 1000)), "retry-after": str(math.ceil(wait))}
    return error(429, message, short, "rate_limit_exceeded", {**headers(call), **come_back})


def error(status: int, message: str, kind: str, code: str, extra: dict[str, str]) -> Response:
    """An error in the vendor's form."""
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": code}}, status, extra)


def headers(call: Call) -> dict[str, str]:
    """The headers of every answer."""
    shown = {"x-request-id": f"req_{call.id}", "openai-version": "2020-10-01", "openai-organization": "stand-in"}
    shown["openai-processing-ms"] = "1"
    for name, budget in call.account.budgets.items():
        shown[f"x-ratelimit-limit-{name}"] = f"{budget.limit:.0f}"
        shown[f"x-ratelimit-remaining-{name}"] = f"{max(0, math.floor(budget.available))}"
        shown[f"x-ratelimit-reset-{name}"] = go_duration(budget.until_full)
    return shown


def go_duration(seconds: float) -> str:
    """Seconds as Go writes durations, to the millisecond: ``20ms``, ``1.5s``, ``6m0s``, ``1h0m2s``."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest / 1000:g}s"


def account_of(request: Request, body: dict[str, Any]) -> Account:
    """The account of a request, by its key and its model."""
    return accounts.of(client_of(request), str(body.get("model")))


app = Starlette(
    routes=[
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/stand-in/report", accounts.report),
    ]
)

"""What requests cost: estimated before they are sent, learned, and as their answers report it."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx
import httpx2
import pytest
import requests
from aiohttp.payload import JsonPayload
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.profiles import (
    LearnedEstimate,
    anthropic_estimate,
    anthropic_usage,
    model,
    openai_estimate,
    openai_usage,
)

URL = "https://api.example.com/v1/chat/completions"
BODY = {"model": "small", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 400}]}
TEXTS = len("modelsmallmax_tokensmessagesroleusercontent") + 400
TOKENS = -(-TEXTS // 4)


class AiohttpRequest:
    """What a request of aiohttp has of its body."""

    url = URL

    def __init__(self, body: Any) -> None:
        self.body = JsonPayload(body)


REQUESTS = {
    "httpx": lambda body: httpx.Request("POST", URL, json=body),
    "httpx2": lambda body: httpx2.Request("POST", URL, json=body),
    "requests": lambda body: requests.Request("POST", URL, json=body).prepare(),
    "requests, text": lambda body: requests.Request("POST", URL, data=json.dumps(body)).prepare(),
    "aiohttp": AiohttpRequest,
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_the_requests_of_all_clients(request_of: Any) -> None:
    """An estimate reads the JSON of the body."""
    request = request_of(BODY)
    assert openai_estimate(request) == {"requests": 1, "tokens": TOKENS + 100}
    assert anthropic_estimate(request) == {"requests": 1, "input_tokens": TOKENS, "output_tokens": 100}
    assert model(request) == "small"


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8, "max_tokens": 7}, 8),
        ({"max_tokens": 7, "n": 3}, 21),
        ({}, 1024),
        ({"max_tokens": "many", "n": -1}, 1024),
    ],
    ids=str,
)
def test_the_output_that_a_request_allows(body: dict[str, Any], output: int) -> None:
    """It is the larger part of most estimates."""
    text = sum(len(name) for name in body) + sum(len(value) for value in body.values() if isinstance(value, str))
    estimate = openai_estimate(httpx.Request("POST", URL, json=body))
    assert estimate["tokens"] == max(1, -(-text // 4) + output)


@pytest.mark.parametrize("ids", [list(range(8000)), [list(range(1000))] * 8])
def test_the_ids_of_tokens_are_tokens(ids: list[Any]) -> None:
    """As LangChain sends them; names are texts as well."""
    request = httpx.Request("POST", "https://api.example.com/v1/embeddings", json={"input": ids})
    assert openai_estimate(request)["tokens"] == 8002


@pytest.mark.parametrize(
    "part",
    [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "word " * 40_000}},
        {"type": "text", "text": "data: " + "word " * 40_000},
        {"type": "text", "text": "data:;base64, " + "word " * 40_000},
    ],
    ids=range(3),
)
def test_a_text_is_never_media(part: dict[str, Any]) -> None:
    """Four bytes are a token, whatever its key is and however it begins."""
    body = {"max_tokens": 1, "messages": [{"content": [part]}]}
    for estimate in (openai_estimate, anthropic_estimate):
        assert sum(estimate(httpx.Request("POST", URL, json=body)).values()) > 50_000


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}},
        {"type": "image", "source": {"type": "base64", "data": "A" * 1_000_000}},
    ],
)
def test_an_image_is_not_text(part: dict[str, Any]) -> None:
    """A million letters of base64 are one image."""
    body = {"max_tokens": 1, "messages": [{"content": [part]}]}
    assert 1500 < openai_estimate(httpx.Request("POST", URL, json=body))["tokens"] < 1600


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: httpx.Request("POST", URL, content=b"\xff\xfe{"),
        lambda: httpx.Request("POST", URL, content=iter([b"{}"])),
        lambda: httpx.Request("GET", URL),
        lambda: requests.Request("POST", URL, data=iter([b"{}"])).prepare(),
    ],
    ids=range(4),
)
def test_a_body_that_is_not_at_hand_or_no_json(request_of: Any) -> None:
    """It counts as one token, and the usual output."""
    assert openai_estimate(request_of()) == {"requests": 1, "tokens": 1024}
    assert anthropic_estimate(request_of()) == {"requests": 1, "input_tokens": 1, "output_tokens": 1024}
    assert model(request_of()) == ""


@pytest.mark.parametrize("query", ["", "?api-version=2024-10-21"])
def test_embeddings_have_no_output(query: str) -> None:
    """They cost their input; Azure has a version in the query of its URL."""
    request = httpx.Request("POST", f"https://api.example.com/v1/embeddings{query}", json={"input": "x" * 395})
    assert openai_estimate(request) == {"requests": 1, "tokens": 100}


def learned(estimate: Any, actual: list[Any], **options: Any) -> LearnedEstimate:
    """An estimate that has learned from requests, each its own group."""
    cost = LearnedEstimate(lambda request: estimate, **{"by": lambda request: request, **options})
    for units in actual:
        cost.learn("a", estimate, units)
    return cost


def test_the_formula() -> None:
    """The first ratios weigh 1/2, 1/3 and so on, down to the weight; the mean deviation is added."""
    assert learned(100, [20])("a") == pytest.approx(100 * (0.6 + 0.4))
    assert learned(100, [20, 20])("a") == pytest.approx(100 * (0.6 - 0.4 / 3 + 0.4))
    assert learned(100, [20, 20], deviations=0)("a") == pytest.approx(100 * (0.6 - 0.4 / 3))
    assert learned(100, [20], weight=1)("a") == pytest.approx(100 * (0.2 + 0.8))


def test_only_the_groups_learned_last_are_kept() -> None:
    """So memory is bounded, whatever the groups are."""
    cost = LearnedEstimate(lambda request: 100, by=lambda request: request, max_groups=2)
    for group in ("a", "b", "a", "c"):
        for _ in range(100):
            cost.learn(group, 100, 20)
    assert [round(cost(group)) for group in "abc"] == [20, 100, 20]


@pytest.mark.parametrize("actual", [{}, {"other": 5}, {"tokens": None}, math.nan, -1, "20"], ids=repr)
def test_what_is_no_cost_teaches_nothing(actual: Any) -> None:
    """The estimate stays as it is; a wrong number is an error."""
    cost = learned({"tokens": 100}, [])
    with nullcontext() if isinstance(actual, dict) else pytest.raises(ValueError, match=repr(actual)):
        cost.learn("a", 100, actual)
    assert cost("a") == {"tokens": 100}


@pytest.mark.parametrize("estimate", [math.nan, math.inf, -1, "100", None], ids=repr)
def test_an_estimate_that_is_no_cost(estimate: Any) -> None:
    """It is refused, and quoted."""
    with pytest.raises(ValueError, match=repr(estimate)):
        learned(estimate, [])("a")


@pytest.mark.parametrize(
    "wrong", [{"estimate": 100}, {"by": "model"}, {"weight": 0}, {"deviations": "1"}, {"max_groups": 0}], ids=repr
)
def test_arguments_are_checked_at_once(wrong: dict[str, Any]) -> None:
    """The error quotes the value, and shows a right one."""
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=rf"{name}.* not .*{wrong[name]!r}.*: LearnedEstimate\("):
        LearnedEstimate(**{"estimate": lambda request: 1, **wrong})


costs = st.floats(0, 2**53) | st.integers(0, 2**53)


@given(
    estimates=st.lists(costs, min_size=1, max_size=5),
    actual=st.lists(costs, max_size=20),
    weight=st.floats(0, 1, exclude_min=True),
    deviations=st.floats(0, 100),
)
def test_a_cost_is_always_one_that_can_be_charged(
    estimates: list[float], actual: list[float], weight: float, deviations: float
) -> None:
    """Never below 1 unit, never NaN, never above 2**53."""
    turns = iter(estimates * (len(actual) + 2))
    cost = LearnedEstimate(lambda request: next(turns), by=lambda request: None, weight=weight, deviations=deviations)
    for units in actual:
        cost.learn(None, 1, units)
    assert 1 <= cost(None) <= 2**53


def test_each_quota_is_learned_apart() -> None:
    """What an answer does not name keeps its estimate, exactly. One number for all learns the largest of theirs."""
    assert learned(100, [{"requests": 1, "tokens": 20}] * 200)("a") == pytest.approx(20, rel=0.01)
    cost = learned({"requests": 1, "tokens": 100}, [{"tokens": 20}] * 200)("a")
    assert cost["requests"] == 1
    assert cost["tokens"] == pytest.approx(20, rel=0.01)


@dataclass
class Answer:
    """An answer, with its body as it was transferred."""

    body: bytes = b""
    status_code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def answer(body: Any, status_code: int = 200) -> Answer:
    """An answer with a JSON body."""
    return Answer(json.dumps(body).encode(), status_code)


def stream(*events: Any, newline: str = "\n") -> Answer:
    """A stream of server-sent events, each a text or JSON."""
    lines = [event if isinstance(event, str) else f"data: {json.dumps(event)}" for event in events]
    return Answer("".join(f"{line}{newline}{newline}" for line in lines).encode())


CHAT = {"object": "chat.completion", "usage": {"prompt_tokens": 300, "completion_tokens": 13, "total_tokens": 313}}
CHAT_STREAM = (
    {"choices": [{"delta": {"content": "Hello"}}], "usage": None},
    {"choices": [{"delta": {"content": ' "usage": {"total_tokens": 9} '}}], "usage": None},
    {"choices": [], "usage": CHAT["usage"]},
    "data: [DONE]",
)
RESPONSE = {"object": "response", "usage": {"input_tokens": 300, "output_tokens": 13, "total_tokens": 313}}
RESPONSE_STREAM = (
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.output_text.delta", "delta": "Hello"},
    {"type": "response.completed", "response": RESPONSE},
)
INPUT = {"input_tokens": 200, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 5000}
MESSAGE = {"type": "message", "usage": {**INPUT, "output_tokens": 13}}
MESSAGE_STREAM = (
    {"type": "message_start", "message": {"type": "message", "usage": {**INPUT, "output_tokens": 1}}},
    {"type": "content_block_delta", "delta": {"text": "Hello"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 13}},
    {"type": "message_stop"},
)
MORE = {
    "type": "message_delta",
    "usage": {"input_tokens": 500, "cache_creation_input_tokens": None, "output_tokens": 20},
}


UNITS = ("total_tokens", "input_tokens", "output_tokens")
FUNCTIONS = [openai_usage, anthropic_usage]
ANTHROPIC = {"input_tokens": 300, "output_tokens": 13}

CASES: list[tuple[Callable[[Answer], Any], Answer, Any]] = [
    (openai_usage, answer(CHAT), {"tokens": 313}),
    (openai_usage, answer(RESPONSE), {"tokens": 313}),
    (openai_usage, answer({"usage": {"prompt_tokens": 8, "total_tokens": 8}}), {"tokens": 8}),
    (openai_usage, stream(*CHAT_STREAM), {"tokens": 313}),
    (openai_usage, stream(*RESPONSE_STREAM), {"tokens": 313}),
    (openai_usage, stream(*CHAT_STREAM[:2]), None),
    (openai_usage, stream({"type": "response.incomplete", "response": RESPONSE}), {"tokens": 313}),
    (openai_usage, Answer(b'{"data": [{"b64": "AAA' + answer(CHAT).body[10:]), {"tokens": 313}),
    (openai_usage, answer({"error": {}}, 429), {"tokens": 0}),
    (anthropic_usage, answer(MESSAGE), ANTHROPIC),
    (anthropic_usage, stream(*MESSAGE_STREAM), ANTHROPIC),
    (anthropic_usage, stream(*MESSAGE_STREAM[:2]), {"input_tokens": 300}),
    (anthropic_usage, stream(*MESSAGE_STREAM[:3]), ANTHROPIC),
    (anthropic_usage, stream(*MESSAGE_STREAM, MORE), {"input_tokens": 500, "output_tokens": 20}),
    (anthropic_usage, answer({"type": "error"}, 429), {"input_tokens": 0, "output_tokens": 0}),
]


@pytest.mark.parametrize(("usage", "received", "used"), CASES)
def test_what_was_used(usage: Callable[[Answer], Any], received: Answer, used: Any) -> None:
    """Whole or streamed, of all endpoints, or without its middle; a refused request has used nothing.

    A stream that is cut says at its start what its input was. The last numbers are totals: tools add to the input.
    """
    assert usage(received) == used


@pytest.mark.parametrize("usage", FUNCTIONS)
@pytest.mark.parametrize(
    "received",
    [
        Answer(),
        Answer(b"<html>"),
        Answer(b"[" * 100_000),
        Answer(b'{"usage": ' + b'{"a": ' * 50_000),
        answer({"usage": None}),
        *(answer({"usage": dict.fromkeys(UNITS, wrong)}) for wrong in ("313", -1, True, 1.5, 2**54, math.nan, None)),
        answer({"error": "overloaded"}, 529),
    ],
    ids=range(13),
)
def test_what_says_nothing(usage: Any, received: Answer) -> None:
    """The charge stays as it is."""
    assert usage(received) is None


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("usage", "events"), [(openai_usage, CHAT_STREAM), (anthropic_usage, MESSAGE_STREAM)])
def test_events_end_with_any_newline(usage: Any, events: Any, newline: str) -> None:
    """As the HTML standard allows; comments and names of events do not matter."""
    received = stream(": ping", *events, newline=newline)
    received.body = received.body.replace(b"data: ", b"event: usage" + newline.encode() + b"data: ")
    assert usage(received) == ({"tokens": 313} if usage is openai_usage else ANTHROPIC)


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "identity": bytes,
    "br": bytes,  # decoded by the client already
}


@pytest.mark.parametrize(("encoding", "encode"), ENCODINGS.items(), ids=ENCODINGS)
@pytest.mark.parametrize("decoded", [False, True])
def test_compressed_bodies(encoding: str, encode: Callable[[bytes], bytes], decoded: bool) -> None:
    """Bodies are decoded, unless the client has done so already."""
    received = stream(*MESSAGE_STREAM)
    received.headers = {"content-encoding": encoding}
    received.body = received.body if decoded else encode(received.body)
    assert anthropic_usage(received) == ANTHROPIC


NAMES = ("usage", "response", "message", "type", *UNITS)
numbers = st.integers(-1, 10) | st.floats() | st.none() | st.text(max_size=3)
json_values = st.recursive(
    numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=12,
)


bodies = (
    st.binary()
    | st.sampled_from(["gzip", "deflate"]).map(lambda name: ENCODINGS[name](b"{}"))
    | st.lists(json_values, max_size=5).map(lambda values: stream(*values).body)
    | json_values.map(lambda value: answer(value).body)
)


@pytest.mark.parametrize("usage", FUNCTIONS)
@given(
    body=bodies,
    cut=st.integers(0, 40),
    status=st.integers(100, 599),
    encoding=st.sampled_from(["", "gzip", "deflate", "br", "gzip, gzip"]) | st.text(),
)
def test_no_bytes_raise(usage: Any, body: bytes, cut: int, status: int, encoding: str) -> None:
    """Whatever a server sends, wherever the names of usage stand in it, and wherever it is cut."""
    used = usage(Answer(body[: len(body) - cut], status, {"content-encoding": encoding}))
    assert used is None or all(type(units) is int and units >= 0 for units in used.values())

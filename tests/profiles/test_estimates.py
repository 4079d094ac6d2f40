"""``openai_estimate``, ``anthropic_estimate`` and ``model``: what requests will cost, before they are sent."""

from __future__ import annotations

import json
from typing import Any

import httpx
import httpx2
import pytest
import requests
from aiohttp.payload import JsonPayload

from asgi_ratelimit.profiles import anthropic_estimate, model, openai_estimate

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
    tokens = openai_estimate(httpx.Request("POST", URL, json={"max_tokens": 1, "messages": [{"content": [part]}]}))[
        "tokens"
    ]
    assert 1500 < tokens < 1600


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

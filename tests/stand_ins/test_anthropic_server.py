"""The stand-in for Anthropic: what its answers look like, and that it counts right."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from asgi_ratelimit.profiles import anthropic_usage
from tests.profiles.answers import Answer

BODY: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "x" * 40 + " 5"}], "max_tokens": 100}


class Caller:
    """One client of the stand-in."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self.client, self.url = client, url
        self.headers = {"x-api-key": str(uuid4())}

    def post(self, path: str = "/v1/messages", **body: Any) -> httpx.Response:
        """The answer to a request."""
        return self.client.post(f"{self.url}{path}", json={**BODY, **body}, headers=self.headers)

    def report(self) -> Any:
        """What was counted of this client for the model ``small``."""
        return self.client.get(f"{self.url}/stand-in/report", headers=self.headers).json()["small"]


@pytest.fixture
def caller(client: httpx.Client, anthropic_url: str) -> Caller:
    """A client with its whole limits."""
    return Caller(client, anthropic_url)


def settled(answer: httpx.Response) -> Any:
    """What our function reads in an answer."""
    return anthropic_usage(Answer(answer.content, answer.status_code))


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_counted_is_what_is_said(caller: Caller, stream: bool) -> None:
    """The usage of an answer, streamed or not, is what the server has counted."""
    assert settled(caller.post(stream=stream)) == {"input_tokens": 10, "output_tokens": 5}
    report = caller.report()
    assert report["used"] == {"requests": 1, "input-tokens": 10, "output-tokens": 5}
    assert report["available"]["output-tokens"] == pytest.approx(3995, abs=1)


def test_cached_input(caller: Caller) -> None:
    """What is written to the cache counts, what is read from it does not."""
    system = [{"type": "text", "text": "y" * 400, "cache_control": {"type": "ephemeral"}}]
    first, second = caller.post(system=system), caller.post(system=system)
    assert first.json()["usage"]["cache_creation_input_tokens"] == 100
    assert second.json()["usage"]["cache_read_input_tokens"] == 100
    assert [settled(answer)["input_tokens"] for answer in (first, second)] == [110, 10]
    assert caller.report()["used"]["input-tokens"] == 120


def test_the_headers(caller: Caller) -> None:
    """Times in RFC 3339 at which a limit is whole again, tokens rounded to thousands."""
    headers = caller.post(max_tokens=700).headers
    at = parsedate_to_datetime(headers["date"])
    reset = datetime.fromisoformat(headers["anthropic-ratelimit-output-tokens-reset"])
    assert headers["anthropic-ratelimit-requests-remaining"] == "19"
    assert headers["anthropic-ratelimit-input-tokens-remaining"] == "4000"
    assert headers["anthropic-ratelimit-output-tokens-remaining"] == "3000"
    assert headers["anthropic-ratelimit-tokens-remaining"] == "3000"
    assert 600 <= (reset - at).total_seconds() <= 640


def test_a_refusal(caller: Caller) -> None:
    """It says when to come back, in whole seconds; it charges nothing."""
    answers = [caller.post() for _ in range(21)]
    assert [answer.status_code for answer in answers] == [200] * 20 + [429]
    assert answers[-1].json()["error"]["type"] == "rate_limit_error"
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (caller.report()["admitted"], caller.report()["refused"]) == (20, 1)


def test_an_overload(caller: Caller) -> None:
    """It is answered with 529, and charges nothing."""
    caller.post("/stand-in/overload/1")
    assert [caller.post().status_code for _ in range(2)] == [529, 200]
    assert caller.report()["used"]["requests"] == 1


def test_counting_tokens_is_not_limited_with_messages(caller: Caller) -> None:
    """It has a limit of its own."""
    assert caller.post("/v1/messages/count_tokens").json() == {"input_tokens": 10}

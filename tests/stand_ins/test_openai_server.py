"""The stand-in for OpenAI: what its answers look like, and that it counts right."""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

import httpx
import pytest

from asgi_ratelimit.profiles import openai_usage
from tests.profiles.answers import Answer
from tests.stand_ins.openai_server import go_duration

BODY = {"model": "small", "messages": [{"role": "user", "content": "x" * 40 + " 5"}], "max_tokens": 100}
PATHS = {
    "/v1/chat/completions": BODY,
    "/v1/responses": {"model": "small", "input": "x" * 40 + " 5", "max_output_tokens": 100},
}


class Caller:
    """One client of the stand-in."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self.client, self.url = client, url
        self.headers = {"authorization": f"Bearer {uuid4()}"}

    def post(self, body: Any = BODY, path: str = "/v1/chat/completions") -> httpx.Response:
        """The answer to a request."""
        return self.client.post(f"{self.url}{path}", json=body, headers=self.headers)

    def report(self) -> Any:
        """What was counted of this client for the model ``small``."""
        return self.client.get(f"{self.url}/stand-in/report", headers=self.headers).json()["small"]


@pytest.fixture
def caller(client: httpx.Client, openai_url: str) -> Caller:
    """A client with its whole limits."""
    return Caller(client, openai_url)


def settled(answer: httpx.Response) -> Any:
    """What our function reads in an answer."""
    return openai_usage(Answer(answer.content, answer.status_code))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_what_is_counted_is_what_is_said(caller: Caller, path: str, stream: bool) -> None:
    """The usage of an answer, streamed or not, is what the server has counted."""
    answer = caller.post({**PATHS[path], "stream": stream, "stream_options": {"include_usage": True}}, path)
    assert settled(answer) == {"tokens": 10 + 5}
    report = caller.report()
    assert (report["admitted"], report["used"]) == (1, {"requests": 1, "tokens": 15})
    assert report["available"]["tokens"] == pytest.approx(4000 - 15, abs=1)


def test_a_stream_says_its_usage_only_if_it_is_asked_to(caller: Caller) -> None:
    """As documented for chat completions."""
    answer = caller.post({**BODY, "stream": True})
    assert settled(answer) is None
    assert answer.text.endswith("data: [DONE]\n\n")


def test_the_headers(caller: Caller) -> None:
    """The limits as they were when the request was admitted, with durations of Go until they are whole again."""
    headers = caller.post().headers
    assert headers["x-ratelimit-limit-requests"] == "20"
    assert headers["x-ratelimit-remaining-requests"] == "19"
    assert headers["x-ratelimit-remaining-tokens"] == str(4000 - 110)
    assert re.fullmatch(r"(2m59\.\d+|3m0)s", headers["x-ratelimit-reset-requests"])
    assert re.fullmatch(r"1m3\d(\.\d+)?s", headers["x-ratelimit-reset-tokens"])


def test_a_refusal(caller: Caller) -> None:
    """It says which limit is short and when to come back, in seconds and milliseconds; it charges nothing."""
    answers = [caller.post() for _ in range(21)]
    assert [answer.status_code for answer in answers] == [200] * 20 + [429]
    refused = answers[-1]
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "requests"
    assert 170 <= int(refused.headers["retry-after"]) <= 180
    assert int(refused.headers["retry-after"]) - 1 <= int(refused.headers["retry-after-ms"]) / 1000
    assert (caller.report()["admitted"], caller.report()["refused"]) == (20, 1)


def test_tokens_are_limited_by_the_estimate(caller: Caller) -> None:
    """A request is admitted by the output that it allows, not by what it will use; one above the limit never."""
    assert caller.post({**BODY, "max_tokens": 3900}).status_code == 200
    assert caller.post({**BODY, "max_tokens": 3985}).json()["error"]["type"] == "tokens"
    too_large = caller.post({**BODY, "max_tokens": 5000})
    assert "too large" in too_large.json()["error"]["message"]
    assert "retry-after" not in too_large.headers


def test_embeddings(caller: Caller) -> None:
    """They have no output."""
    answer = caller.post({"model": "small", "input": "x" * 40}, "/v1/embeddings")
    assert settled(answer) == {"tokens": 10}
    assert caller.report()["used"] == {"requests": 1, "tokens": 10}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0001, "1ms"), (0.02, "20ms"), (1, "1s"), (7.66, "7.66s"), (360, "6m0s"), (3602.5, "1h0m2.5s")],
)
def test_durations_of_go(seconds: float, text: str) -> None:
    """Rounded up to milliseconds."""
    assert go_duration(seconds) == text


def test_each_event_is_json(caller: Caller) -> None:
    """With its type as its name, where it has one."""
    events = caller.post({**PATHS["/v1/responses"], "stream": True}, "/v1/responses").text.split("\n\n")[:-1]
    for event in events:
        name, data = event.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"

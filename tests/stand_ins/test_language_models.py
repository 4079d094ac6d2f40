"""The stand-ins for OpenAI and Anthropic: they count what they say, and refuse as their vendors do."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from asgi_ratelimit.profiles import anthropic_usage, openai_usage
from tests.profiles.answers import Answer

BODY = {"model": "small", "messages": [{"role": "user", "content": "x" * 40 + " 5"}], "max_tokens": 100}
RESPONSES = {"model": "small", "input": "x" * 40 + " 5", "max_output_tokens": 100}
USAGE = {"openai": openai_usage, "anthropic": anthropic_usage}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


class Caller:
    """One client of a stand-in with its whole limits."""

    def __init__(self, vendor: str, client: httpx.Client, url: str) -> None:
        self.vendor, self.client, self.url = vendor, client, url
        self.headers = {"x-api-key": str(uuid4()), "authorization": f"Bearer {uuid4()}"}

    def post(self, body: Any = BODY, path: str = "") -> httpx.Response:
        """The answer to a request."""
        return self.client.post(f"{self.url}{path or PATHS[self.vendor]}", json=body, headers=self.headers)

    def report(self) -> Any:
        """What was counted of this client for the model ``small``."""
        return self.client.get(f"{self.url}/stand-in/report", headers=self.headers).json()["small"]

    def settled(self, answer: httpx.Response) -> Any:
        """What our function reads in an answer."""
        return USAGE[self.vendor](Answer(answer.content, answer.status_code))


@pytest.fixture(params=USAGE)
def caller(request: pytest.FixtureRequest, client: httpx.Client) -> Caller:
    """A client of each stand-in in turn."""
    return Caller(request.param, client, request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_counted_is_what_is_said(caller: Caller, stream: bool) -> None:
    """The usage of an answer, streamed or not, is what the server has counted."""
    answers = [caller.post({**BODY, "stream": stream, "stream_options": {"include_usage": True}})]
    if caller.vendor == "openai":
        answers.append(caller.post({**RESPONSES, "stream": stream}, "/v1/responses"))
    used = {name: units for name, units in caller.report()["used"].items() if name != "requests"}
    assert sum(sum(caller.settled(answer).values()) for answer in answers) == sum(used.values()) == 15 * len(answers)


def test_a_refusal(caller: Caller) -> None:
    """It says when to come back, and charges nothing."""
    answers = [caller.post() for _ in range(21)]
    assert [answer.status_code for answer in answers] == [200] * 20 + [429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (caller.report()["admitted"], caller.report()["refused"]) == (20, 1)

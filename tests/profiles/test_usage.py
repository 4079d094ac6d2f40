"""``openai_usage`` and ``anthropic_usage``: what an answer says that its request has used."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.profiles import anthropic_usage, openai_usage
from tests.profiles.answers import (
    CHAT,
    CHAT_STREAM,
    MESSAGE,
    MESSAGE_STREAM,
    RESPONSE,
    RESPONSE_STREAM,
    Answer,
    answer,
    stream,
)

FUNCTIONS = [openai_usage, anthropic_usage]
ANTHROPIC = {"input_tokens": 300, "output_tokens": 13}

CASES: list[tuple[Callable[[Answer], Any], Answer, Any]] = [
    (openai_usage, answer(CHAT), {"tokens": 313}),
    (openai_usage, answer(RESPONSE), {"tokens": 313}),
    (openai_usage, answer({"usage": {"prompt_tokens": 8, "total_tokens": 8}}), {"tokens": 8}),
    (openai_usage, stream(*CHAT_STREAM), {"tokens": 313}),
    (openai_usage, stream(*RESPONSE_STREAM), {"tokens": 313}),
    (openai_usage, stream({"type": "response.incomplete", "response": RESPONSE}), {"tokens": 313}),
    (openai_usage, answer({"error": {}}, 429), {"tokens": 0}),
    (anthropic_usage, answer(MESSAGE), ANTHROPIC),
    (anthropic_usage, stream(*MESSAGE_STREAM), ANTHROPIC),
    (anthropic_usage, answer({"type": "error"}, 429), {"input_tokens": 0, "output_tokens": 0}),
]


@pytest.mark.parametrize(("usage", "received", "used"), CASES)
def test_what_was_used(usage: Callable[[Answer], Any], received: Answer, used: Any) -> None:
    """Whole or streamed, of all endpoints; a refused request has used nothing."""
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
        answer({"usage": {"total_tokens": "313", "input_tokens": "1", "output_tokens": None}}),
        answer({"usage": {"total_tokens": -1, "input_tokens": -1, "output_tokens": -1}}),
        answer({"usage": {"total_tokens": True, "input_tokens": True, "output_tokens": 1.5}}),
        answer({"usage": {"total_tokens": 2**54, "input_tokens": 2**54, "output_tokens": 2**54}}),
        answer({"usage": {"total_tokens": float("nan"), "input_tokens": float("nan"), "output_tokens": float("inf")}}),
        answer({"error": "overloaded"}, 529),
    ],
    ids=range(11),
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


@pytest.mark.parametrize(
    ("seen", "used"), [(0, None), (1, {"input_tokens": 300}), (2, {"input_tokens": 300}), (3, ANTHROPIC)]
)
def test_a_stream_of_anthropic_that_is_cut(seen: int, used: Any) -> None:
    """It says at its start what its input was, and at its end what its output was."""
    assert anthropic_usage(stream(*MESSAGE_STREAM[:seen])) == used


def test_the_last_numbers_of_a_stream_count() -> None:
    """Those at the end are totals; tools add to the input while the answer is generated."""
    end = {
        "type": "message_delta",
        "usage": {"input_tokens": 500, "cache_creation_input_tokens": None, "output_tokens": 20},
    }
    assert anthropic_usage(stream(*MESSAGE_STREAM, end)) == {"input_tokens": 500, "output_tokens": 20}
    more = {"type": "message_delta", "usage": {"output_tokens": 21}}
    assert anthropic_usage(stream(*MESSAGE_STREAM, more)) == {"input_tokens": 300, "output_tokens": 21}


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


@pytest.mark.parametrize("usage", FUNCTIONS)
@given(
    body=st.binary()
    | st.text().map(str.encode)
    | st.sampled_from(["gzip", "deflate"]).map(lambda name: ENCODINGS[name](b"{}")),
    status=st.integers(100, 599),
    encoding=st.sampled_from(["", "gzip", "deflate", "br", "gzip, gzip"]) | st.text(),
)
def test_no_bytes_raise(usage: Any, body: bytes, status: int, encoding: str) -> None:
    """Whatever a server sends."""
    used = usage(Answer(body, status, {"content-encoding": encoding}))
    assert used is None or all(type(units) is int and units >= 0 for units in used.values())


numbers = st.integers(-1, 10) | st.floats() | st.none() | st.text(max_size=3)
json_values = st.recursive(
    numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["usage", "response", "message", "type", "total_tokens", "input_tokens", "output_tokens"]),
            inner,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("usage", FUNCTIONS)
@given(values=st.lists(json_values, max_size=5), streamed=st.booleans(), cut=st.integers(0, 40))
def test_no_json_raises(usage: Any, values: list[Any], streamed: bool, cut: int) -> None:
    """Wherever the names of usage stand in it, and wherever it is cut."""
    received = stream(*values) if streamed else answer(values[0] if values else None)
    received.body = received.body[: len(received.body) - cut]
    used = usage(received)
    assert used is None or all(type(units) is int and units >= 0 for units in used.values())

"""Answers of language models, as ``settle`` functions receive them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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

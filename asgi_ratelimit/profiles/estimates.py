"""Estimates of a request's cost before it is sent: functions for ``cost`` that read the JSON of its body."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .payloads import json_object

BYTES_PER_TOKEN = 4
"""A token is about four bytes of text: four letters of English, or one and a third of Chinese."""

TOKENS_OF_MEDIA = 1_500
"""The tokens that an image or a file in the body counts as: about the most that a vendor counts for an image."""

TOKENS_OF_OUTPUT = 1_024
"""The output tokens of a request that does not limit them."""


def openai_estimate(request: Any) -> dict[str, float]:
    """What a request to OpenAI will cost at most, ``{"requests": 1, "tokens": 1337}``.

    That is a token for every four bytes of text in its body and for each number in a list (the ids of tokens), and the
    output that it allows: ``max_completion_tokens``, ``max_output_tokens`` or ``max_tokens``, or else 1,024, ``n``
    times. Embeddings have no output.
    """
    body = _body(request)
    output = _first_number(body, "max_completion_tokens", "max_output_tokens", "max_tokens")
    if output is None:
        output = 0 if str(request.url).partition("?")[0].endswith("/embeddings") else TOKENS_OF_OUTPUT
    return {"requests": 1, "tokens": max(1, _input_tokens(body) + output * (_first_number(body, "n") or 1))}


def anthropic_estimate(request: Any) -> dict[str, float]:
    """What a request to Anthropic will cost at most, ``{"requests": 1, "input_tokens": 313, "output_tokens": 1024}``.

    That is a token for every four bytes of text in its body, and its ``max_tokens``.
    """
    body = _body(request)
    output = _first_number(body, "max_tokens") or TOKENS_OF_OUTPUT
    return {"requests": 1, "input_tokens": max(1, _input_tokens(body)), "output_tokens": output}


def model(request: Any) -> str:
    """The model that a request names in its body, or ``""`` if it names none; vendors limit each model separately."""
    name = _body(request).get("model")
    return name if isinstance(name, str) else ""


def _body(request: Any) -> dict[str, Any]:
    """The JSON body of a request of httpx, httpx2, requests or aiohttp; empty for any other body."""
    try:
        content = request.content
    except Exception:  # noqa: BLE001  # a missing attribute, or a body that was not read: each client has its own error
        content = getattr(request, "body", b"")
    if not isinstance(content, (bytes, str)):
        content = getattr(content, "_value", b"")  # a payload of aiohttp, of bytes
    return (json_object(content) if isinstance(content, (bytes, str)) else None) or {}


def _first_number(body: Mapping[str, Any], *names: str) -> int | None:
    numbers = (body.get(name) for name in names)
    return next((number for number in numbers if type(number) is int and number > 0), None)


def _input_tokens(body: Mapping[str, Any]) -> int:
    """The tokens of all texts in a body, names included, and of its images and files."""
    size, tokens, parts = 0, 0, [body]
    while parts:
        part: Any = parts.pop()
        if isinstance(part, dict):
            is_media = _is_base64(part.get("data"))
            tokens += TOKENS_OF_MEDIA * is_media
            parts += [*part, *(value for name, value in part.items() if not (is_media and name == "data"))]
        elif isinstance(part, list):
            tokens += sum(type(each) in (int, float) for each in part)
            parts += part
        elif isinstance(part, str) and part.startswith("data:") and _is_base64(part.partition(";base64,")[2]):
            tokens += TOKENS_OF_MEDIA
        elif isinstance(part, str):
            size += len(part.encode("utf-8", "surrogatepass"))
    return math.ceil(size / BYTES_PER_TOKEN) + tokens


def _is_base64(text: object) -> bool:
    """Whether a text is bytes in base64, which has no spaces; what people write has."""
    return isinstance(text, str) and text.isascii() and " " not in text and text != ""

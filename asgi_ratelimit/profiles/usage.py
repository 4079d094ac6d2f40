"""The usage that an answer reports for its request: functions for ``settle``, for answers that are streamed or not.

No bytes raise an exception, and every function takes time that grows no faster than the length of the body.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from ..quotas import MAX_UNITS

MAX_CONTENT = 16 * 1024 * 1024
"""The most bytes to which a compressed body is decoded."""

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # of zlib


class Answer(Protocol):
    """What a ``settle`` function receives: an answer with its body as it was transferred, as far as it was read.

    The names of ``headers`` are in lower case.
    """

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...


def objects(answer: Answer, mention: bytes) -> Iterator[dict[str, Any]]:
    """The JSON objects of an answer that mention a text, the last one first: the body, or its events."""
    content = decoded(answer.body, answer.headers.get("content-encoding", ""))
    texts = [content] if content.lstrip()[:1] == b"{" else _events(content, mention)
    for text in texts:
        parsed = json_object(text)
        if parsed is not None:
            yield parsed


def decoded(body: bytes, encoding: str, most: int = MAX_CONTENT) -> bytes:
    """A body without its content encoding, as far as it has come, and ``most`` bytes of it.

    A body that does not match the encoding stays unchanged: some clients have already decoded it, and others know
    encodings that the standard library does not.
    """
    window_bits = _WINDOW_BITS.get(encoding.strip().lower())
    if window_bits is None:
        return body
    try:
        return zlib.decompressobj(window_bits).decompress(body, most)
    except zlib.error:
        return body


def json_object(text: bytes | str) -> dict[str, Any] | None:
    """A JSON object, or ``None`` for anything else."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _events(content: bytes, mention: bytes) -> Iterator[bytes]:
    """The data of the server-sent events that mention a text, the last one first."""
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    end = len(content)
    while (at := content.rfind(mention, 0, end)) >= 0:
        start = max(content.rfind(b"\n\n", 0, at), 0)
        blank = content.find(b"\n\n", at, end)
        event = content[start : end if blank < 0 else blank]
        yield b"\n".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))
        end = start


Usage: TypeAlias = Mapping[str, int]
"""Units by the name of the quota; quotas that are not named keep their charge."""


def _reads_body(function: Callable[[Answer], Usage | None]) -> Callable[[Answer], Usage | None]:
    """Mark a function as one that is called when the body is closed, not at the headers."""
    function.reads_body = True  # type: ignore[attr-defined]
    return function


@_reads_body
def openai_usage(answer: Answer) -> Usage | None:
    """The tokens that OpenAI's answer says it has used, ``{"tokens": 313}``, or ``None`` if it does not say.

    It reads ``usage`` of chat completions, responses, embeddings and other answers, and of services that copy them.
    The stream of a chat completion has ``usage`` only if the request asks for it, ``stream_options={"include_usage":
    True}``. All tokens count, because those from the prompt cache are limited as well. A refused request has used none.
    """
    if _is_refused(answer):
        return {"tokens": 0}
    for entry in objects(answer, b'"usage"'):
        tokens = _total_tokens(_usage(entry, "response"))
        if tokens is not None:
            return {"tokens": tokens}
    return None


@_reads_body
def anthropic_usage(answer: Answer) -> Usage | None:
    """The tokens that Anthropic's answer says it has used, ``{"input_tokens": 2000, "output_tokens": 313}``.

    Input that was written to the prompt cache counts; input that was read from it does not, as for the limits of all
    current models. A stream that is cut reports only its input, and ``None`` stands for an answer that reports nothing.
    A refused request has used none.
    """
    if _is_refused(answer):
        return {"input_tokens": 0, "output_tokens": 0}
    used: dict[str, int] = {}
    for entry in objects(answer, b'"usage"'):  # the last one first, because it is up to date
        used = {**_anthropic_tokens(entry), **used}
        if len(used) == 2:
            break
    return used or None


def _is_refused(answer: Answer) -> bool:
    return 400 <= answer.status_code < 500


def _usage(entry: Mapping[str, Any], envelope: str) -> Mapping[str, Any]:
    """The usage of an object, or of the one within its envelope."""
    inner = entry.get(envelope)
    usage = (inner if isinstance(inner, dict) else entry).get("usage")
    return usage if isinstance(usage, dict) else {}


def _total_tokens(usage: Mapping[str, Any]) -> int | None:
    if "total_tokens" in usage:
        return _units(usage["total_tokens"])
    parts = [_units(usage.get(old, usage.get(new))) for old, new in _PARTS]
    return None if None in parts else sum(filter(None, parts))


_PARTS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
"""The fields whose sum is the total, in chat completions and in responses."""


def _anthropic_tokens(entry: Mapping[str, Any]) -> dict[str, int]:
    """The tokens in one object: a message has both numbers, the start of a stream its input, and the end its output."""
    usage = _usage(entry, "message")
    tokens: dict[str, int] = {}
    uncached = _units(usage.get("input_tokens"))
    if uncached is not None:
        tokens["input_tokens"] = uncached + (_units(usage.get("cache_creation_input_tokens")) or 0)
    output = _units(usage.get("output_tokens"))
    if output is not None and entry.get("type") != "message_start":  # there, it is only the beginning
        tokens["output_tokens"] = output
    return tokens


def _units(number: object) -> int | None:
    """A whole number of units, or ``None`` for anything else."""
    return number if type(number) is int and 0 <= number <= MAX_UNITS else None

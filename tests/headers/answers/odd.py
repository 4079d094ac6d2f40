"""Answers of APIs that have no profile of their own: names that many use, and odd forms of time."""

from __future__ import annotations

from asgi_ratelimit.headers import ServerLimit
from tests.headers.answers.example import Example, read, refused

EXAMPLES = {
    "X-RateLimit-Reset since 1970": Example(
        profile="auto",
        headers={"x-ratelimit-limit": "60", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "1774540800"},
        expected=read(ServerLimit(limit=60, remaining=7, reset_after=30)),
    ),
    "X-RateLimit-Reset from now": Example(
        profile="auto",
        headers={"x-ratelimit-limit": "60", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "30"},
        expected=read(ServerLimit(limit=60, remaining=7, reset_after=30)),
    ),
    "diffcord, milliseconds since 1970": Example(
        profile="auto",
        headers={"x-ratelimit-limit": "60", "x-ratelimit-remaining": "7", "x-ratelimit-reset": "1774540800500"},
        expected=read(ServerLimit(limit=60, remaining=7, reset_after=30.5)),
    ),
    "rachio, ISO 8601": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit": "1700",
            "x-ratelimit-remaining": "1694",
            "x-ratelimit-reset": "2026-03-27T00:00:00Z",
        },
        expected=read(ServerLimit(limit=1700, remaining=1694, reset_after=28_830)),
    ),
    "lemlist, as JavaScript writes dates": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit": "20",
            "x-ratelimit-remaining": "7",
            "x-ratelimit-reset": "Thu Mar 26 2026 16:59:42 GMT+0100 (Central European Standard Time)",
        },
        expected=read(ServerLimit(limit=20, remaining=7, reset_after=12)),
    ),
    "Toast": Example(
        profile="auto",
        headers={"x-toast-ratelimit-remaining": "4", "x-toast-ratelimit-reset": "1774540800"},
        expected=read(ServerLimit(name="toast", remaining=4, reset_after=30)),
    ),
    "Guilds, from now": Example(
        profile="auto",
        headers={"x-rate-limit-limit": "40", "x-rate-limit-remaining": "0", "x-rate-limit-reset": "12"},
        status=429,
        expected=refused(12.0, ServerLimit(limit=40, remaining=0, reset_after=12)),
    ),
    "Gemini, a duration in the body": Example(
        profile="auto",
        status=429,
        headers={},
        body={"error": {"code": 429, "details": [{"@type": "Help"}, {"@type": "RetryInfo", "retryDelay": "34s"}]}},
        expected=refused(34.0),
    ),
    "Kong, a limit for each period": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit-minute": "10",
            "x-ratelimit-remaining-minute": "9",
            "x-ratelimit-limit-hour": "100",
            "x-ratelimit-remaining-hour": "99",
        },
        expected=read(
            ServerLimit(name="minute", limit=10, remaining=9), ServerLimit(name="hour", limit=100, remaining=99)
        ),
    ),
}

"""Public usage of what servers say, as users write it: checked by mypy in strict mode, never run."""

from __future__ import annotations

from typing import assert_type

import httpx
import httpx2

from asgi_ratelimit.headers import ServerLimits, parse
from asgi_ratelimit.profiles import LimitHeaders, Profile, Refusal, discord


def answers(answer: httpx.Response, other: httpx2.Response, pairs: list[tuple[bytes, bytes]]) -> None:
    """The headers of any client, with profiles by name and with one's own."""
    own = Profile(name="own", limits=(LimitHeaders(remaining="x-left", window=60),), refusals=(Refusal((420,)),))
    assert_type(parse(answer.status_code, answer.headers, profile="github", body=answer.json()), ServerLimits)
    assert_type(parse(other.status_code, other.headers, profile=own, now=1.8e9, max_delay=60), ServerLimits)
    assert_type(parse(200, pairs, profile=discord).limits[0].wait(5), float | None)
    assert_type(discord.routes.route("GET", "/users/@me"), str)
    LimitHeaders(remaining="x-left", reset_means="end")  # type: ignore[arg-type]

"""Functions that files of limits in tests name, and how they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from asgi_ratelimit import RateLimitMiddleware

HERE = __name__


app = PlainTextResponse("fine")


def key_of(request: Any) -> str | None:
    """A key."""
    value: str | None = request.headers.get("x-key")
    return value


async def cost_of(request: Any) -> float:
    """A cost."""
    return float(request.headers.get("x-cost", 1))


def actual_cost(status: int, headers: Any) -> float:
    """What a request has really cost."""
    return float(headers.get("x-actual", 1))


def answer(request: Any, decision: Any) -> dict[str, bool]:
    """An answer to a refusal."""
    return {"refused": True}


async def plan_of(request: Any) -> str | None:
    """The tier of a request."""
    plan: str | None = request.headers.get("x-plan")
    return plan


def limited(path: Path, text: str, *, inside: ASGIApp = app, **options: Any) -> RateLimitMiddleware:
    """A middleware with this text as its file."""
    path.write_text(text)
    return RateLimitMiddleware(inside, config=path, **options)

"""No limiter: the bare app, with as many bytes of headers as ours adds, always the same, by the shortest middleware."""

from __future__ import annotations

from collections.abc import Awaitable

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..apps.starlette_app import starlette_app
from ..subject import Quota, Where


class HeadersMiddleware:
    def __init__(self, app: ASGIApp, quota: Quota) -> None:
        self.app = app
        policy = f'"per-{quota.period}";q={quota.limit};w={quota.seconds}'
        limit = f'"per-{quota.period}";r={quota.limit - 1};t=1'
        self.headers = [(b"ratelimit-policy", policy.encode()), (b"ratelimit", limit.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        def send_with_headers(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.headers]}
            return send(message)

        await self.app(scope, receive, send_with_headers)


def build(where: Where, url: str, quota: Quota) -> ASGIApp:
    return starlette_app(Middleware(HeadersMiddleware, quota=quota))

"""The ASGI app of the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.types import Receive, Scope, Send

from ..argument_errors import checked_flag, shows_use
from ..counts import Part
from ..errors import StoreError
from ..keys.path_patterns import route_path
from ..limiter import as_store
from ..quota_text import as_quotas
from ..quotas import Quota
from ..stores import Store
from ..stores.store_arguments import store_of_limits
from .access import Access, Allow, Author, By
from .assets import TYPES, asset, page
from .csrf import Tokens, set_cookie
from .form_actions import Actions
from .page_state import PageState
from .streams import Streams
from .what_if import Estimate, estimate

LONGEST_FORM = 8192
"""Bytes of the largest form that is read."""

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""The headers of every answer."""


@shows_use('app.mount("/limits", dashboard(store, allow=is_admin))')
def dashboard(
    store: Store | str,
    *,
    allow: Allow,
    show_keys: bool = False,
    by: By | None = None,
) -> Dashboard:
    """A page on all limits of a store, as an ASGI app: ``app.mount("/limits", dashboard(store, allow=is_admin))``.

    ``store`` is that of the limits, or its URL. ``allow(request)``, sync or async, says whether the sender may see the
    page, and change limits; anything but ``True`` is answered with 403. Keys are shown as hashes, or as they are with
    ``show_keys``. ``by(request)``, sync or async, returns the name that the history of changes shows, ``"page"`` by
    default; if it fails, the failure is logged, and the history shows no name. Requests to the page are limited like
    any others: exempt them with ``Rule("/limits/{path:path}", None)``.
    Raises ``ConfigurationError`` for invalid arguments, and for a store without documents.
    """
    given = as_store(store_of_limits(store, "dashboard(store, allow=is_admin)"))
    return Dashboard(given, Access(allow), Author(by), show_keys=checked_flag("show_keys", show_keys))


class Dashboard:
    """The page of a store, and the answers to its requests."""

    def __init__(self, store: Store, access: Access, author: Author, *, show_keys: bool) -> None:
        self._store = store
        self._access = access
        self._author = author
        self._tokens = Tokens(store)
        self._state = PageState(store, self._tokens, show_keys=show_keys)
        self._streams = Streams(self._state)
        self._actions = Actions(store, self._state)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except HTTPException as error:
            response = PlainTextResponse(error.detail, error.status_code, headers=dict(error.headers or {}))
        for name, value in HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if not await self._access.permits(request):
            return PlainTextResponse("Forbidden", 403)
        path = route_path(request.scope)
        if path == "":
            return RedirectResponse(f"{request.url.path.rpartition('/')[2]}/", 307)
        try:
            if request.method == "POST":
                return await self._change(request, path.removeprefix("/"))
            if request.method in ("GET", "HEAD"):
                return await self._show(request, path.removeprefix("/"))
        except StoreError as error:
            return JSONResponse({"error": f"The store does not answer: {error}"}, 503)
        return PlainTextResponse("Method Not Allowed", 405, headers={"allow": "GET, HEAD, POST"})

    async def _show(self, request: Request, name: str) -> Response:
        if name in TYPES:
            return asset(request, name)
        if name == "":
            return await self._page(request)
        if name == "state":
            return Response(json.dumps(await self._state.read(is_fresh=True)), media_type="application/json")
        if name == "events":
            return self._events()
        if name == "what-if":
            return await self._what_if(request)
        return PlainTextResponse("Not Found", 404)

    async def _page(self, request: Request) -> Response:
        session, token = await self._tokens.issue(request)
        response = HTMLResponse(page(token))
        set_cookie(response, request, session)
        return response

    def _events(self) -> Response:
        if self._streams.is_full:
            return PlainTextResponse("Too many pages are open", 503, headers={"retry-after": "5"})
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._streams.events(), media_type="text/event-stream", headers=headers)

    async def _what_if(self, request: Request) -> Response:
        name, text = request.query_params.get("rule", ""), request.query_params.get("quota", "")
        try:
            quotas = as_quotas(text)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        parts = await self._state.parts()
        return JSONResponse(asdict(await run_in_threadpool(_estimate, parts, name, quotas)))

    async def _change(self, request: Request, name: str) -> Response:
        """Carry out a form, if it was sent from the page."""
        action = self._actions.named(name)
        if not await self._tokens.accepts(request):
            return JSONResponse({"error": "This form was not sent from the page, or from one too old: reload it."}, 403)
        if action is None:
            return PlainTextResponse("Not Found", 404)
        try:
            done = await action(await _fields(request), await self._author.of(request))
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        await self._state.read(is_fresh=True)
        return JSONResponse({"done": done})


def _estimate(parts: Iterable[tuple[int, Part]], name: str, quotas: Sequence[Quota]) -> Estimate:
    """What these quotas would have refused of the recordings of a rule; reading these takes long as well."""
    recordings = [(minute, part.recording(name)) for minute, part in parts]
    return estimate([(minute, recording) for minute, recording in recordings if recording is not None], quotas)


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form. Raises ``ValueError`` if it is too large, or not a form."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            raise ValueError(f"a form has at most {LONGEST_FORM} bytes")
    return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    """Answer a server that runs the page as an app of its own."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return

"""``dashboard``: a page that shows and changes the limits of all processes; and its figures for programs.

``app.mount("/limits", dashboard(store, allow=is_admin))`` serves the page: its files, its state as JSON, and its forms.
``summary(store)`` returns its figures.
"""

from __future__ import annotations

import json
from importlib.resources import files
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from ..errors import StoreError, checked_flag, shows_use
from ..keys.path_patterns import route_path
from ..quota_text import as_quotas
from ..stores import Store, store_of_limits
from .access import Access, Allow, By, is_from_page
from .page_state import PageState
from .summaries import KeyCounts, LearnedRow, ProcessSummary, QueueRow, RuleSummary, Summaries, Summary, summary

__all__ = [
    "Allow",
    "KeyCounts",
    "LearnedRow",
    "ProcessSummary",
    "QueueRow",
    "RuleSummary",
    "Summaries",
    "Summary",
    "dashboard",
    "summary",
]

# Bytes of the largest form that is read.
LONGEST_FORM = 8192

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
# The headers of every answer.
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

# The files of the page that are served.
FILES = ("page.css", "page.js", "charts.js", "editor.js", "format.js", "uPlot.min.css", "uPlot.iife.min.js", "icon.svg")

# Their types, by the ends of their names.
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def content(name: str) -> bytes:
    """The content of a file of the page."""
    return files(__package__).joinpath("assets", name).read_bytes()


@shows_use('app.mount("/limits", dashboard(store, allow=is_admin))')
def dashboard(store: Store | str, *, allow: Allow, show_keys: bool = False, by: By | None = None) -> Dashboard:
    """A page on all limits of a store, as an ASGI app: ``app.mount("/limits", dashboard(store, allow=is_admin))``.

    ``store`` is that of the limits, or its URL. ``allow(request)``, sync or async, says whether the sender may see the
    page, and change limits; anything but ``True`` is answered with 403. Keys are shown as hashes, or as they are with
    ``show_keys``. ``by(request)``, sync or async, returns the name that the history of changes shows, by default that
    of Basic authentication, or ``"page"``; if it fails, the failure is logged, and the history shows no name. Requests
    to the page are limited like any others: exempt them with ``Rule("/limits/{path:path}", None)``.
    Raises ``ConfigurationError`` for invalid arguments.
    """
    given = store_of_limits(store, "dashboard(store, allow=is_admin)")
    return Dashboard(given, Access(allow, by), show_keys=checked_flag("show_keys", show_keys))


class Dashboard:
    """The page of a store, and the answers to its requests."""

    def __init__(self, store: Store, access: Access, *, show_keys: bool) -> None:
        self._access = access
        self._state = PageState(store, show_keys=show_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)  # raises for a lifespan, without which servers go on
        try:
            response = await self._answer(request)
        except HTTPException as error:
            response = PlainTextResponse(error.detail, error.status_code, headers=dict(error.headers or {}))
        response.headers.update(HEADERS)
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
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        return PlainTextResponse("Method Not Allowed", 405, headers={"allow": "GET, HEAD, POST"})

    async def _show(self, request: Request, name: str) -> Response:
        if name == "":
            return HTMLResponse(content("page.html"))
        if name == "state":
            await self._state.read()
            return Response(json.dumps(self._state.as_json), media_type="application/json")
        asked = request.query_params
        if name == "keys":
            return JSONResponse(await self._state.search(asked.get("search", "")))
        if name == "what-if":
            return JSONResponse(await self._state.what_if(asked.get("rule", ""), as_quotas(asked.get("quota", ""))))
        if name in FILES:
            return Response(content(name), media_type=TYPES[name.rpartition(".")[2]])
        return PlainTextResponse("Not Found", 404)

    async def _change(self, request: Request, name: str) -> Response:
        """Carry out a form, if it was sent from the page."""
        action = self._state.action(name)
        if not is_from_page(request):
            return JSONResponse({"error": "This form was not sent from the page, or from an old one: reload it."}, 403)
        if action is None:
            return PlainTextResponse("Not Found", 404)
        done = await action(await _fields(request), await self._access.author(request))
        await self._state.read(is_fresh=True)
        return JSONResponse({"done": done})


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form. Raises ``ValueError`` if it is too large, or not a form."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            raise ValueError(f"a form has at most {LONGEST_FORM} bytes")
    return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))

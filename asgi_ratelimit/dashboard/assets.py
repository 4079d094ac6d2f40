"""The files of the page, which are parts of the package."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

TYPES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "editor.js": "text/javascript; charset=utf-8",
    "format.js": "text/javascript; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8",
    "uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files that are served, by name."""

TOKEN = "{{token}}"
"""The placeholder for the token in the page."""


@cache
def content(name: str) -> bytes:
    """The content of a file of the page."""
    return files(__package__).joinpath("assets", name).read_bytes()


@cache
def _tag(name: str) -> str:
    return f'"{sha256(content(name)).hexdigest()[:16]}"'


def asset(request: Request, name: str) -> Response:
    """A file, or 304 if the browser already has it."""
    headers = {"etag": _tag(name), "cache-control": "private, no-cache"}
    if request.headers.get("if-none-match") == _tag(name):
        return Response(status_code=304, headers=headers)
    return Response(content(name), media_type=TYPES[name], headers=headers)


def page(token: str) -> str:
    """The page with its token."""
    return content("page.html").decode().replace(TOKEN, token)

"""Proof that a form was sent from the page: the browser's own headers, and a token that goes with a cookie."""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ..errors import StoreError
from ..stores import Store
from ..stores.documents import documents

COOKIE = "ratelimit_dashboard"
SECRET = "dashboard:secret"
"""The document with the secret, which all processes share."""

HEADER = "x-limits-token"
"""The header in which the page sends its token."""


class Tokens:
    """Tokens of all pages on a store."""

    def __init__(self, store: Store) -> None:
        self._documents = documents(store)
        self._secret: bytes | None = None

    async def secret(self) -> bytes:
        """The secret of this store, which the first process to need it makes. Raises ``StoreError``."""
        if self._secret is None:
            own = secrets.token_bytes(32)
            is_new = await self._documents.replace(SECRET, None, own)
            self._secret = own if is_new else await self._documents.read(SECRET)
            if not self._secret:
                raise StoreError("the secret of the dashboard was deleted meanwhile")
        return self._secret

    async def issue(self, request: Request) -> tuple[str, str]:
        """The session of a browser, a new one if it has none, and the token that goes with it."""
        session = request.cookies.get(COOKIE) or secrets.token_urlsafe(24)
        return session, _token(await self.secret(), session)

    async def accepts(self, request: Request) -> bool:
        """Whether a request was sent by a page of ours, in a browser to which we gave its token."""
        session, token = request.cookies.get(COOKIE), request.headers.get(HEADER)
        if not session or not token or not is_same_origin(request):
            return False
        return hmac.compare_digest(_token(await self.secret(), session).encode(), token.encode())

    async def name_of(self, bucket: str) -> str:
        """A name for a bucket that reveals nothing of its key."""
        return hmac.new(await self.secret(), b"bucket:" + bucket.encode(), sha256).hexdigest()[:12]


def _token(secret: bytes, session: str) -> str:
    return hmac.new(secret, b"session:" + session.encode(), sha256).hexdigest()


def is_same_origin(request: Request) -> bool:
    """Whether a browser says that a page of the same origin has sent this; ``False`` if it says nothing about that."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    try:
        origin = urlsplit(request.headers.get("origin", "")).netloc
    except ValueError:  # no browser sends this
        return False
    return bool(origin) and origin == request.headers.get("host")


def set_cookie(response: Response, request: Request, session: str) -> None:
    """Give a browser its session: sent to this page only, by this site only, and out of reach for scripts.

    The browser derives the path from the address of the page, which a proxy may have changed.
    """
    is_secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, session, path=None, secure=is_secure, httponly=True, samesite="strict")

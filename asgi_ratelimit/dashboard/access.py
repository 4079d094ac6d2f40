"""Who may see the page, who changes limits there, and proof that a form was sent from the page.

``allow`` and ``by`` are functions of the program, which may fail. The proof is the browser's own headers, and one that
only a script can send.
"""

from __future__ import annotations

import hmac
import math
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..buckets import escaped
from ..inbound.plan import SCOPE_KEY
from ..inbound.user_functions import require_function
from ..keys.base import called
from ..keys.client_ip import address_key
from ..limiter.limiter import Limiter
from ..logs import FailureLog
from ..overrides import checked_by
from ..stores import MemoryStore, Store

Allow: TypeAlias = Callable[[Request], bool | Awaitable[bool]]
"""Says whether the sender of a request may see the page and change limits; sync or async."""

# Returns the name that the history of changes shows for a request; sync or async.
By: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]

EXAMPLE = 'dashboard(store, allow=lambda request: request.session.get("role") == "admin")'

# How many requests of an address may be denied: so many passwords can be tried.
ATTEMPTS = "20/minute"

# The document with the secret, which all processes share.
SECRET = "dashboard:secret"

# The header that the page sends with a form: HTML alone sends none, and scripts of other origins have to ask first.
HEADER = "x-limits-form"


class Access:
    """Calls ``allow``, and ``by`` if there is one. Raises ``ConfigurationError`` if one is not a function.

    What they raise is logged, except for an ``HTTPException``, by which ``allow`` may ask for a password.
    """

    def __init__(self, allow: Allow, by: By | None) -> None:
        self._allow = require_function("allow", allow, 1, EXAMPLE)
        self._by = None if by is None else require_function("by", by, 1, "by=lambda request: request.user.name")
        self._log = FailureLog()
        self._attempts = Limiter(ATTEMPTS, name="dashboard", store=MemoryStore())

    async def permits(self, request: Request) -> bool:
        """Whether ``allow`` returns ``True``. A failure or a value that is not a bool permits nothing.

        Raises an ``HTTPException`` for an address that was denied too often; ``allow`` is then not called. The proxies
        that are trusted are those of the middleware around the page, if there is one.
        """
        key = address_key([request.scope[SCOPE_KEY].enforcer.key] if SCOPE_KEY in request.scope else [])
        attempt = await self._attempts.rate_limit(key.of(request.scope) or "")
        if not attempt.allowed:
            raise HTTPException(429, headers={"retry-after": str(math.ceil(attempt.retry_after))})
        try:
            answer = await called(self._allow, request)
            if answer is True:
                await self._attempts.refund(attempt)
            if isinstance(answer, bool):
                return answer
            raise TypeError(f"it must return True or False, not {type(answer).__name__}: {EXAMPLE}")
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001  # a function of the program, which may raise whatever it likes
            self._log.report("allow of the dashboard failed, so nobody is let in", error)
            return False

    async def author(self, request: Request) -> str | None:
        """The name for the history. A failure gives no name: it must not keep an admin from a change."""
        try:
            name = await called(self._by, request) if self._by else _basic_user(request) or "page"
            return checked_by(None if name is None else str(name))
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001  # as above
            self._log.report("by of the dashboard failed, so the history names nobody", error)
            return None


class KeyNames:
    """Names for the keys on the pages of a store, the same from all processes, that reveal nothing of the keys."""

    def __init__(self, store: Store) -> None:
        self._documents = store.documents
        self._secret = secrets.token_bytes(32)

    async def agree(self) -> None:
        """Use the secret of this store, which the first process to need it makes, also once the store has lost it.

        Raises ``StoreError``.
        """
        if not await self._documents.replace(SECRET, None, self._secret):
            self._secret = await self._documents.read(SECRET) or self._secret

    def name_of(self, rule: str, bucket: str) -> str:
        """A name for a key of a rule, which one of its buckets holds."""
        text = f"bucket:{escaped(rule)}:{bucket[bucket.index('{') :]}"
        return hmac.new(self._secret, text.encode(), sha256).hexdigest()[:12]


def _basic_user(request: Request) -> str:
    """The user by whose password ``allow`` has let somebody in, if it is one of HTTP's Basic authentication."""
    kind, _, credentials = request.headers.get("authorization", "").partition(" ")
    return b64decode(credentials).decode().partition(":")[0] if kind.lower() == "basic" else ""


def is_from_page(request: Request) -> bool:
    """Whether a script of the same origin has sent this, as the browser says; ``False`` if it says nothing."""
    if HEADER not in request.headers:
        return False
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin", "").partition("://")[2]
    return bool(origin) and origin == request.headers.get("host")

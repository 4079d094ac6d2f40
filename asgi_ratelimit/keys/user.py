"""Keys by what outer middleware knows: the authenticated user, or a value in ``request.state``."""

from __future__ import annotations

import logging

from starlette.types import Scope

from ..argument_errors import shows_use
from ..logs import see
from .base import ScopeKey, as_text, checked_name

logger = logging.getLogger("asgi_ratelimit")


class user(ScopeKey):  # noqa: N801  # a function to its users
    """Key by the user of Starlette's ``AuthenticationMiddleware``; no key for a user who is not authenticated.

    ``attribute`` is the attribute that distinguishes users: their ``identity``, or any other. The authentication must
    be outside the limit; if it is not, one warning is logged.
    """

    @shows_use('user("id")')
    def __init__(self, attribute: str = "identity") -> None:
        self._attribute = checked_name(attribute, 'user("id")')
        self._warned = False

    def __repr__(self) -> str:
        return f"user({self._attribute!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        if "user" not in scope:
            self._warn_once()
            return None
        current = scope["user"]
        return as_text(self._identity(current), repr(self)) if current.is_authenticated else None

    def _identity(self, current: object) -> object:
        try:
            return getattr(current, self._attribute)
        except (AttributeError, NotImplementedError) as error:
            raise TypeError(
                f"{self!r} needs an attribute {self._attribute!r}, which a {type(current).__qualname__} does not have: "
                'name the attribute that distinguishes users, user("id")'
            ) from error

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "a request came without a user, so %r has no key for it and it is not limited: "
                "AuthenticationMiddleware must be outside the limit: add it after the limit with add_middleware, or "
                "before it in middleware=[...] %s",
                self,
                see("a-user-key-without-authentication"),
            )


class state(ScopeKey):  # noqa: N801  # a function to its users
    """Key by a value, such as a tenant, that a middleware outside the limit put into ``request.state``; else no key."""

    @shows_use('state("tenant")')
    def __init__(self, name: str) -> None:
        self._name = checked_name(name, 'state("tenant")')

    def __repr__(self) -> str:
        return f"state({self._name!r})"

    def of(self, scope: Scope) -> str | None:
        """The key of the request with this scope."""
        return as_text((scope.get("state") or {}).get(self._name), repr(self))

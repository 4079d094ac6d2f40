"""The stores of dependencies that have neither a store of their own nor a middleware around them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from starlette.types import Scope

from ..buckets import DEFAULT_NAME
from ..headers import draft
from ..hooks.calling import Hooks
from ..keys import client_ip
from ..limiter import as_store
from ..stores import MemoryStore, Store
from .enforcer import Enforcer
from .refusals import Refusal

STATE = "rate_limit_store"
"""The attribute of ``app.state`` that is the store, or its URL, of an app's dependencies."""

INHERITED_KEY = client_ip()
"""The key of a limit that has neither its own key nor one from a middleware."""


def enforcer_of(store: Store) -> Enforcer:
    """The enforcer for the limits of dependencies in a store of their own."""
    return Enforcer(DEFAULT_NAME, store, INHERITED_KEY, draft, Refusal(), Hooks(()))


class AppStores:
    """Which store the dependencies of each app use: ``app.state.rate_limit_store``, the default, or its own memory."""

    def __init__(self) -> None:
        self._default: Store | str | None = None
        self._enforcers: WeakKeyDictionary[Any, tuple[object, Enforcer]] = WeakKeyDictionary()
        """The store as it is configured for each app, and the enforcer on it; this object stands for no app."""
        self.replacement: Enforcer | None = None
        """The enforcer of all limits without a middleware, in tests."""

    def set_default(self, store: Store | str | None) -> None:
        """Set the store of all apps whose state names none; ``None`` for a memory store for each app."""
        self._default = None if store is None else as_store(store)
        self._enforcers.clear()

    def enforcer_for(self, scope: Scope) -> Enforcer:
        """The enforcer of the limits of a request's app; it is determined anew if the state of the app has changed."""
        if self.replacement is not None:
            return self.replacement
        app = self if scope.get("app") is None else scope["app"]
        configured = getattr(getattr(app, "state", None), STATE, self._default)
        before, enforcer = self._enforcers.get(app, (None, None))
        if enforcer is None or before is not configured:
            enforcer = enforcer_of(as_store(configured))
            self._enforcers[app] = configured, enforcer
        return enforcer

    @contextmanager
    def replaced(self, store: MemoryStore) -> Iterator[None]:
        """Within this context, all limits without a middleware are in this store."""
        before, self.replacement = self.replacement, enforcer_of(store)
        try:
            yield
        finally:
            self.replacement = before


app_stores = AppStores()

"""Missing keys: a rule whose key is ``None`` for all of the first requests that it matches limits nobody."""

from __future__ import annotations

from ...keys import KeyFunction, cookie, header, state, user
from ...logs import warn_once

WATCHED = 100
"""How many requests without a key are enough to warn."""

_OF_OTHERS = (
    "what sets it must run before the limit, such as a middleware outside of it; where a dependency of FastAPI knows "
    'it, RateLimit("5/minute", key=Depends(current_user_id))'
)
_SENT = "is the name right, and do clients send it?"
_RETURNED = "should it return None? Otherwise first_of(key, client_ip()) limits those without a key by address"


class KeyWatch:
    """Watches the keys of a rule until the first one comes, or until enough requests had none."""

    __slots__ = ("_missing", "is_over")

    def __init__(self) -> None:
        self._missing = 0
        self.is_over = False
        """Whether the keys need not be watched any longer."""

    @property
    def is_silent(self) -> bool:
        """Whether the key was ``None`` for all of the first requests."""
        return self._missing >= WATCHED

    def see(self, key: str | None, name: str, function: KeyFunction) -> None:
        """Take note of the key of a request, as the ``function`` of the rule ``name`` returned it."""
        self._missing += key is None
        self.is_over = key is not None or self.is_silent
        if key is not None:
            self._missing = 0
        elif self.is_over:
            warn_once(
                "a-key-that-never-comes",
                f"the key of {name!r}, {function!r}, was None for all of the first {WATCHED} requests that it could "
                f"apply to, so it limits nobody: {_mend(function)}",
            )


def _mend(function: KeyFunction) -> str:
    if isinstance(function, (user, state)):
        return _OF_OTHERS
    if isinstance(function, header) and "_" in function.name:
        return f"names of headers have hyphens: is it {header(function.name.replace('_', '-'))!r}?"
    return _SENT if isinstance(function, (header, cookie)) else _RETURNED

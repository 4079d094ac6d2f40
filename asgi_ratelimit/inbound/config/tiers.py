"""Tiers: a named function says which of several quotas a request has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from ...quota_text import as_text
from ...quotas import Quota


@dataclass(frozen=True, repr=False)
class Tier:
    """A quota function: ``function(connection)``, sync or async, returns the name of a tier, ``None`` for no limit.

    Raises ``KeyError`` for a name that no tier has.
    """

    name: str
    function: Callable[[Any], Any]
    quotas: Mapping[str, tuple[Quota, ...]]

    @property
    def __name__(self) -> str:
        return f"tier {self.name}"

    def __repr__(self) -> str:
        return f"tier {self.name} ({', '.join(f'{name} {as_text(quotas)}' for name, quotas in self.quotas.items())})"

    def __hash__(self) -> int:
        return id(self)

    def __call__(self, connection: Any) -> tuple[Quota, ...] | Awaitable[tuple[Quota, ...] | None] | None:
        returned = self.function(connection)
        return self._awaited(returned) if isawaitable(returned) else self._quotas(returned)

    async def _awaited(self, returned: Awaitable[Any]) -> tuple[Quota, ...] | None:
        return self._quotas(await returned)

    def _quotas(self, tier: str | None) -> tuple[Quota, ...] | None:
        if tier is None:
            return None
        if tier not in self.quotas:
            raise KeyError(f"{self.function!r} returned {tier!r}, and the tiers of {self.name!r} are {[*self.quotas]}")
        return self.quotas[tier]

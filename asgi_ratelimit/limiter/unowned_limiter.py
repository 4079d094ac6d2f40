"""Limiters that do not own their names, for paced calls: others may use the same buckets."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from ..buckets import DEFAULT_NAME
from ..hooks import Hook
from ..overrides import LiveQuotas, ReadQuotas
from ..quota_text import QuotaLike, as_quotas
from ..quotas import Quota
from ..stores import Store
from .charges import checked_name
from .limiter import Limiter


class UnownedLimiter(Limiter):
    """A limiter whose name belongs to another limit or to none: others may have other quotas under it.

    ``read`` makes quotas from an override.
    """

    def __init__(
        self,
        quota: QuotaLike,
        *,
        store: Store | str | None = None,
        name: str = DEFAULT_NAME,
        hooks: Iterable[Hook] = (),
        read: ReadQuotas = as_quotas,
    ) -> None:
        self._read = read
        super().__init__(quota, store=store, name=name, hooks=hooks)

    def _own_name(self, quotas: Iterable[Quota]) -> None:
        pass

    def renamed(self, name: str) -> UnownedLimiter:
        """The same limiter under another name."""
        other = copy(self)
        other.name = checked_name(name)
        other.live = LiveQuotas(self.store, name, self.live.own, self._read)
        return other

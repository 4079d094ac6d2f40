"""The current quotas of one name on one store: those of the program, or those of an override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..decision import Take
from ..quota_text import as_quotas
from ..quotas import Quota
from ..stores import Store
from .overridden_quotas import ReadQuotas, limit_text, quotas_under
from .override_watch import live_overrides, subscribe


class LiveQuotas:
    """``own`` are the program's quotas, and ``quotas`` those that apply; ``word`` is ``"shadow"`` or ``"off"``.

    Both attributes are replaced when an override begins or ends. ``read`` makes quotas from an override.
    """

    __slots__ = ("__weakref__", "_name", "_read", "_store", "own", "quotas", "word")

    def __init__(self, store: Store, name: str, own: tuple[Quota, ...], read: ReadQuotas = as_quotas) -> None:
        self._store = store
        self._name = name
        self._read = read
        self.own = self.quotas = own
        self.word: str | None = None
        subscribe(store, self)

    def renewed(self, take: Take) -> Take:
        """A take under the quotas of the same names that now apply; charges of other names keep their quotas."""
        if all(charge.quota in self.quotas for charge in take.charges):
            return take
        now = {(quota.name, quota.kind): quota for quota in self.quotas}
        charges = [
            replace(charge, quota=now.get((charge.quota.name, charge.quota.kind), charge.quota))
            for charge in take.charges
        ]
        return replace(take, charges=tuple(charges))

    def limit_texts(self) -> Mapping[str, str]:
        """The program's quotas, as text by name."""
        return {self._name: limit_text(self.own)}

    def overrides_changed(self) -> None:
        """Apply ``live_overrides``."""
        override = live_overrides(self._store).get(self._name)
        word = None if override is None else override.word
        has_quotas = override is not None and word is None
        self.quotas = quotas_under(override, self.own, self._read) if has_quotas and override else self.own
        self.word = word

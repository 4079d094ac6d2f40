"""The quotas of a limiter that apply now: those of the program, or those of an override."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..decision import Take
from ..errors import ConfigurationError
from ..overrides import ReadQuotas, limit_text, quotas_under, watch_of
from ..quota_text import as_text
from ..quotas import InFlight, Quota
from ..stores import Store


class LiveQuotas:
    """The current quotas of one name on one store: those of the program, or those of an override.

    ``own`` are the program's quotas, and ``quotas`` those that apply; ``word`` is ``"shadow"`` or ``"off"``. ``quotas``
    and ``word`` are replaced when an override begins or ends. ``read`` makes quotas from an override.
    """

    def __init__(self, store: Store, name: str, own: tuple[Quota, ...], read: ReadQuotas) -> None:
        self._store = store
        self._name = name
        self._read = read
        self.own = self.quotas = own
        self.word: str | None = None
        watch_of(store).subscribe(self)

    def renewed(self, take: Take) -> Take:
        """A take under the quotas of the same names that now apply; charges of other names keep their quotas."""
        if all(charge.quota in self.quotas for charge in take.charges):
            return take
        now = {(quota.name, quota.kind): quota for quota in self.quotas}
        quotas = [now.get((charge.quota.name, charge.quota.kind), charge.quota) for charge in take.charges]
        charges = [replace(charge, quota=quota) for charge, quota in zip(take.charges, quotas)]
        return replace(take, charges=tuple(charges))

    def limit_texts(self) -> Mapping[str, str]:
        """The program's quotas, as text by name."""
        return {self._name: limit_text(self.own)}

    def overrides_changed(self) -> None:
        """Apply the overrides that are live."""
        override = watch_of(self._store).live.get(self._name)
        self.word = override.word if override else None
        self.quotas = self.own
        if override and not override.word:
            quotas = quotas_under(override, self.own, self._read)
            if has_places(quotas) and not has_places(self.own):
                text = f'"{as_text(quotas)}" is no override for {self._name!r}, whose calls hold no places: "10/minute"'
                raise ConfigurationError(text)
            self.quotas = quotas


def has_places(quotas: Iterable[Quota]) -> bool:
    """Whether calls hold a place of any of these quotas until they end."""
    return any(type(quota) is InFlight for quota in quotas)

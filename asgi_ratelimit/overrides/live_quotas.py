"""The current quotas of one name on one store: those of the program, or those of an override."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ..algorithms import unused
from ..clock import SystemClock
from ..decision import Decision, Take
from ..quota_text import QuotaLike, as_quotas, as_text
from ..quotas import Quota
from ..stores import Store
from .override_document import Override
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


ReadQuotas: TypeAlias = Callable[[QuotaLike], tuple[Quota, ...]]


def quotas_under(override: Override, own: Sequence[Quota], read: ReadQuotas = as_quotas) -> tuple[Quota, ...]:
    """The quotas of an override that is not a word, which replace the ``own`` ones; ``read`` makes them from it.

    If one quota replaces one, it keeps its name, and so the usage under that name. Other quotas have the names that
    they state, or names after their periods.
    """
    quotas = read(override.quota)
    if len(quotas) == len(own) == 1:
        return (replace(quotas[0], name=own[0].name),)
    return quotas


def limit_text(quota: Sequence[Quota] | Callable[..., Any]) -> str:
    """The limit of a program as a log line shows it: quotas, a function of the request, or no limit."""
    if callable(quota):
        return f"{getattr(quota, '__name__', type(quota).__name__)}()"
    return as_text(quota) if quota else "no limit"


def counted(decision: Decision) -> Decision:
    """A decision that is counted and not enforced: allowed, whatever the store says."""
    if decision.allowed:
        return replace(decision, shadow=True)
    return replace(decision, allowed=True, wait_us=0.0, shadow=True, id=0)


def exempt(take: Take, store: Store) -> Decision:
    """The decision of a limit that is off: allowed, and nothing is charged."""
    now = float((store.clock or SystemClock()).now_us())
    return Decision(take, True, 0.0, [unused(charge.quota, now) for charge in take.charges], now)

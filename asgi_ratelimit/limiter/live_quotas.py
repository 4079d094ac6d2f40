"""The quotas that apply now, and the charges and units that keys and costs stand for, as callers write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from ..buckets import as_key
from ..decision import Charge, Decision, Take, checked_actual
from ..errors import ConfigurationError
from ..logs import FailureLog
from ..overrides import Override, ReadQuotas, limit_text, named_quotas, not_applied, quotas_under, watch_of
from ..quota_text import as_text
from ..quotas import InFlight, Quota, has_places
from ..stores import Store

U = TypeVar("U")

# One key for all quotas, or a key for each quota by its name.
Key: TypeAlias = str | bytes | Mapping[str, str | bytes]

# Units of every quota, or units of each quota by its name.
Cost: TypeAlias = float | Mapping[str, float]


class LiveQuotas:
    """The current quotas of one name on one store: those of the program, or those of an override.

    ``own`` are the program's quotas, and ``quotas`` those that apply; ``word`` is ``"shadow"`` or ``"off"``. ``quotas``
    and ``word`` are replaced when an override begins or ends. ``read`` makes quotas from an override.
    """

    def __init__(self, store: Store, name: str, own: tuple[Quota, ...], read: ReadQuotas) -> None:
        self._store = store
        self._name = name
        self._read = read
        self._log = FailureLog()
        self.own = self.quotas = own
        self.word: str | None = None
        watch_of(store).subscribe(self)

    def charges(self, key: Key, cost: Cost, quotas: tuple[Quota, ...] | None = None) -> tuple[Charge, ...]:
        """The charges of a request under these quotas, by default those that apply now.

        Quotas that a mapping does not name are not charged. Mappings use the names of the program's own quotas. If none
        of an override's quotas has one of these, the program's are charged, and a warning says so. Raises
        ``ValueError`` for other names, and for a quota that has no key.
        """
        keys = None if isinstance(key, str) or not isinstance(key, Mapping) else key
        costs = None if isinstance(cost, (int, float)) or not isinstance(cost, Mapping) else cost
        quotas = self.quotas if quotas is None else quotas
        if keys is not None or costs is not None:
            _require_names(self.own, keys, costs)
            if costs is not None:  # a place is held, whatever the cost
                costs = {**{quota.name: 1 for quota in (*self.own, *quotas) if type(quota) is InFlight}, **costs}
            quotas = named_quotas(quotas, keys, costs)
            if not quotas:
                quotas = named_quotas(self.own, keys, costs)
                problem = not_applied(self._name, self.quotas, quotas)
                self._log.warn("an-override-that-does-not-apply", problem, of=None)
        charges = []
        for quota in quotas:
            own_key: Any = key if keys is None else keys[quota.name]
            own_cost: Any = cost if costs is None else costs[quota.name]
            charges.append(Charge(quota, as_key(own_key), 1 if type(quota) is InFlight else own_cost, self._name))
        return tuple(charges)

    def renewed(self, take: Take) -> Take:
        """A take under the quotas of the same names that now apply; charges of other names keep their quotas."""
        if all(charge.quota in self.quotas for charge in take.charges):
            return take
        now = {(quota.name, quota.kind): quota for quota in self.quotas}
        quotas = [now.get((charge.quota.name, charge.quota.kind), charge.quota) for charge in take.charges]
        charges = [replace(charge, quota=quota) for charge, quota in zip(take.charges, quotas)]
        return replace(take, charges=tuple(charges))

    def settled_units(
        self, decision: Decision, cost: Cost, unnamed: Sequence[U], use: str = "settle(decision, 3)"
    ) -> list[float | U]:
        """The units to settle for each charge: one number for all, or one for each named quota, else ``unnamed``.

        Names of quotas that were not charged, as under an override, change nothing. Raises ``ValueError`` for a name
        that no quota has, and for a cost that is not a number from 0 to 2**53.
        """
        if not isinstance(cost, Mapping):
            return [checked_actual(cost, use)] * len(decision.charges)
        names = [charge.quota.name for charge in decision.charges]
        known = dict.fromkeys([*names, *[quota.name for quota in (*self.own, *self.quotas)]])
        if unknown := set(cost) - set(known):
            raise ValueError(f"cost names {sorted(unknown)!r}, but the quotas are {', '.join(map(repr, known))}")
        return [checked_actual(cost[name], use) if name in cost else units for name, units in zip(names, unnamed)]

    def actual_units(self, decision: Decision, actual: Cost, unnamed: Sequence[U]) -> list[float | U]:
        """``settled_units`` of an actual cost.

        Raises ``ValueError`` also for one number, except 0, for quotas that were charged different costs.
        """
        charged = charged_units(decision)
        rates = {each.quota.name: cost for each, cost in zip(decision.charges, charged) if not has_places([each.quota])}
        if not isinstance(actual, Mapping) and checked_actual(actual) and len(set(rates.values())) > 1:
            right = {next(reversed(rates)): actual}
            which = f"the actual cost of which quota is {actual!r}? They were charged {rates}"
            raise ValueError(f"{which}: settle({right})")
        return self.settled_units(decision, actual, unnamed)

    def limit_texts(self) -> Mapping[str, str]:
        """The program's quotas, as text by name."""
        return {self._name: limit_text(self.own)}

    def overrides_changed(self) -> None:
        """Apply the overrides that are live."""
        override, quotas = watch_of(self._store).live.get(self._name), self.own
        try:
            quotas = self._under(override)
        finally:  # at once, as another thread may take meanwhile
            self.word, self.quotas = override.word if override else None, quotas

    def _under(self, override: Override | None) -> tuple[Quota, ...]:
        """The quotas under an override; ``ConfigurationError`` for one that does not fit."""
        if override is None or override.word:
            return self.own
        quotas = quotas_under(override, self.own, self._read)
        if has_places(quotas) and not has_places(self.own):
            text = f'"{as_text(quotas)}" is no override for {self._name!r}, whose calls hold no places: "10/minute"'
            raise ConfigurationError(text)
        return quotas


def _require_names(quotas: Sequence[Quota], keys: Mapping[str, Any] | None, costs: Mapping[str, Any] | None) -> None:
    """Raise ``ValueError`` for names that no quota has, and for a quota that is charged and has no key."""
    names = [quota.name for quota in quotas]
    given: list[tuple[str, Mapping[str, Any] | None, str | int]] = [("key", keys, "alice"), ("cost", costs, 1)]
    for what, mapping, example in given:
        if mapping is None:
            continue
        unknown = sorted(set(mapping) - set(names))
        if unknown or not mapping:
            listed, right = ", ".join(map(repr, names)), {names[0]: example}
            raise ValueError(f"{what} names {unknown!r}, but the quotas are {listed}: {what}={right!r}")
    charged = [each.name for each in quotas if costs is None or each.name in costs or type(each) is InFlight]
    missing = [name for name in charged if keys is not None and name not in keys]
    if missing:
        raise ValueError(f"key names {sorted(keys or ())!r}, and lacks {', '.join(map(repr, missing))}")


def need_one_key(take: Take, instead: str) -> None:
    """Raise ``ConfigurationError`` if a take that may be booked ahead has charges of several keys."""
    keys = list(dict.fromkeys([charge.key for charge in take.charges]))
    if take.max_wait_us and len(keys) > 1:
        booked = f"a slot that is booked ahead for the keys {keys}"
        raise ConfigurationError(f"{booked} would keep the shared ones from everybody until then: {instead}")


def checked_decision(decision: Decision, example: str) -> Decision:
    """``decision`` if it is one; ``ValueError`` otherwise."""
    if isinstance(decision, Decision):
        return decision
    raise ValueError(f"only a decision of this limiter is booked, settled or given back, not {decision!r}: {example}")


def charged_units(decision: Decision) -> list[float]:
    """The units that a decision has charged, for each of its charges."""
    return [charge.cost if decision.allowed else 0 for charge in decision.charges]

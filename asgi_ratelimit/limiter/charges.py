"""What a request comes to: keys, costs, and the charges that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..decision import Charge, Decision, checked_cost
from ..errors import ConfigurationError
from ..quotas import Quota

Key: TypeAlias = str | bytes | Mapping[str, str | bytes]
"""Whose buckets, or whose bucket of each quota by its name."""

Cost: TypeAlias = float | Mapping[str, float]
"""Units of every quota, or of each one by its name."""


def charges_of(quotas: Sequence[Quota], name: str, key: Key, cost: Cost) -> tuple[Charge, ...]:
    """The charges of a limiter's quotas; ``ValueError`` where a key or a cost names others."""
    if not isinstance(key, Mapping) and not isinstance(cost, Mapping):
        text = as_key(key)
        return tuple([Charge(quota, text, cost, name) for quota in quotas])
    charges = []
    for quota in _named(quotas, key, cost):
        own_key = key[quota.name] if isinstance(key, Mapping) else key
        own_cost = cost[quota.name] if isinstance(cost, Mapping) else cost
        charges.append(Charge(quota, as_key(own_key), own_cost, name))
    return tuple(charges)


def _named(quotas: Sequence[Quota], key: Key, cost: Cost) -> list[Quota]:
    """The quotas to charge, each of which has a key."""
    names = [quota.name for quota in quotas]
    _require_names("key", key, names, '{...: "alice"}')
    _require_names("cost", cost, names, "{...: 1}")
    charged = [quota for quota in quotas if not isinstance(cost, Mapping) or quota.name in cost]
    without = [quota.name for quota in charged if isinstance(key, Mapping) and quota.name not in key]
    if without:
        raise ValueError(f"key names {sorted(key)!r}, and lacks {', '.join(map(repr, without))}")
    return charged


def _require_names(what: str, given: Key | Cost, names: Sequence[str], example: str) -> None:
    if not isinstance(given, Mapping):
        return
    unknown = set(given) - set(names)
    if unknown or not given:
        known = ", ".join(map(repr, names))
        raise ValueError(f"{what} names {sorted(unknown)!r}, where the quotas are {known}: {what}={example}")


def charged(decision: Decision) -> list[float]:
    """The units that a decision charged, for each of its charges."""
    take = decision.take
    if take is None or take.best_effort or not decision.allowed:
        return [decision.granted] * len(decision.states)
    return [charge.cost for charge in take.charges]


def costs_of(decision: Decision, cost: Cost, unnamed: Sequence[float]) -> list[float]:
    """The units for each charge of a decision, from one number or one by each quota's name."""
    if not isinstance(cost, Mapping):
        return [_settled_cost(cost)] * len(decision.states)
    names = [state.quota.name for state in decision.states]
    unknown = set(cost) - set(names)
    if unknown:
        raise ValueError(f"cost names {sorted(unknown)!r}, where the quotas are {', '.join(map(repr, names))}")
    return [_settled_cost(cost.get(name, units)) for name, units in zip(names, unnamed)]


def _settled_cost(cost: float) -> float:
    """A cost after the fact, which may be 0; ``ValueError`` for what is no number from 0 to 2**53."""
    return cost if cost == 0 else checked_cost(cost)


def as_key(key: str | bytes) -> str:
    """A key of any content as text; bytes that are not UTF-8 stay apart from all that are. ``TypeError`` otherwise."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    raise TypeError(f"a key is a str or bytes, not {key!r}: key=str(user.id)")


def checked_name(name: str) -> str:
    """A limiter's name if it is a text and not empty; ``ConfigurationError`` otherwise."""
    if isinstance(name, str) and name:
        return name
    raise ConfigurationError(f'the name of a limiter must be a text and not empty, not {name!r}: name="api"')
